"""Callers who mean harm, or come at the worst moment: nobody else is kept waiting, and nothing is permitted by it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.claims.passport import issue_passport
from remit.claims.receipt import Digest
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, PassportRevoked, RequestConflict
from remit.governor.attest import Attest, AttestResult
from remit.governor.clock import SystemClock
from remit.governor.context import UseCase
from remit.governor.delegate import MAX_OPEN_DELEGATIONS, Delegate, DelegateResult
from remit.governor.evaluate import Evaluate, Evaluation
from remit.governor.results import RecordResult
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession, StartSession
from remit.ledger.store import Transaction
from remit.policy.call import ToolCall
from remit.policy.engines import Case, Finding
from remit.policy.files import Files, LimitedFiles, ResolvedPath, Survey, TextFiles
from remit.policy.native import NativeEngine
from remit.policy.projection import is_cheap
from tests.governor.places import MemoryPlace, Place, SqlitePlace
from tests.governor.stepping import Commit, steps_of
from tests.governor.world import ALLOWED, Service, mission

pytestmark = pytest.mark.slow

PATIENT_S = 60.0
PROJECT = "/work/project"
WIDE = ToolCall("read_file", {"path": f"{PROJECT}/*.md"})
LONG = ToolCall("read_file", {"path": f"{PROJECT}/{'a/' * 300}a"})
DIGEST = Digest(alg="sha-256", value="A" * 43)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return MemoryPlace() if request.param == "memory" else SqlitePlace(tmp_path)


def _code(answer: Evaluation) -> str:
    return answer.receipt.claims.internal_denial_code or ""


def _together(service: Service, *cases: UseCase[Any]) -> list[Any]:
    async def gathered() -> list[Any]:
        return await asyncio.gather(*(service.governor.arun(case) for case in cases), return_exceptions=True)

    return asyncio.run(gathered())


# Delegates without number


def _crowd(service: Service, count: int = MAX_OPEN_DELEGATIONS) -> tuple[str, list[DelegateResult]]:
    """Start a session, and let it delegate."""
    name = service.start(max_tool_calls=1000).session.id
    wanted = mission(max_tool_calls=1)
    answers = _together(service, *(Delegate(name, wanted, f"request-{number}") for number in range(count)))
    return name, answers


def test_a_session_has_only_so_many_delegates_at_once(place: Place) -> None:
    with Service(place) as service:
        name, delegated = _crowd(service, MAX_OPEN_DELEGATIONS)
        assert all(each.permits for each in delegated)
        refused = service.delegate(name, "one-too-many", max_tool_calls=1)
        assert (refused.permits, refused.child_id) == (False, None)
        assert refused.receipt.claims.internal_denial_code == "lineage_budget_exhausted"
        assert service.tokens(name)[-1] == refused.receipt.token
        assert service.session(name).reserved == MAX_OPEN_DELEGATIONS


def test_delegates_that_are_asked_for_at_once_are_no_more_than_that(service: Service) -> None:
    _, delegated = _crowd(service, MAX_OPEN_DELEGATIONS + 20)
    assert sum(each.permits for each in delegated) == MAX_OPEN_DELEGATIONS


def test_a_delegate_that_was_closed_makes_room_for_another(service: Service) -> None:
    name, delegated = _crowd(service)
    service.run(RevokePassport(str(delegated[0].child_id)))
    assert service.delegate(name, "another", max_tool_calls=1).permits


def test_a_delegate_without_calls_is_refused(service: Service) -> None:
    name = service.start().session.id
    with pytest.raises(FieldInvalid) as caught:
        service.delegate(name, max_tool_calls=0)
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.mission.max_tool_calls")
    assert service.tokens(name) == []


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (EndSession, "session_ended"),
        (RevokeSession, "session_revoked"),
        (RevokePassport, "passport_revoked"),
        (lambda _: KillSwitch(on=True), "kill_switch"),
    ],
    ids=["end", "revoke session", "revoke passport", "kill switch"],
)
def test_a_session_with_all_its_delegates_can_be_closed(
    place: Place, case: Callable[[str], UseCase[Any]], code: str
) -> None:
    with Service(place) as service:
        name, delegated = _crowd(service)
        running = service.run(StartSession(str(delegated[0].passport))).session.id
        service.run(case(name))
        assert service.session(name).reserved == 0
        assert [_code(service.call(each)) for each in (name, running)] == [code, code]
        service.run(KillSwitch(on=False))
        with pytest.raises(PassportRevoked):
            service.run(StartSession(str(delegated[1].passport)))


def test_the_time_of_a_session_with_all_its_delegates_can_run_out(place: Place) -> None:
    with Service(place) as service:
        name, _ = _crowd(service)
        other = service.start(max_duration_s=5000).session.id
        service.clock.pass_s(901)
        refused, permitted = _together(service, Evaluate(name, ALLOWED), Evaluate(other, ALLOWED))
        assert _code(refused) == "duration_exceeded"
        assert permitted.permits
        service.run(EndSession(name))
        assert service.session(name).reserved == 0


# Calls that take long


class _Slow:
    """Keeps whoever asks waiting until it is released, and remembers on which threads it was asked."""

    name = "slow"

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.threads: list[str] = []

    def wait(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.begun.set()
        assert self.released.wait(PATIENT_S * 2)

    def judge(self, case: Case) -> Finding:
        if not is_cheap(case.call):
            self.wait()
        return Finding(self.name, "", "has no objection")


class _SlowFiles(TextFiles):
    def __init__(self, slow: _Slow) -> None:
        self._slow = slow

    def resolve(self, path: str) -> ResolvedPath:
        if len(path) > 512 or "*" in path:
            self._slow.wait()
        return super().resolve(path)

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:
        self._slow.wait()
        return super().expand(directory, pattern)


@pytest.fixture(params=["engine", "files"])
def slow(request: pytest.FixtureRequest) -> Iterator[tuple[Service, _Slow]]:
    """A service that takes long to judge what is not light."""
    slow = _Slow()
    with Service(engines=[NativeEngine(), slow] if request.param == "engine" else [NativeEngine()]) as service:
        if request.param == "files":
            service.governor.context.files = _SlowFiles(slow)
        yield service, slow
        slow.released.set()


def _meanwhile(service: Service, slow: _Slow, heavy: Evaluate, *cases: UseCase[Any]) -> list[Any]:
    """Run cases while a heavy call is judged, and return their answers, and at last that of the heavy call."""

    async def scene() -> list[Any]:
        waiting = asyncio.ensure_future(service.governor.arun(heavy))
        try:
            assert await asyncio.to_thread(slow.begun.wait, PATIENT_S)
            answers = [await asyncio.wait_for(service.governor.arun(case), PATIENT_S) for case in cases]
            assert not waiting.done()
        finally:
            slow.released.set()
        return [*answers, await waiting]

    return asyncio.run(scene())


@pytest.mark.parametrize("heavy", [WIDE, LONG], ids=["wide", "long"])
@pytest.mark.parametrize("looked", [False, True])
def test_a_call_that_takes_long_keeps_no_other_session_waiting(
    slow: tuple[Service, _Slow], heavy: ToolCall, looked: bool
) -> None:
    service, judge = slow
    one, other = service.start().session.id, service.start().session.id
    if looked:
        service.call(one)
    light, late = _meanwhile(service, judge, Evaluate(one, heavy), Evaluate(other, ALLOWED))
    assert light.permits
    assert service.tokens(one)[-1] == late.receipt.token
    assert "ledger" not in judge.threads


def test_a_call_that_takes_long_keeps_nobody_from_taking_authority_back(slow: tuple[Service, _Slow]) -> None:
    service, judge = slow
    name = service.start().session.id
    revoked, late = _meanwhile(service, judge, Evaluate(name, LONG), RevokePassport(name))
    assert revoked.state == "revoked"
    assert (late.permits, _code(late)) == (False, "passport_revoked")


class _Gathering(TextFiles):
    """Lets those who look go on together, and remembers on which threads they do; the writer waits for nobody."""

    def __init__(self, count: int) -> None:
        self._all = threading.Barrier(count)
        self.threads: list[str] = []

    def resolve(self, path: str) -> ResolvedPath:
        name = threading.current_thread().name
        self.threads.append(name)
        if name != "ledger":
            self._all.wait(PATIENT_S)
        return super().resolve(path)


def test_long_calls_beyond_the_budget_are_not_judged_by_the_writer(service: Service) -> None:
    name = service.start(max_tool_calls=1).session.id
    files = service.governor.context.files = _Gathering(2)  # of one session, two at a time
    answers = _together(service, *[Evaluate(name, LONG)] * 4)
    assert sum(answer.permits for answer in answers) == 1
    assert "ledger" not in files.threads


def _passing(service: Service) -> Callable[[], float]:
    """Return a stopwatch that takes a second to be read, and shows nothing of it."""

    def read() -> float:
        service.clock.pass_s(1)
        return 0.0

    return read


def test_a_call_that_takes_more_than_a_second_is_not_judged_by_the_writer() -> None:
    judge = _Slow()
    with Service(engines=[NativeEngine(), judge]) as service:
        name = service.start().session.id
        judge.released.set()
        service.governor.context.stopwatch = _passing(service)
        assert service.call(name, LONG).permits
    assert "ledger" not in judge.threads


@pytest.mark.parametrize(
    ("call", "light"),
    [
        (ToolCall("Read", {"file_path": "/a"}), True),
        (ToolCall("Read", {"file_path": "x" * 512}), True),
        (ToolCall("Read", {"file_path": "x" * 513}), False),
        (ToolCall("Read", {"file_path": "/a/*"}), False),
        (ToolCall("Read", {"file_path": "/a/?"}), False),
        (ToolCall("Read", {"file_path": "/a/[ab]"}), False),
        (ToolCall("Read", {"file_path": "/a/{b,c}"}), False),
        (ToolCall("Read", {"file_path": "/a"}, cwd="/" * 512), True),
        (ToolCall("Read", {"file_path": "/a"}, cwd="/" * 513), False),
        (ToolCall("Read", {"file_path": ["/a"]}), False),
        (ToolCall("Read", {"file_path": {}}), False),
        (ToolCall("Read", {"file_path": 0.1}), False),
        (ToolCall("Read", {"file_path": "/a", "other": "/b"}), False),
        (ToolCall("Write", {"file_path": "/a", "content": "text"}), True),
        (ToolCall("WebFetch", {"url": "https://example.com/", "prompt": "summarise"}), True),
        (ToolCall("Bash", {}), True),
        (ToolCall("Bash", {"command": "ls -l"}), False),
        (ToolCall("Grep", {"pattern": "x", "path": "/a"}), False),
        (ToolCall("Foo", {"a": 1}), False),
        (ToolCall("Foo", {}), False),
        (ToolCall("Read", {f"member{number}": 1 for number in range(17)}), False),
    ],
)
def test_only_known_tools_with_short_and_plain_arguments_are_light(call: ToolCall, light: bool) -> None:
    assert is_cheap(call) is light


class _CountedFiles:
    """A file system in which every pattern stands for many names; it counts what it is asked."""

    home: str | None = None
    reads_disk = True

    def __init__(self) -> None:
        self.looks = self.lists = self.surveys = 0

    def resolve(self, path: str) -> ResolvedPath:
        self.looks += 1
        return ResolvedPath(path, exists=True, is_directory=True)

    def expand(self, directory: str, pattern: str) -> tuple[str, ...] | None:  # noqa: ARG002
        self.lists += 1
        return tuple(f"name{number}" for number in range(10))

    def survey(self, directory: str) -> Survey | None:  # noqa: ARG002
        self.surveys += 1
        return Survey((), odd_names=False)


@pytest.mark.parametrize("call", [ALLOWED, WIDE, LONG], ids=["light", "wide", "long"])
@pytest.mark.parametrize(
    ("case", "code"),
    [
        (EndSession, "session_ended"),
        (RevokeSession, "session_revoked"),
        (RevokePassport, "passport_revoked"),
        (lambda _: KillSwitch(on=True), "kill_switch"),
    ],
    ids=["end", "revoke session", "revoke passport", "kill switch"],
)
def test_a_call_of_a_session_that_is_over_is_not_looked_into(
    service: Service, case: Callable[[str], UseCase[Any]], code: str, call: ToolCall
) -> None:
    name, files = service.start().session.id, _CountedFiles()
    service.run(case(name))
    service.governor.context.files = files
    answer = service.call(name, call)
    assert (answer.permits, _code(answer)) == (False, code)
    assert service.tokens(name) == [answer.receipt.token]
    assert (files.looks, files.lists, files.surveys) == (0, 0, 0)


def _asked(ask: Callable[[Files, str], object], files: _CountedFiles, most: int) -> list[object]:
    """Ask rationed files of different paths, twice as often as they tell; return what they tell after that."""
    rationed = LimitedFiles(files)
    return [ask(rationed, f"/{number}") for number in range(2 * most)][most:]


def test_files_are_told_of_only_so_often() -> None:
    files = _CountedFiles()
    assert set(_asked(lambda it, path: it.resolve(path).refusal == "", files, 5000)) == {False}
    assert set(_asked(lambda it, path: it.expand(path, "*"), files, 100)) == {None}
    assert set(_asked(lambda it, path: it.survey(path), files, 20)) == {None}
    assert (files.looks, files.lists, files.surveys) == (5000, 100, 20)


@pytest.mark.parametrize(("patterns", "permitted"), [(2, True), (400, False)])
def test_a_call_that_names_too_much_is_a_doubt(service: Service, patterns: int, permitted: bool) -> None:
    files = service.governor.context.files = _CountedFiles()
    name = service.start().session.id
    words = " ".join(f"{PROJECT}/d{number}*/*" for number in range(patterns))
    answer = service.call(name, ToolCall("Bash", {"command": f"cat {words}"}))
    assert answer.permits is permitted
    assert answer.receipt.claims.verdict == ("compliant" if permitted else "insufficient_evidence")
    assert files.looks <= 5000
    assert files.lists <= 100


# Attesting and looking while the chain grows


def test_a_chain_that_grows_while_it_is_attested_is_never_found_broken(place: Place) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=1000).session.id

        async def call() -> list[bool]:
            return [(await service.governor.arun(Evaluate(name, ALLOWED))).permits for _ in range(25)]

        async def scene() -> list[AttestResult]:
            callers = asyncio.gather(*(call() for _ in range(8)))
            attested = [await service.governor.arun(Attest(name))]
            while not callers.done():
                attested.append(await service.governor.arun(Attest(name)))
            assert all(permitted for each in await callers for permitted in each)
            return attested

        attested = asyncio.run(scene())
        assert [each.fault for each in attested if each.fault is not None] == []
        assert all(each.attestation.claims.chain_verified for each in attested)
        assert service.session(name).cause == ""
        assert service.attest(name).attestation.claims.receipts == 200


@pytest.mark.parametrize("first", ["result", "call"])
def test_a_first_look_beside_a_receipt_that_is_being_made_finds_no_break(place: Place, first: str) -> None:
    with Service(place) as service:
        name = service.start().session.id
        known = service.call(name).receipt.claims.receipt_id
        service.restart()
        cases: list[UseCase[Any]] = [RecordResult(name, known, DIGEST), Evaluate(name, ALLOWED)]
        answers = _together(service, *(cases if first == "result" else reversed(cases)))
        assert [error for error in answers if isinstance(error, Exception)] == []
        assert service.session(name).cause == ""
        assert service.call(name).permits


# Two processes


def _at_begin(service: Service, number: int, act: Callable[[], object]) -> None:
    """Let another process act before the service takes the right to write for the `number`th time."""

    def wait() -> None:
        _at_begin(service, number - 1, act)

    service.weather.meanwhile = wait if number else act


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_that_another_process_starts_during_a_revocation_permits_nothing(
    pair: tuple[Service, Service], number: int
) -> None:
    one, two = pair
    one.start()
    token, began = one.issue(), list[str]()

    def start() -> None:
        try:
            began.append(two.run(StartSession(token.token)).session.id)
        except PassportRevoked:
            began.append("")

    _at_begin(one, number, start)
    one.run(RevokePassport(token.jti))
    assert began == ["" if number else token.jti]  # the revocation counts from the first of its two writes
    for service in (one, two):
        if began[0]:
            assert _code(service.call(token.jti)) == "passport_revoked"
            assert service.session(token.jti).state == "revoked"
        else:
            with pytest.raises(PassportRevoked):
                service.run(StartSession(token.token))


def test_a_passport_that_another_process_revokes_while_it_starts_does_not_start(pair: tuple[Service, Service]) -> None:
    one, two = pair
    token = one.issue()
    one.weather.meanwhile = lambda: two.run(RevokePassport(token.jti))
    with pytest.raises(PassportRevoked):
        one.run(StartSession(token.token))
    assert one.reader.session(token.jti) is None


def test_work_that_found_no_session_runs_again_if_another_process_starts_it(pair: tuple[Service, Service]) -> None:
    one, two = pair
    token, found = one.issue(), list[bool]()

    def work(transaction: Transaction) -> None:
        found.append(transaction.session(token.jti) is not None)
        transaction.put_revocation("pass:of-nobody", at_ms=0, reason="")

    one.weather.meanwhile = lambda: two.run(StartSession(token.token))
    one.ledger.run(work)
    assert found == [False, True]


# Engines that count


class _WhileManyAreLeft:
    name = "while-many-are-left"

    def judge(self, case: Case) -> Finding:
        left = case.standing.budget.tool_calls
        return Finding(self.name, "" if left > 5 else "engine_denied", "counts what is left")


@pytest.mark.parametrize("tool", [ALLOWED, LONG], ids=["light", "long"])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_engine_that_counts_is_shown_what_is_left_for_each_call(place: Place, tool: ToolCall, at_once: bool) -> None:
    with Service(place, engines=[NativeEngine(), _WhileManyAreLeft()]) as service:
        name = service.start(max_tool_calls=10).session.id
        if at_once:
            answers = _together(service, *[Evaluate(name, tool)] * 20)
        else:
            answers = [service.call(name, tool) for _ in range(20)]
        assert sum(answer.permits for answer in answers) == 5
        assert {_code(answer) for answer in answers if not answer.permits} == {"engine_denied"}
        assert service.session(name).used == 5


# Time


def test_a_session_is_over_when_its_passport_is_by_the_clock_on_the_wall(service: Service) -> None:
    token = service.issue(mission(max_duration_s=600), lifetime_s=600)
    name = service.run(StartSession(token.token)).session.id
    service.clock.jump_s(599)
    assert service.call(name).permits
    service.clock.jump_s(1)  # as after a sleep, in which the other clock may have stood still
    assert _code(service.call(name)) == "duration_exceeded"
    assert service.session(name).state == "expired"
    service.clock.jump_s(-600)
    assert _code(service.call(name)) == "duration_exceeded"


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this machine has one such clock only")
def test_the_clock_that_nobody_can_set_goes_on_while_the_machine_sleeps() -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    shown = SystemClock().now().mono_ms
    assert before <= shown <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


# Asking again


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (EndSession, "session_ended"),
        (RevokeSession, "session_revoked"),
        (RevokePassport, "passport_revoked"),
        (lambda _: KillSwitch(on=True), "kill_switch"),
    ],
    ids=["end", "revoke session", "revoke passport", "kill switch"],
)
def test_a_call_that_is_asked_again_permits_only_while_its_session_is_active(
    place: Place, case: Callable[[str], UseCase[Any]], code: str
) -> None:
    with Service(place) as service:
        name = service.start(max_tool_calls=1).session.id
        first, again = service.call(name, key="key-1"), service.call(name, key="key-1")
        assert (first.permits, again.permits, again.repeated, again.refusal) == (True, True, True, "")
        service.run(case(name))
        late = service.call(name, key="key-1")
        assert late.receipt.token == first.receipt.token
        assert (late.permits, late.repeated, late.refusal) == (False, True, code)
        assert len(service.tokens(name)) == 1


def test_a_call_that_is_asked_again_when_the_time_is_over_does_not_permit(service: Service) -> None:
    name = service.start().session.id
    first = service.call(name, key="key-1")
    service.clock.pass_s(901)
    late = service.call(name, key="key-1")
    assert (late.receipt.token, late.permits, late.refusal) == (first.receipt.token, False, "duration_exceeded")


# Neighbours, and passports that share an id


def test_a_reason_with_half_a_character_harms_no_neighbour(place: Place) -> None:
    with Service(place) as service:
        name = service.start().session.id
        refused, answer = _together(service, RevokePassport("pass:aaaa", "\ud800"), Evaluate(name, ALLOWED))
        assert isinstance(refused, FieldInvalid)
        assert (refused.code, refused.place) == ("field_invalid", "$.reason")
        assert answer.permits


@pytest.mark.parametrize(
    "change", [{"agent_id": "agent:other"}, {"resource_scope": ("**",)}, {"max_tool_calls": 900}], ids=str
)
def test_another_passport_of_the_same_id_is_a_conflict(service: Service, change: dict[str, JSON]) -> None:
    first = service.issue()
    name = service.run(StartSession(first.token)).session.id
    key = service.governor.context.keys.signing(service.reader.keys()[-1].kid)
    now = service.clock.now().wall_s
    other = issue_passport(mission(**change), key, issuer=first.issuer, jti=first.jti, now=now)
    with pytest.raises(RequestConflict) as caught:
        service.run(StartSession(other.token))
    assert caught.value.code == "request_conflict"
    again = service.run(StartSession(first.token))
    assert (again.existing, again.passport.token) == (True, first.token)
    assert service.session(name).limit == first.mission.max_tool_calls


def test_a_kill_switch_that_was_stopped_half_way_kills_all_the_same(service: Service) -> None:
    name = service.start().session.id
    steps = steps_of(KillSwitch(on=True), service.governor.context)
    turn = next(steps)
    assert isinstance(turn, Commit)
    service.ledger.run(turn.work, alone=True)
    steps.close()
    assert not service.call(name).permits
    service.run(KillSwitch(on=False))
    assert _code(service.call(name)) == "kill_switch"
    assert service.call(service.start().session.id).permits


def test_a_late_kill_leaves_alone_what_was_started_after_the_release(service: Service) -> None:
    service.start()
    steps = steps_of(KillSwitch(on=True), service.governor.context)
    turn = next(steps)
    assert isinstance(turn, Commit)
    revoked = service.ledger.run(turn.work, alone=True)
    service.run(KillSwitch(on=False))
    fresh = service.start().session.id
    closing = steps.send(revoked)
    assert isinstance(closing, Commit)
    service.ledger.run(closing.work, alone=True)
    assert service.call(fresh).permits


def test_a_revocation_that_was_stopped_half_way_reaches_the_whole_lineage(service: Service) -> None:
    parent = service.start().session.id
    child = service.start_delegate(parent, "started", max_tool_calls=2)
    waiting = service.delegate(parent, "waiting", max_tool_calls=2)
    steps = steps_of(RevokePassport(parent), service.governor.context)
    keep = next(steps)
    assert isinstance(keep, Commit)
    service.ledger.run(keep.work)
    steps.close()
    assert _code(service.call(child)) == "passport_revoked"
    assert not service.delegate(child, "further", max_tool_calls=1).permits
    assert waiting.passport is not None
    with pytest.raises(PassportRevoked):
        service.run(StartSession(waiting.passport))
    again = service.delegate(parent, "waiting", max_tool_calls=2)
    assert (again.permits, again.refusal) == (False, "passport_revoked")


class _Panic(BaseException):
    """What no library should raise, and some do."""


class _Panicking:
    name = "panicking"

    def judge(self, case: Case) -> Finding:  # noqa: ARG002
        raise _Panic


def test_an_engine_that_panics_is_a_denial_and_nobody_else_notices() -> None:
    with Service(engines=[NativeEngine(), _Panicking()]) as service:
        name = service.start().session.id
        assert _code(service.call(name)) == "engine_failed"
        assert _code(service.call(name)) == "engine_failed"
