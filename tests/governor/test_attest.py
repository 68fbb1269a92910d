"""Attesting: counts follow from the receipts, a chain is verified once, and a break is said and contained."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec import structs

from remit.claims.attestation import verify_attestation, verify_session
from remit.claims.bookmark import sign_bookmark, verify_bookmark
from remit.claims.receipt import Digest
from remit.errors import AttestationMismatch, LedgerUnavailable
from remit.governor.attest import Attest, AttestResult, verify_stored
from remit.governor.results import RecordResult
from remit.governor.revoke import RevokeSession
from remit.governor.sessions import EndSession, GetSession, StartSession
from tests.governor.stepping import Aside, Commit, steps_of
from tests.governor.world import ALLOWED, FORBIDDEN, Service
from tests.world import STRANGER


def _busy(service: Service, calls: int = 6) -> str:
    name = service.start().session.id
    for number in range(calls):
        service.call(name, FORBIDDEN if number % 3 == 2 else ALLOWED)
    return name


def _fresh(service: Service, name: str) -> int:
    """Return how many receipts the next attestation will verify."""
    return verify_stored(service.reader, service.session(name), service.keyring()).fresh


def test_an_attestation_counts_what_the_receipts_say(service: Service) -> None:
    name = _busy(service)
    attested = service.attest(name)
    claims = verify_session(attested.attestation.token, service.tokens(name), service.keyring())
    assert attested.fault is None
    assert claims == attested.attestation.claims
    assert claims.verdicts == {"compliant": 4, "violation": 2, "insufficient_evidence": 0}
    assert claims.tools == {"read_file": 4, "send_email": 2}
    assert claims.denials == {"policy_denied": 2}
    assert claims.budget_used == {"tool_calls": 4, "duration_s": 0}
    assert claims.chain_verified


def test_an_attestation_says_how_the_session_stands(service: Service) -> None:
    name = _busy(service, 1)
    service.clock.pass_s(100)
    claims = service.attest(name).attestation.claims
    assert (claims.state, claims.ended_at) == ("active", None)
    assert claims.budget_used["duration_s"] == 100
    service.clock.pass_s(50)
    ended = service.attest(name, end=True).attestation.claims
    assert (ended.state, ended.ended_at) == ("ended", "2026-09-21T14:15:50.000Z")
    assert service.session(name).state == "ended"


def test_attesting_finds_that_a_session_has_expired(service: Service) -> None:
    name = _busy(service, 1)
    service.clock.pass_s(900)
    assert service.attest(name).attestation.claims.state == "expired"


@pytest.mark.parametrize("started", [False, True])
def test_attesting_a_session_that_expires_with_its_delegates_finds_its_chain_whole(
    service: Service, started: bool
) -> None:
    name = _busy(service, 1)
    (service.start_delegate if started else service.delegate)(name, max_tool_calls=2)
    service.clock.pass_s(900)
    attested = service.attest(name)
    assert attested.fault is None
    assert (attested.attestation.claims.state, attested.attestation.claims.receipts) == ("expired", 3)


@pytest.mark.parametrize("end", [False, True])
def test_a_session_without_receipts_can_be_attested(service: Service, end: bool) -> None:
    name = service.start().session.id
    claims = service.attest(name, end=end).attestation.claims
    assert (claims.receipts, claims.first_receipt_id, claims.last_receipt_hash) == (0, None, None)
    assert claims.chain_verified


def test_what_comes_after_an_attestation_is_seen_by_whoever_compares(service: Service) -> None:
    name = _busy(service)
    token = service.attest(name).attestation.token
    service.call(name)
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(token, service.tokens(name), service.keyring())
    assert caught.value.code == "attestation_mismatch"


def test_attestations_are_kept_in_their_order(service: Service) -> None:
    name = _busy(service)
    tokens = [service.attest(name).attestation.token for _ in range(3)]
    assert service.reader.attestations(name) == tokens


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_attestation_verifies_only_what_is_new(service: Service, restarted: bool) -> None:
    name = _busy(service, 6)
    service.attest(name)
    service.call(name)
    service.call(name)
    if restarted:
        service.restart()
    assert _fresh(service, name) == 2
    attested = service.attest(name)
    assert attested.attestation.claims.receipts == 8
    verify_session(attested.attestation.token, service.tokens(name), service.keyring())


def test_what_is_verified_already_is_compared_and_not_verified_again(service: Service) -> None:
    name = _busy(service)
    service.attest(name)
    assert _fresh(service, name) == 0
    assert service.attest(name).attestation.claims.receipts == 6


@pytest.mark.parametrize("seq", [1, 3, 6])
def test_a_receipt_that_is_changed_after_it_was_attested_is_found_by_the_next_attestation(
    damaged: Service, seq: int
) -> None:
    name = _busy(damaged)
    assert damaged.attest(name).fault is None
    _tamper(damaged, name, seq, _flip)
    again = damaged.attest(name)
    assert again.fault is not None
    assert again.fault.index == seq - 1
    assert not again.attestation.claims.chain_verified


def test_chains_and_bookmarks_go_on_across_a_change_of_key(service: Service) -> None:
    name = _busy(service, 3)
    service.attest(name)
    service.rotate()
    service.call(name)
    assert _fresh(service, name) == 1
    attested = service.attest(name)
    verify_session(attested.attestation.token, service.tokens(name), service.keyring())


def _tamper(service: Service, name: str, seq: int, change: Callable[[str], str]) -> None:
    kept = service.shelf.chains[name][seq - 1]
    bad = kept._replace(token=change(kept.token))
    service.shelf.chains[name][seq - 1] = service.shelf.receipts[kept.receipt_id] = bad


@pytest.mark.parametrize("seq", [1, 3])
def test_a_receipt_that_is_missing_is_noticed_though_it_was_verified_before(damaged: Service, seq: int) -> None:
    name = _busy(damaged, 3)
    assert damaged.attest(name).fault is None
    del damaged.shelf.chains[name][seq - 1]
    assert not damaged.run(Attest(name)).attestation.claims.chain_verified


def test_a_last_receipt_that_was_exchanged_after_it_was_verified_is_noticed(damaged: Service) -> None:
    name = _busy(damaged, 3)
    assert damaged.attest(name).fault is None
    _tamper(damaged, name, 3, _flip)
    assert not damaged.run(Attest(name)).attestation.claims.chain_verified


def _flip(token: str) -> str:
    """Change one character of the payload."""
    header, payload, signature = token.split(".")
    middle = len(payload) // 2
    other = "A" if payload[middle] != "A" else "B"
    return f"{header}.{payload[:middle]}{other}{payload[middle + 1 :]}.{signature}"


def _assert_contained(service: Service, broken: str, attested: AttestResult) -> None:
    """Expect a statement that says where the chain breaks, and a quarantine of this session alone."""
    assert attested.fault is not None
    assert not attested.attestation.claims.chain_verified
    claims = service.call(broken).receipt.claims
    assert (claims.public_denial_reason, claims.internal_denial_code) == ("chain_invalid", "chain_broken")
    assert service.session(broken).state == "active"


@pytest.mark.parametrize("seq", [1, 3, 6])
def test_a_changed_receipt_is_attested_as_a_break_and_contained(damaged: Service, seq: int) -> None:
    broken, other = _busy(damaged), _busy(damaged)
    _tamper(damaged, broken, seq, _flip)
    attested = damaged.attest(broken)
    assert attested.fault is not None
    assert attested.fault.index == seq - 1
    stated = attested.attestation.claims
    assert (stated.receipts, stated.broken_at) == (damaged.reader.count(broken), seq)
    assert sum(stated.verdicts.values()) == seq - 1
    _assert_contained(damaged, broken, attested)
    assert damaged.call(other).permits
    assert damaged.attest(other).fault is None


def test_a_broken_chain_is_not_confirmed_by_its_own_attestation(damaged: Service) -> None:
    name = _busy(damaged)
    _tamper(damaged, name, 2, _flip)
    token = damaged.attest(name).attestation.token
    stated = verify_attestation(token, damaged.keyring())
    assert (stated.receipts, stated.broken_at) == (damaged.reader.count(name), 2)
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(token, damaged.tokens(name)[:1], damaged.keyring())
    assert caught.value.member == "chain_verified"


def test_a_receipt_that_was_taken_away_is_a_break(damaged: Service) -> None:
    name = _busy(damaged)
    del damaged.shelf.chains[name][3]
    _assert_contained(damaged, name, damaged.attest(name))


def test_a_tail_that_was_cut_off_is_a_break(damaged: Service) -> None:
    name = _busy(damaged)
    del damaged.shelf.chains[name][4:]
    attested = damaged.attest(name)
    assert attested.fault is not None
    assert attested.fault.fault == "head_mismatch"
    _assert_contained(damaged, name, attested)


def test_receipts_of_another_session_are_a_break(damaged: Service) -> None:
    name, other = _busy(damaged), _busy(damaged)
    damaged.shelf.chains[name] = list(damaged.shelf.chains[other])
    _assert_contained(damaged, name, damaged.attest(name))


def test_a_chain_exchanged_for_another_with_the_session_says_so(damaged: Service) -> None:
    name, other = _busy(damaged), _busy(damaged)
    damaged.shelf.chains[name] = list(damaged.shelf.chains[other])
    theirs = damaged.session(other)
    forged = structs.replace(damaged.session(name), receipt_hash=theirs.receipt_hash, receipt_id=theirs.receipt_id)
    verified = verify_stored(damaged.reader, forged, damaged.keyring())
    assert verified.fault is not None
    assert verified.fault.fault == "lineage_changed"


def test_a_quarantine_outlives_the_process(damaged: Service) -> None:
    name = _busy(damaged)
    _tamper(damaged, name, 2, _flip)
    damaged.attest(name)
    damaged.restart()
    assert damaged.call(name).receipt.claims.internal_denial_code == "chain_broken"


def test_a_quarantined_session_can_still_be_revoked(damaged: Service) -> None:
    name = _busy(damaged)
    _tamper(damaged, name, 2, _flip)
    damaged.attest(name)
    damaged.run(RevokeSession(name))
    assert damaged.call(name).receipt.claims.internal_denial_code == "session_revoked"
    assert [session.id for session in damaged.reader.broken_sessions()] == [name]


def test_a_broken_chain_of_a_session_that_has_ended_does_not_change_why_it_did(damaged: Service) -> None:
    name = _busy(damaged)
    _tamper(damaged, name, 2, _flip)
    assert damaged.attest(name, end=True).fault is not None
    session = damaged.session(name)
    assert (session.cause, session.broken) == ("session_ended", 1)


def test_a_session_can_be_attested_from_an_event_loop(service: Service) -> None:
    name = _busy(service)
    attested = asyncio.run(service.governor.arun(Attest(name, end=True)))
    assert attested.fault is None
    assert attested.attestation.claims.receipts == 6


def test_a_damaged_head_is_found_at_the_first_touch_after_a_restart(damaged: Service) -> None:
    broken, other = _busy(damaged), _busy(damaged)
    _tamper(damaged, broken, 6, _flip)
    damaged.restart()
    assert damaged.call(broken).receipt.claims.internal_denial_code == "chain_broken"
    assert damaged.call(other).permits


def _start_again(service: Service, name: str) -> None:
    assert service.run(StartSession(service.session(name).passport)).existing


def _record_first(service: Service, name: str) -> None:
    first = service.shelf.chains[name][0].receipt_id
    service.run(RecordResult(name, first, Digest(alg="sha-256", value="A" * 43)))


def _delegate_first(service: Service, name: str) -> None:
    assert not service.delegate(name, max_tool_calls=1).permits


@pytest.mark.parametrize("touch", [_start_again, _record_first, _delegate_first])
def test_nothing_that_is_done_first_covers_up_a_damaged_head(
    damaged: Service, touch: Callable[[Service, str], None]
) -> None:
    broken = _busy(damaged)
    _tamper(damaged, broken, 6, _flip)
    damaged.restart()
    touch(damaged, broken)
    assert damaged.call(broken).receipt.claims.internal_denial_code == "chain_broken"


def test_calls_that_a_delegate_gives_back_do_not_cover_up_a_damaged_head(damaged: Service) -> None:
    parent = _busy(damaged)
    child = damaged.start_delegate(parent, max_tool_calls=2)
    _tamper(damaged, parent, 7, _flip)
    damaged.restart()
    damaged.run(EndSession(child))
    assert damaged.call(parent).receipt.claims.internal_denial_code == "chain_broken"


def _lose_head(service: Service, name: str) -> None:
    del service.shelf.receipts[service.shelf.chains[name].pop().receipt_id]


def _point_elsewhere(service: Service, name: str) -> None:
    session = service.shelf.sessions[name]
    service.shelf.sessions[name] = structs.replace(session, receipt_hash="0" * 64)


def _forget_head(service: Service, name: str) -> None:
    session = service.shelf.sessions[name]
    service.shelf.sessions[name] = structs.replace(session, receipt_id=None, receipt_hash=None)


@pytest.mark.parametrize("damage", [_lose_head, _point_elsewhere])
def test_a_head_that_does_not_fit_its_session_is_found_at_the_first_touch(
    damaged: Service, damage: Callable[[Service, str], None]
) -> None:
    name = _busy(damaged)
    damaged.restart()
    damage(damaged, name)
    damaged.run(GetSession(name))
    assert damaged.session(name).cause == "chain_broken"


def test_a_session_that_has_forgotten_its_head_is_quarantined(damaged: Service) -> None:
    name = _busy(damaged)
    damaged.restart()
    _forget_head(damaged, name)
    damaged.run(GetSession(name))
    assert damaged.session(name).cause == "chain_broken"


def _forged_bookmark(service: Service, name: str) -> str:
    """Return a bookmark over what is there, signed by someone else."""
    verified = verify_stored(service.reader, service.session(name), service.keyring())
    assert verified.head is not None
    return sign_bookmark(verified.head, verified.tally, STRANGER, now=0)


BOOKMARKS: dict[str, Callable[[Service, str], str]] = {
    "no token": lambda _service, _name: "nonsense",
    "a stranger's": _forged_bookmark,
    "of another session": lambda service, _name: service.shelf.bookmarks[_attested(service)],
    "a receipt": lambda service, name: service.tokens(name)[0],
}


def _attested(service: Service) -> str:
    name = _busy(service)
    service.attest(name)
    return name


@pytest.mark.parametrize("what", BOOKMARKS)
def test_a_bookmark_that_is_not_ours_only_makes_the_way_longer(service: Service, what: str) -> None:
    name = _busy(service)
    service.shelf.bookmarks[name] = BOOKMARKS[what](service, name)
    assert _fresh(service, name) == 6
    assert service.attest(name).fault is None
    assert verify_bookmark(service.shelf.bookmarks[name], service.keyring())[0].length == 6


def test_an_older_bookmark_only_makes_the_way_longer(service: Service) -> None:
    name = _busy(service, 2)
    service.attest(name)
    old = service.shelf.bookmarks[name]
    service.call(name)
    service.attest(name)
    service.shelf.bookmarks[name] = old
    assert _fresh(service, name) == 1
    assert service.attest(name).attestation.claims.receipts == 3


def test_an_attestation_of_an_unknown_commit_can_be_asked_for_again(service: Service) -> None:
    name = _busy(service)
    service.weather.unknown = True
    with pytest.raises(LedgerUnavailable) as caught:
        service.attest(name)
    assert caught.value.code == "ledger_unavailable"
    assert service.attest(name).fault is None
    assert len(service.reader.attestations(name)) == 2


def test_a_chain_that_another_key_of_ours_goes_on_with_is_no_break(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = _busy(one, 2)
    two.call(name)
    one.rotate()
    assert one.call(name).permits
    assert two.call(name).permits
    assert two.attest(name).fault is None


def test_a_process_that_sees_a_session_first_after_a_change_of_key_believes_its_head(
    pair: tuple[Service, Service],
) -> None:
    one, two = pair
    name = _busy(one, 2)
    one.rotate()
    one.call(name)
    assert two.call(name).permits


def test_a_key_that_another_process_changes_to_during_an_attestation_is_no_break(pair: tuple[Service, Service]) -> None:
    one, two = pair
    name = _busy(one, 2)
    steps = steps_of(Attest(name), one.governor.context)
    asked = next(steps)
    assert isinstance(asked, Commit)
    answer = one.ledger.run(asked.work)
    two.rotate()
    two.call(name)
    attested = None
    while attested is None:
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            attested = end.value
        else:
            answer = asked.compute() if isinstance(asked, Aside) else one.ledger.run(asked.work, alone=asked.alone)
    assert attested.fault is None
    assert one.call(name).permits
