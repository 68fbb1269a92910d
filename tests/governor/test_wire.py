"""Use cases and their answers as they cross the socket to the ledger process: nothing is lost, nothing else is read."""

import ast
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from msgspec import Raw, msgpack

import remit
from remit import errors
from remit.claims.canonical import sha256_base64url
from remit.claims.passport import Confirmation
from remit.claims.receipt import Digest, Measurement
from remit.errors import BrokenChain, FieldInvalid, JsonTooLarge, MissionWidened, RemitError
from remit.governor.assistant_sessions import ContinueAssistantSession
from remit.governor.assistants import Actor, BeginAssistantSession, EndAssistantSession, EvaluateAssistantCall
from remit.governor.attest import Attest
from remit.governor.closing import CloseOpenDelegates
from remit.governor.conclude import RecordAssistantResult
from remit.governor.context import Context, UseCase
from remit.governor.delegate import Delegate
from remit.governor.evaluate import Evaluate, EventSummary, Evidence
from remit.governor.folders import MissionTemplate
from remit.governor.issue import IssuePassport, PassportRequest
from remit.governor.keys import DistrustKey, RotateKey
from remit.governor.observe import GetJudgingState, ObserveEvent, ReportEvent
from remit.governor.rate import ReportSkipped
from remit.governor.results import RecordResult
from remit.governor.revoke import CloseRevoked, KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from remit.governor.sources import Reporter, StartSourceSession
from remit.governor.statements import RecordStatement
from remit.governor.tampering import EndReporterSession, RevokeTamperedSessions
from remit.governor.verification import Quarantine
from remit.governor.wire import (
    ANSWER,
    HEADER_BYTES,
    MAX_FRAME,
    USE_CASES,
    FrameDecoder,
    decode_answer,
    decode_case,
    decode_failure,
    decode_messages,
    encode_case,
    encode_failure,
    encode_frame,
    encode_message,
)
from remit.policy.call import Annotations, ToolCall
from tests.governor.world import ALLOWED, FORBIDDEN, MISSION, Service, mission

_T = TypeVar("_T")

# Use cases that only read, or consist of others: the front runs them.
OF_THE_FRONT = {"LoadReview", "PreviewDecision", "RequireHolder", "UseCase", "_GetReceipt", "_GetStatus", "_Keys"}
DIGEST = Digest(alg="sha-256", value=sha256_base64url(b"x"), canonicalization="none", scope="result")
REPORTER = Reporter("hub:one", '{"type":"browser","title":"one"}', MISSION)
TOLD = '{"generation":"2","secret":"s"}'
TEMPLATE = MissionTemplate(MISSION, frozenset(("/home/a",)))
ACTOR = Actor(
    Reporter("hook:one", TOLD, MISSION, generation=2, secret="s", placing=TEMPLATE), "agent", "kind", ("Task",)
)
EVENT = ObserveEvent(
    "pass:00000000", "browser", {"type": "visit", "n": [1, None, 1.5]}, "key", EventSummary(("a",), ({"text": "b"},)),
    {"m": Measurement(kind="telemetry", status="success", description="d")}, 5,
)  # fmt: skip
CALL = ToolCall("Bash", {"command": "ls ~", "large": 10**40, "deep": {"a": [-(10**50)]}}, "/work",
                Annotations(read_only=True), fresh_shell=True, shell="zsh")  # fmt: skip
SAMPLES: list[UseCase[Any]] = [
    Attest("pass:1", end=True),
    BeginAssistantSession(ACTOR.reporter),
    CloseRevoked(["pass:1"]),
    RecordAssistantResult(ACTOR, CALL, "call", "envelope", DIGEST),
    ContinueAssistantSession(REPORTER),
    RecordStatement("tool", "target", {"a": [1, {"b": None}]}, "coverage_gap", "reason", "counted"),
    Delegate("pass:1", MISSION, "request", Confirmation(certificate="x" * 43), "envelope"),
    DistrustKey("kid", 5),
    EndSession("pass:1"),
    EndReporterSession(ACTOR.reporter),
    RevokeTamperedSessions("protection", 3),
    Evaluate("pass:1", CALL, "key", Evidence(DIGEST, "class", seen=EventSummary(("m",))), "e", {}, 3),
    GetJudgingState("", REPORTER),
    EndAssistantSession(ACTOR),
    CloseOpenDelegates(),
    EvaluateAssistantCall(ACTOR, CALL, "call", "envelope"),
    IssuePassport(PassportRequest(MISSION, "pass:1", 60, Confirmation(jkt="y" * 43))),
    KillSwitch(on=True),
    GetSession("pass:1"),
    EVENT,
    Quarantine("pass:1"),
    RecordResult("pass:1", "receipt", DIGEST),
    ReportEvent(REPORTER, EVENT),
    ReportSkipped(),
    RevokePassport("pass:1", "reason"),
    RevokeSession("pass:1", lineage=True),
    RotateKey(),
    StartSession("token", "holder", by_source=True),
    StartSourceSession(REPORTER),
]


def crossed(case: UseCase[_T]) -> UseCase[_T]:
    """Return a use case as the ledger process reads it."""
    [body] = FrameDecoder().feed(encode_frame([encode_case(7, case)]))
    [(number, name, content)] = decode_messages(body)
    assert number == 7
    return decode_case(name, content)


def through_the_wire(service: Service, case: UseCase[_T]) -> _T:
    """Return the answer to a use case when both cross the wire; a failure is raised as it arrives."""
    try:
        answer = service.governor.run(crossed(case))
    except RemitError as error:
        [(_, _, content)] = decode_messages(encode_frame([encode_failure(1, error)])[HEADER_BYTES:])
        raise decode_failure(content) from None
    [(_, _, content)] = decode_messages(encode_frame([encode_message(1, ANSWER, answer)])[HEADER_BYTES:])
    arrived: _T = decode_answer(type(case), content)
    if not isinstance(getattr(answer, "fault", None), BrokenChain):
        assert arrived == answer
    return arrived


def test_every_use_case_is_run_by_the_ledger_process_or_known_to_be_run_by_the_front() -> None:
    found = set()
    for file in Path(remit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name == "run":
                        names = [argument.arg for argument in member.args.args]
                        found |= {node.name} if names == ["self", "context"] else set()
    assert found == OF_THE_FRONT | set(USE_CASES)


def test_there_is_a_sample_of_every_use_case_and_it_crosses_unchanged() -> None:
    assert sorted(type(sample).__name__ for sample in SAMPLES) == sorted(USE_CASES)
    for sample in SAMPLES:
        assert crossed(sample) == sample


def test_answers_cross_unchanged(service: Service) -> None:
    def run(case: UseCase[_T]) -> _T:
        return through_the_wire(service, case)

    token = run(IssuePassport(PassportRequest(mission(max_tool_calls=9), "pass:of-the-wire"))).token
    session = run(StartSession(token)).session.id
    answers = [run(Evaluate(session, call, key)) for call, key in ((ALLOWED, "a"), (FORBIDDEN, "b"), (ALLOWED, "a"))]
    assert [answer.permits for answer in answers] == [True, False, True]
    assert answers[2].repeated
    run(RecordResult(session, answers[0].receipt.claims.receipt_id, DIGEST))
    run(GetSession(session))
    assert run(Delegate(session, mission(max_tool_calls=1), "r")).permits
    with pytest.raises(MissionWidened):
        run(Delegate(session, mission(max_tool_calls=10_000), "s"))
    assert run(ReportEvent(REPORTER, EVENT)).answer.note is not None
    run(StartSourceSession(REPORTER))
    run(GetJudgingState(reporter=REPORTER))
    lead = run(BeginAssistantSession(ACTOR.reporter))
    assert run(ContinueAssistantSession(ACTOR.reporter)).session.id == lead
    governed = run(EvaluateAssistantCall(ACTOR, ALLOWED, "call", "envelope"))
    run(RecordAssistantResult(ACTOR, ALLOWED, "call", "envelope", DIGEST))
    assert governed.session_id != lead
    run(EndAssistantSession(ACTOR))
    run(EndReporterSession(ACTOR.reporter))
    assert run(RevokeTamperedSessions("none")) == ()
    run(RecordStatement("tool", "target", {"a": 1}, "", "reason"))
    assert run(Attest(session)).fault is None
    assert run(Quarantine(session))
    run(EndSession(session))
    run(RevokeSession(session, lineage=True))
    run(RevokePassport("pass:nobody"))
    run(CloseRevoked([session]))
    run(KillSwitch(on=True))
    assert run(CloseOpenDelegates()) == 0
    run(ReportSkipped())


class Prejudge(NamedTuple):
    """Judges a call ahead, as a use case, so that the governor can run it."""

    request: Evaluate

    async def run(self, context: Context) -> Evaluate:
        """Return the request that was judged."""
        return await self.request.prejudge(context)


@pytest.mark.parametrize(
    "call",
    [
        ALLOWED,
        FORBIDDEN,
        ToolCall("Bash", {"command": "cat README.md | wc -l"}),
        ToolCall("Bash", {"command": "rm -rf /"}),
        ToolCall("read_file", {"path": "/work/project/a", "n": 10**40}),
    ],
    ids=str,
)
def test_a_call_that_was_judged_elsewhere_gets_the_same_receipt(service: Service, call: ToolCall) -> None:
    session = service.start().session.id
    judged = service.governor.run(Prejudge(Evaluate(session, call, "key")))
    assert judged.prejudged is not None
    arrived = crossed(judged)
    assert arrived == judged
    first = service.run(arrived)
    second = service.run(Evaluate(session, call))
    own = (
        "jti",
        "invocation_digest",
        "receipt_id",
        "parent_receipt_id",
        "parent_receipt_hash",
        "step_id",
        "budget_remaining",
        "budget_delta",
    )
    claims = [
        {name: value for name, value in msgspec.to_builtins(answer.receipt.claims).items() if name not in own}
        for answer in (first, second)
    ]
    assert claims[0] == claims[1]
    assert first.remedy == second.remedy
    assert service.run(crossed(judged)).repeated


def test_an_error_crosses_with_its_members() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RemitError)]
    plain = [kind("said") for kind in kinds if kind.__init__ is RemitError.__init__]
    own: list[RemitError] = [
        FieldInvalid("wrong", place="$.a"),
        MissionWidened("cwd", "elsewhere"),
        BrokenChain(3, "fault", "broken"),
        errors.PayloadInvalid(FieldInvalid("wrong", place="$.b")),
    ]
    assert len(plain) > 50
    for error in [*plain, *own]:
        [(_, _, content)] = decode_messages(encode_frame([encode_failure(1, error)])[HEADER_BYTES:])
        rebuilt = decode_failure(content)
        assert (type(rebuilt), str(rebuilt), vars(rebuilt)) == (type(error), str(error), vars(error))
    [(_, _, content)] = decode_messages(encode_frame([encode_failure(1, KeyError("secret"))])[HEADER_BYTES:])
    assert (type(decode_failure(content)), "secret" in str(decode_failure(content))) == (RuntimeError, False)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Nothing", {}),
        (3, {}),
        ("Held", {"case": {}, "session_id": "a", "holder": ""}),
        ("End", {}),
        ("End", {"session_id": 5}),
        ("End", {"session_id": "a", "more": 1, "session": []} | {"session_id": None}),
        ("Issue", {"order": {"mission": {"agent_id": "", "mission": "x"}, "jti": "a"}}),
        ("Delegate", {"session_id": "a", "mission": [], "request_id": "b"}),
        ("End", msgpack.Ext(9, b"x")),
        ("KillSwitch", {"on": 1}),
        ("Evaluate", {"session_id": "a", "call": ["Bash", {"n": msgpack.Ext(1, b"9" * 99)}]}),
        ("Evaluate", {"session_id": "a", "call": ["Bash", {"n": msgpack.Ext(1, b"x")}]}),
    ],
)
def test_what_is_no_use_case_is_refused(name: int | str, content: object) -> None:
    with pytest.raises(FieldInvalid):
        decode_case(name, Raw(msgpack.encode(content)))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x91\x01", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000])
def test_what_is_no_array_of_messages_is_refused(body: bytes) -> None:
    with pytest.raises(FieldInvalid):
        decode_messages(body)


def test_frames_are_cut_wherever_the_bytes_are_and_never_too_large() -> None:
    data = encode_frame([encode_case(1, EndSession("a"))]) + encode_frame(
        [encode_case(2, EndSession("b")), encode_case(3, EndSession("c"))]
    )
    frames = FrameDecoder()
    bodies = [body for byte in data for body in frames.feed(bytes([byte]))]
    assert [number for body in bodies for number, _, _ in decode_messages(body)] == [1, 2, 3]
    assert len(list(FrameDecoder().feed(data))) == 2
    with pytest.raises(JsonTooLarge):
        list(FrameDecoder().feed((MAX_FRAME + 1).to_bytes(HEADER_BYTES)))


def test_what_is_too_large_or_has_no_form_is_not_sent() -> None:
    with pytest.raises(JsonTooLarge):
        encode_case(1, Evaluate("a", ToolCall("Bash", {"command": "x" * MAX_FRAME})))
    with pytest.raises(errors.NotCanonicalizable):
        encode_case(1, Evaluate("a", ToolCall("Bash", {"command": "\ud800"})))
