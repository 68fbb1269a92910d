"""Deciding on a call: every answer has its receipt, only a permission consumes, and nothing a client sends stops it."""

import json
import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.claims.canonical import ExactForm, canonicalize, canonicalize_arguments, sha256_hex
from remit.claims.jws import RECEIPT
from remit.claims.receipt import MAX_TOOL, LineageBudgetDelta, Receipt
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, InputError, LedgerUnavailable, RequestConflict
from remit.governor.evaluate import MAX_IDEMPOTENCY_KEY, Evaluate, Evidence
from remit.governor.revoke import KillSwitch, RevokePassport, RevokeSession
from remit.governor.sessions import EndSession
from remit.policy.call import ToolCall
from remit.policy.cedar import CedarEngine
from remit.policy.engines import DENIALS, Case, Finding
from remit.policy.evidence import EFFECTS_MEASUREMENT
from remit.policy.native import NativeEngine
from tests.governor.results import DIGEST
from tests.governor.world import ALLOWED, FORBIDDEN, MISSION, Service, values

LIMIT = MISSION.max_tool_calls


def _says(service: Service, name: str, call: ToolCall = ALLOWED) -> Receipt:
    return service.call(name, call).receipt.claims


def test_a_permission_consumes_one_call_and_says_so(service: Service) -> None:
    name = service.start().session.id
    answer = service.call(name)
    claims = answer.receipt.claims
    assert answer.permits
    assert (claims.verdict, claims.tool, claims.action_class) == ("compliant", "read_file", "read")
    assert claims.budget_remaining == {"tool_calls": LIMIT - 1, "duration_s": 900}
    assert claims.budget_delta == LineageBudgetDelta(
        operation="consume",
        resource="tool_calls",
        amount=1,
        unit="invocations",
        remaining_after=LIMIT - 1,
        used_total=1,
        reserved_total=0,
    )


def test_the_receipt_binds_the_call_to_the_session(service: Service) -> None:
    started = service.start()
    claims = _says(service, started.session.id)
    assert (claims.grant_id, claims.actor) == (started.session.id, MISSION.agent_id)
    assert (claims.trace_id, claims.run_nonce) == (started.session.trace_id, started.session.run_nonce)
    assert claims.arguments_hash == sha256_hex(canonicalize(dict(ALLOWED.arguments)))
    assert claims.step_id == "step:000001"
    assert claims.iss == claims.verifier_id == started.session.verifier


DENIED = {
    "tool_forbidden": FORBIDDEN,
    "tool_not_allowed": ToolCall("format_disk", {}),
    "out_of_scope": ToolCall("read_file", {"path": "/etc/passwd"}),
    "shell_unparsed": ToolCall("Bash", {"command": "echo 'unfinished"}),
    "target_unknown": ToolCall("Bash", {"command": "cat $SOMEWHERE"}),
}


@pytest.mark.parametrize("code", DENIED)
def test_a_denial_has_a_receipt_and_consumes_nothing(service: Service, code: str) -> None:
    name = service.start().session.id
    answer = service.call(name, DENIED[code])
    claims = answer.receipt.claims
    assert not answer.permits
    assert answer.remedy is not None
    assert claims.internal_denial_code == code
    assert (claims.public_denial_reason, claims.verdict) == DENIALS[code]
    assert not claims.budget_delta
    assert claims.budget_remaining["tool_calls"] == LIMIT
    assert service.session(name).length == 1


def test_a_side_effect_that_is_not_allowed_is_denied(service: Service) -> None:
    name = service.start(allowed_side_effect_classes=("none",)).session.id
    claims = _says(service, name, ToolCall("Bash", {"command": "touch notes.txt"}))
    assert claims.internal_denial_code == "side_effect_not_allowed"


def test_the_last_call_of_a_budget_is_permitted_and_the_next_is_not(service: Service) -> None:
    name = service.start(max_tool_calls=2).session.id
    assert [service.call(name).permits for _ in range(3)] == [True, True, False]
    claims = service.claims(name)[-1]
    assert (claims.public_denial_reason, claims.internal_denial_code) == ("budget_exhausted", "tool_calls_exhausted")
    assert claims.budget_remaining["tool_calls"] == 0


def test_a_budget_of_nothing_permits_nothing(service: Service) -> None:
    name = service.start(max_tool_calls=0).session.id
    assert _says(service, name).internal_denial_code == "tool_calls_exhausted"


def test_calls_that_a_delegate_holds_are_not_the_parents_to_use(service: Service) -> None:
    name = service.start(max_tool_calls=2).session.id
    service.start_delegate(name, max_tool_calls=2)
    assert _says(service, name).internal_denial_code == "lineage_budget_exhausted"


def _too_late(service: Service, name: str) -> None:
    service.clock.pass_s(MISSION.max_duration_s)


FINAL: dict[str, tuple[Callable[[Service, str], object], str, str]] = {
    "ended": (lambda service, name: service.run(EndSession(name)), "ended", "revoked"),
    "expired": (_too_late, "expired", "budget_exhausted"),
    "passport revoked": (lambda service, name: service.run(RevokePassport(name)), "revoked", "revoked"),
    "session revoked": (lambda service, name: service.run(RevokeSession(name)), "revoked", "revoked"),
    "killed": (lambda service, _name: service.run(KillSwitch(on=True)), "revoked", "revoked"),
}
CODES = {
    "ended": "session_ended",
    "expired": "duration_exceeded",
    "passport revoked": "passport_revoked",
    "session revoked": "session_revoked",
    "killed": "kill_switch",
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("how", FINAL)
def test_a_call_in_a_final_state_is_denied_with_a_receipt(service: Service, how: str, restarted: bool) -> None:
    finish, state, public = FINAL[how]
    name = service.start().session.id
    service.call(name)
    finish(service, name)
    if restarted:
        service.restart()
    claims = _says(service, name)
    assert (claims.public_denial_reason, claims.internal_denial_code) == (public, CODES[how])
    assert claims.budget_remaining == {"tool_calls": LIMIT - 1, "duration_s": 0}
    assert (service.session(name).state, service.session(name).length) == (state, 2)


def test_the_state_of_a_session_comes_before_everything_else(service: Service) -> None:
    name = service.start(max_tool_calls=0).session.id
    service.run(EndSession(name))
    assert _says(service, name, FORBIDDEN).internal_denial_code == "session_ended"


def test_the_budget_comes_before_the_tool(service: Service) -> None:
    name = service.start(max_tool_calls=0).session.id
    assert _says(service, name, FORBIDDEN).internal_denial_code == "tool_calls_exhausted"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("call", [ALLOWED, FORBIDDEN])
def test_a_call_repeated_under_its_key_gets_the_same_bytes(service: Service, call: ToolCall, restarted: bool) -> None:
    name = service.start().session.id
    first = service.call(name, call, "key-1")
    if restarted:
        service.restart()
    again = service.call(name, call, "key-1")
    assert (first.repeated, again.repeated) == (False, True)
    assert again.receipt.token == first.receipt.token
    assert again.permits == first.permits
    assert service.session(name).length == 1


def test_a_repeated_permission_stays_one_after_the_session_has_ended(service: Service) -> None:
    name = service.start().session.id
    first = service.call(name, key="key-1")
    service.run(EndSession(name))
    assert service.call(name, key="key-1").receipt.token == first.receipt.token


OTHER_CALLS = {
    "another tool": ToolCall("Bash", ALLOWED.arguments),
    "other arguments": ToolCall("read_file", {"path": "/work/project/LICENSE"}),
    "more arguments": ToolCall("read_file", {**ALLOWED.arguments, "limit": 5}),
}


@pytest.mark.parametrize("other", OTHER_CALLS)
def test_another_call_under_a_used_key_is_a_conflict(service: Service, other: str) -> None:
    name = service.start().session.id
    service.call(name, key="key-1")
    with pytest.raises(RequestConflict) as caught:
        service.call(name, OTHER_CALLS[other], "key-1")
    assert caught.value.code == "request_conflict"
    assert service.session(name).length == 1


def test_a_key_belongs_to_its_session(service: Service) -> None:
    one, two = service.start().session.id, service.start().session.id
    service.call(one, key="key-1")
    assert not service.call(two, FORBIDDEN, "key-1").repeated


def test_the_order_of_arguments_makes_no_other_call(service: Service) -> None:
    name = service.start().session.id
    service.call(name, ToolCall("read_file", {"path": "/work/project/a", "limit": 1}), "key-1")
    assert service.call(name, ToolCall("read_file", {"limit": 1, "path": "/work/project/a"}), "key-1").repeated


def test_a_key_has_a_limit(service: Service) -> None:
    name = service.start().session.id
    assert service.call(name, key="k" * MAX_IDEMPOTENCY_KEY).permits
    with pytest.raises(FieldInvalid) as caught:
        service.call(name, key="k" * (MAX_IDEMPOTENCY_KEY + 1))
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.idempotency_key")


def test_a_tool_without_a_name_is_refused_by_the_name_of_the_member(service: Service) -> None:
    name = service.start().session.id
    with pytest.raises(FieldInvalid) as caught:
        service.call(name, ToolCall("", {}))
    assert (caught.value.code, caught.value.place) == ("field_invalid", "$.tool_name")
    assert service.session(name).length == 0


UNWRITABLE: dict[str, object] = {
    "not a number": math.nan,
    "infinity": math.inf,
    "half a character": "\ud800",
    "too large": 10**64,
    "no JSON at all": object(),
}


@pytest.mark.parametrize("what", UNWRITABLE)
@pytest.mark.parametrize("tool", ["read_file", "unknown_tool", "Bash"])
def test_arguments_without_a_canonical_form_are_refused_and_leave_nothing(
    service: Service, what: str, tool: str
) -> None:
    name = service.start().session.id
    with pytest.raises(InputError) as caught:
        service.call(name, ToolCall(tool, values(UNWRITABLE[what])))
    assert caught.value.code == "not_canonicalizable"
    assert service.session(name).length == 0


_ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "command", "id", "amount", "url", "query", "ids", "cwd"]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**64) + 1, 10**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=10)
        | st.integers(2**53, 10**64 - 1).map(lambda number: json.dumps({"command": "ls", "n": number})),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(arguments=_ARGUMENTS, tool=st.sampled_from(["read_file", "Bash", "mcp__db__query", "send_email", "unknown"]))
def test_whatever_integers_of_up_to_64_digits_arguments_hold_the_call_gets_a_receipt(
    arguments: dict[str, JSON], tool: str
) -> None:
    with Service(engines=[NativeEngine(), CedarEngine("permit(principal, action, resource);")]) as service:
        name = service.start(allowed_tools=("*",)).session.id
        answer = service.call(name, ToolCall(tool, arguments), key="key")
        claims = answer.receipt.claims
        form = canonicalize_arguments(arguments)
        assert claims.arguments_hash == sha256_hex(form)
        is_jcs = claims.invocation_digest.canonicalization == "jcs-rfc8785"
        assert is_jcs != isinstance(form, ExactForm)
        assert service.call(name, ToolCall(tool, arguments), key="key").repeated


def test_integers_that_are_one_double_are_different_calls(service: Service) -> None:
    name = service.start(allowed_tools=("*",)).session.id
    one, other = (ToolCall("unknown", {"n": number}) for number in (2**53, 2**53 + 1))
    hashes = {service.call(name, call).receipt.claims.arguments_hash for call in (one, other)}
    assert len(hashes) == 2
    service.call(name, one, key="key")
    with pytest.raises(RequestConflict):
        service.call(name, other, key="key")


def test_a_tool_name_with_half_a_character_is_refused_and_leaves_nothing(service: Service) -> None:
    name = service.start().session.id
    with pytest.raises(InputError) as caught:
        service.call(name, ToolCall("read\udc00", {}))
    assert caught.value.code == "field_invalid"
    assert service.session(name).length == 0


def _nested(depth: int) -> object:
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    return value


HUGE: dict[str, ToolCall] = {
    "tool name": ToolCall("t" * 200_000, {}),
    "tool name that JSON escapes": ToolCall("\x01" * 200_000, {}),
    "target": ToolCall("read_file", {"path": "/work/project/" + "a" * 200_000}),
    "target in another script": ToolCall("read_file", {"path": "/etc/" + "\U0001f600" * 100_000}),
    "target that JSON escapes": ToolCall("read_file", {"path": "/etc/" + "\x01" * 100_000}),
    "arguments": ToolCall("read_file", {"path": "/work/project/a", "text": "x" * 2_000_000}),
    "many arguments": ToolCall("read_file", {f"path{n}": f"/etc/{n}" for n in range(2_000)}),
    "command": ToolCall("Bash", {"command": "cat " + " ".join(f"/etc/{n}" for n in range(5_000))}),
    "everything that JSON escapes": ToolCall("\x02" * 9_000, {"path": "/\x01" * 9_000}),
}


@pytest.mark.parametrize("what", HUGE)
def test_a_huge_call_still_gets_a_receipt_that_fits(service: Service, what: str) -> None:
    name = service.start().session.id
    answer = service.call(name, HUGE[what])
    claims = answer.receipt.claims
    assert len(answer.receipt.token) <= RECEIPT.max_length == 65_535
    assert len(claims.tool) <= MAX_TOOL
    assert 1 <= len(claims.target) <= 2048
    assert 1 <= len(claims.reason) <= 4096


def test_long_tool_names_that_begin_alike_stay_apart(service: Service) -> None:
    name = service.start().session.id
    one, two = _says(service, name, ToolCall("t" * 900 + "1", {})), _says(service, name, ToolCall("t" * 900 + "2", {}))
    assert one.tool != two.tool
    assert one.tool[:200] == two.tool[:200]


def test_arguments_may_be_nested(service: Service) -> None:
    name = service.start().session.id
    call = ToolCall("read_file", {**ALLOWED.arguments, **values(_nested(20))})
    assert service.call(name, call).permits


def test_a_shell_command_is_recorded_with_its_effects(service: Service) -> None:
    name = service.start().session.id
    claims = _says(service, name, ToolCall("Bash", {"command": "grep -rn TODO src | head -20 > todo.txt"}))
    assert claims.verdict == "compliant"
    assert isinstance(claims.measurements, dict)
    measured = claims.measurements[EFFECTS_MEASUREMENT]
    assert (measured.kind, measured.status) == ("custom", "success")
    assert measured.digest
    assert measured.digest.canonicalization == "jcs-rfc8785"


def test_a_command_that_cannot_be_told_says_so_in_its_measurement(service: Service) -> None:
    name = service.start().session.id
    claims = _says(service, name, DENIED["target_unknown"])
    assert isinstance(claims.measurements, dict)
    assert claims.measurements[EFFECTS_MEASUREMENT].status == "fail"


class _Saying:
    """An engine that says what it is told."""

    def __init__(self, name: str, code: str = "") -> None:
        self.name = name
        self._code = code

    def judge(self, case: Case) -> Finding:  # noqa: ARG002 - it says the same to all
        return Finding(self.name, self._code, f"{self.name} says so")


class _Failing:
    """An engine that fails."""

    name = "failing"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def judge(self, case: Case) -> Finding:  # noqa: ARG002 - it says the same to all
        raise self._error


def test_every_engine_that_ran_is_recorded_with_its_time() -> None:
    with Service(engines=[NativeEngine(), _Saying("second")]) as service:
        claims = _says(service, service.start().session.id)
        assert [(it.backend, it.decision, it.eval_ms) for it in claims.policy_decisions] == [
            ("native", "permit", 0.0),
            ("second", "permit", 0.0),
        ]


def test_a_further_engine_overrides_with_its_denial() -> None:
    with Service(engines=[NativeEngine(), _Saying("second", "engine_denied")]) as service:
        claims = _says(service, service.start().session.id)
        assert (claims.public_denial_reason, claims.internal_denial_code) == ("policy_denied", "engine_denied")
        assert [it.decision for it in claims.policy_decisions] == ["permit", "deny"]


@pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), SystemExit(1), LedgerUnavailable("x")])
def test_an_engine_that_fails_denies_with_a_receipt(error: BaseException) -> None:
    with Service(engines=[NativeEngine(), _Failing(error)]) as service:
        name = service.start().session.id
        claims = _says(service, name)
        assert claims.internal_denial_code == "engine_failed"
        assert service.session(name).used == 0


def test_no_engine_at_all_denies() -> None:
    with Service(engines=[]) as service:
        assert _says(service, service.start().session.id).internal_denial_code == "engine_failed"


def test_an_observed_call_carries_the_digest_of_its_content(service: Service) -> None:
    name = service.start().session.id
    evidence = Evidence(content=DIGEST, content_class="page", sensitivity="internal", instruction_bearing=False)
    claims = service.run(Evaluate(name, ALLOWED, evidence=evidence)).receipt.claims
    assert (claims.result_hash, claims.content_class) == (DIGEST, "page")
    assert (claims.sensitivity, claims.instruction_bearing) == ("internal", False)
    assert [it.backend for it in claims.policy_decisions] == ["observation", "native"]


def test_hidden_activity_is_insufficient_evidence(service: Service) -> None:
    name = service.start().session.id
    call = ToolCall("read_file", {**ALLOWED.arguments, "hidden_provider_activity": True})
    answer = service.run(Evaluate(name, call, evidence=Evidence()))
    assert not answer.permits
    assert answer.receipt.claims.verdict == "insufficient_evidence"
    assert answer.receipt.claims.internal_denial_code == "provider_side_activity"


@pytest.mark.parametrize("fault", ["lost", "unknown"])
def test_no_decision_is_given_while_the_ledger_cannot_be_written(service: Service, fault: str) -> None:
    name = service.start().session.id
    service.call(name)
    setattr(service.weather, fault, True)
    with pytest.raises(LedgerUnavailable) as caught:
        service.call(name, key="key-1")
    assert caught.value.code == "ledger_unavailable"
    again = service.call(name, key="key-1")
    assert again.repeated == (fault == "unknown")
    assert service.session(name).used == 2


def test_a_call_that_was_lost_consumes_nothing(service: Service) -> None:
    name = service.start().session.id
    service.weather.lost = True
    with pytest.raises(LedgerUnavailable):
        service.call(name)
    assert service.session(name).used == 0
    assert _says(service, name).step_id == "step:000001"


def test_a_call_judged_before_the_session_ended_is_judged_again(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = one.start().session.id
    one.call(name)
    one.weather.meanwhile = lambda: two.run(EndSession(name))
    assert _says(one, name).internal_denial_code == "session_ended"


def test_the_last_call_is_given_to_one_of_two_processes(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = one.start(max_tool_calls=1).session.id
    others: list[bool] = []
    one.weather.meanwhile = lambda: others.append(two.call(name).permits)
    assert _says(one, name).internal_denial_code == "tool_calls_exhausted"
    assert others == [True]


def test_a_key_used_in_two_processes_at_once_counts_once(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = one.start().session.id
    others: list[str] = []
    one.weather.meanwhile = lambda: others.append(two.call(name, key="key-1").receipt.token)
    answer = one.call(name, key="key-1")
    assert answer.repeated
    assert [answer.receipt.token] == others
    assert one.session(name).used == 1


def test_an_engine_is_only_asked_for_its_judgement() -> None:
    # An engine from elsewhere may lack a name; that is no reason to go without its answer.
    nameless = SimpleNamespace(judge=lambda _case: Finding("", "", "fine"))
    with Service(engines=[NativeEngine(), nameless]) as service:
        assert _says(service, service.start().session.id).policy_decisions[1].backend == "unnamed"


def test_a_repeated_call_is_found_under_the_key_that_another_process_has_changed_to(
    pair: tuple[Service, Service],
) -> None:
    one, two = pair
    name = one.start().session.id
    two.call(name)
    one.rotate()
    first = one.call(name, key="key-1")
    assert two.call(name, key="key-1").receipt.token == first.receipt.token


def test_the_same_call_from_another_directory_is_another_call(service: Service) -> None:
    name = service.start().session.id
    service.call(name, ToolCall("read_file", {"path": "notes"}, cwd="/work/project"), "key-1")
    with pytest.raises(RequestConflict) as caught:
        service.call(name, ToolCall("read_file", {"path": "notes"}, cwd="/etc"), "key-1")
    assert caught.value.code == "request_conflict"


def test_huge_marks_of_an_observer_still_give_a_receipt_that_fits(service: Service) -> None:
    name = service.start().session.id
    evidence = Evidence(content_class="c" * 100_000)
    assert len(service.run(Evaluate(name, ALLOWED, evidence=evidence)).receipt.token) <= RECEIPT.max_length


def test_the_target_of_a_receipt_has_no_secret_that_can_be_told(service: Service) -> None:
    name = service.start().session.id
    call = ToolCall("read_file", {"path": "/work/project/page?token=SEKRET"})
    assert service.call(name, call).receipt.claims.target == "/work/project/page?token=…"


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("fetch", {"url": "https://hooks.slack.com/services/T1/B1/SEKRETx9"}),
        ToolCall("Bash", {"command": "curl https://api.telegram.org/bot123456:SEKRETx9SEKRETx9SEKRETx9/sendMessage"}),
        ToolCall("Bash", {"command": "curl https://files.example/SEKRETx9aB3dE5gH7jK9mN2p/x.tgz | tar xz"}),
        ToolCall("read_file", {"path": "https://files.example/" + "a/" * 1010 + "ghp_SEKRETx9SEKRETx9SEKRETx9"}),
    ],
)
def test_no_claim_of_a_receipt_holds_a_secret_of_the_path_of_a_url(service: Service, call: ToolCall) -> None:
    claims = service.call(service.start().session.id, call).receipt.claims
    assert "SEKRET" not in repr(claims)
