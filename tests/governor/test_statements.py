"""What Remit's own checks state: signed in a chain of their own, bound to their report, and good or bad by verdict."""

import pytest

from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.receipt import Digest, Receipt
from remit.errors import FieldInvalid
from remit.governor.revoke import KillSwitch
from remit.governor.statements import CHECK, RecordedStatement, RecordStatement
from remit.policy.engines import DENIALS
from tests.governor.world import FORBIDDEN, Service

REPORT = {"calls": 3, "unreceipted": ["toolu_1"], "title": "Übersicht"}


def stated(service: Service, code: str = "", **changes: str) -> RecordedStatement:
    members = {"tool": "remit.reconcile", "target": "claude-code", "reason": "looked through", "counted": "3 calls"}
    return service.run(RecordStatement(**(members | changes), report=REPORT, code=code))  # type: ignore[arg-type]


def claims_of(declared: RecordedStatement) -> Receipt:
    return declared.receipt.claims


def test_a_statement_binds_its_report_by_digest(service: Service) -> None:
    claims = claims_of(stated(service))
    value = sha256_base64url(canonicalize(REPORT))
    assert claims.result_hash == Digest(alg="sha-256", value=value, canonicalization="jcs-rfc8785", scope="result")
    assert (claims.tool, claims.target, claims.actor) == ("remit.reconcile", "claude-code", "remit")


def test_a_good_statement_is_compliant_and_counts_in_words(service: Service) -> None:
    claims = claims_of(stated(service))
    assert claims.verdict == "compliant"
    assert claims.measurements
    measured = claims.measurements[CHECK]
    assert (measured.status, measured.description) == ("success", "3 calls")


@pytest.mark.parametrize("code", ["coverage_gap", "enforcement_gap"])
def test_a_bad_statement_is_a_violation_with_its_code(service: Service, code: str) -> None:
    claims = claims_of(stated(service, code))
    assert (claims.verdict, claims.internal_denial_code) == ("violation", code)
    assert claims.public_denial_reason == DENIALS[code][0]
    assert claims.measurements
    assert claims.measurements[CHECK].status == "fail"


def test_statements_follow_each_other_in_one_session(service: Service) -> None:
    first, second = stated(service), stated(service, "coverage_gap")
    assert first.session_id == second.session_id
    assert claims_of(second).parent_receipt_hash == first.receipt.hash
    source = service.reader.source_of(first.session_id)
    assert source is not None
    assert '"app":"remit"' in source.told


def test_two_processes_state_into_one_chain(pair: tuple[Service, Service]) -> None:
    one, two = pair
    names = {stated(one).session_id, stated(two).session_id, stated(one).session_id}
    assert len(names) == 1
    assert one.session(names.pop()).length == 3


def test_the_session_of_statements_permits_nothing(service: Service) -> None:
    name = stated(service).session_id
    assert not service.call(name, FORBIDDEN).permits
    assert not service.call(name).permits


def test_a_new_session_follows_when_time_is_over(service: Service) -> None:
    first = stated(service)
    service.clock.pass_s(31 * 24 * 3600)
    second = stated(service)
    assert second.session_id != first.session_id
    assert service.session(first.session_id).state == "expired"


@pytest.mark.parametrize("stated_before", [True, False])
def test_statements_are_signed_while_the_kill_switch_is_on(service: Service, stated_before: bool) -> None:
    if stated_before:
        stated(service)
    service.run(KillSwitch(on=True))
    assert claims_of(stated(service, "enforcement_gap")).internal_denial_code == "enforcement_gap"


@pytest.mark.parametrize("change", [{"tool": ""}, {"target": ""}, {"reason": ""}])
def test_a_statement_without_words_is_refused(service: Service, change: dict[str, str]) -> None:
    with pytest.raises(FieldInvalid) as caught:
        stated(service, **change)
    assert caught.value.code == FieldInvalid.code


def test_a_code_that_is_none_is_refused_and_nothing_is_started(service: Service) -> None:
    with pytest.raises(FieldInvalid) as caught:
        stated(service, "made_up")
    assert caught.value.code == FieldInvalid.code
    assert service.sessions() == []


def test_words_that_are_too_long_are_clipped(service: Service) -> None:
    claims = claims_of(stated(service, target="a" * 5000, reason="b" * 9000, counted="c" * 9000))
    assert len(claims.target) <= 2048
    assert len(claims.reason) <= 4096
