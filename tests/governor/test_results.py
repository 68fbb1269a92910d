"""One decision has one outcome, in the same chain; an outcome of a denied call is a violation of its own."""

import pytest

from remit.errors import LedgerUnavailable, ReceiptNotFound, RequestConflict
from remit.governor.results import RecordResult
from remit.governor.sessions import EndSession
from tests.governor.results import DIGEST, digest_of
from tests.governor.world import FORBIDDEN, Service


def test_an_outcome_names_its_decision_by_id_and_hash(service: Service) -> None:
    name = service.start().session.id
    decision = service.call(name).receipt
    recorded = service.run(RecordResult(name, decision.claims.receipt_id, DIGEST))
    claims = recorded.receipt.claims
    assert not recorded.repeated
    assert (claims.tool, claims.verdict, claims.result_hash) == ("remit.result", "compliant", DIGEST)
    assert claims.evidence_proof_ref == {
        "type": "remit.decision",
        "receipt_id": decision.claims.receipt_id,
        "receipt_hash": decision.hash,
    }
    assert claims.parent_receipt_hash == decision.hash


def test_an_outcome_consumes_nothing(service: Service) -> None:
    name = service.start().session.id
    decision = service.call(name).receipt.claims
    claims = service.run(RecordResult(name, decision.receipt_id, DIGEST)).receipt.claims
    assert claims.budget_remaining == decision.budget_remaining
    assert service.session(name).used == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_the_same_outcome_again_is_the_same_receipt(service: Service, restarted: bool) -> None:
    name = service.start().session.id
    case = RecordResult(name, service.call(name).receipt.claims.receipt_id, DIGEST)
    first = service.run(case)
    if restarted:
        service.restart()
    again = service.run(case)
    assert again.repeated
    assert again.receipt.token == first.receipt.token
    assert service.session(name).length == 2


def test_another_outcome_of_the_same_call_is_refused(service: Service) -> None:
    name = service.start().session.id
    decision = service.call(name).receipt.claims.receipt_id
    service.run(RecordResult(name, decision, DIGEST))
    with pytest.raises(RequestConflict) as caught:
        service.run(RecordResult(name, decision, digest_of(b"another")))
    assert caught.value.code == "request_conflict"
    assert service.session(name).length == 2


def test_the_outcome_of_a_denied_call_is_a_violation(service: Service) -> None:
    name = service.start().session.id
    decision = service.call(name, FORBIDDEN).receipt.claims
    claims = service.run(RecordResult(name, decision.receipt_id, DIGEST)).receipt.claims
    assert (claims.verdict, claims.public_denial_reason) == ("violation", "policy_denied")
    assert claims.internal_denial_code == "denied_but_run"
    assert claims.side_effect_class == decision.side_effect_class


def test_a_receipt_of_another_session_is_not_found(service: Service) -> None:
    one, two = service.start().session.id, service.start().session.id
    decision = service.call(one).receipt.claims.receipt_id
    with pytest.raises(ReceiptNotFound) as caught:
        service.run(RecordResult(two, decision, DIGEST))
    assert caught.value.code == "receipt_not_found"


def test_a_receipt_that_does_not_exist_is_not_found(service: Service) -> None:
    name = service.start().session.id
    with pytest.raises(ReceiptNotFound) as caught:
        service.run(RecordResult(name, "rcpt:00000000000000000000000000000000", DIGEST))
    assert caught.value.code == "receipt_not_found"
    assert service.session(name).length == 0


def test_an_outcome_that_comes_after_the_end_is_still_recorded(service: Service) -> None:
    name = service.start().session.id
    decision = service.call(name).receipt.claims.receipt_id
    service.run(EndSession(name))
    claims = service.run(RecordResult(name, decision, DIGEST)).receipt.claims
    assert claims.verdict == "compliant"
    assert claims.budget_remaining["duration_s"] == 0
    assert service.session(name).state == "ended"


def test_the_outcome_of_an_unknown_commit_is_recorded_once(service: Service) -> None:
    name = service.start().session.id
    case = RecordResult(name, service.call(name).receipt.claims.receipt_id, DIGEST)
    service.weather.unknown = True
    with pytest.raises(LedgerUnavailable) as caught:
        service.run(case)
    assert caught.value.code == "ledger_unavailable"
    assert service.run(case).repeated
    assert service.session(name).length == 2


def test_an_outcome_is_recorded_under_the_key_that_another_process_has_changed_to(
    pair: tuple[Service, Service],
) -> None:
    one, two = pair
    name = one.start().session.id
    two.call(name)
    one.rotate()
    decision = one.call(name).receipt.claims.receipt_id
    assert two.run(RecordResult(name, decision, DIGEST)).receipt.claims.verdict == "compliant"
