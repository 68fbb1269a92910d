"""Every chain is verified, again and again: what is altered in the ledger is found, wherever it is."""

from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from remit.errors import LedgerUnavailable
from remit.governor.verification import BrokenChainFound, Message, SessionsVerified, VerificationSummary
from remit.governor.verifier import Verifier
from remit.ledger.records import Session
from tests.governor.places import CountingReader, MemoryPlace
from tests.governor.verifying import StillPace, verifier_of
from tests.governor.world import ALLOWED, FORBIDDEN, Service
from tests.ledger.memory import MemoryStore
from tests.world import NOW

pytestmark = pytest.mark.slow


class Reports:
    """What a verifier has reported."""

    def __init__(self) -> None:
        self.all: list[Message] = []

    @property
    def summary(self) -> VerificationSummary:
        return [one for one in self.all if isinstance(one, VerificationSummary)][-1]

    @property
    def broken(self) -> dict[str, tuple[int, str]]:
        return {one.session_id: (one.index, one.fault) for one in self.all if isinstance(one, BrokenChainFound)}

    @property
    def order(self) -> list[str]:
        """Return the sessions in the order in which they were verified first."""
        verified = (one.sessions for one in self.all if isinstance(one, SessionsVerified))
        return list(dict.fromkeys(name for sessions in verified for name, *_ in sessions))


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory, which tests may damage."""
    built = Service()
    yield built
    built.close()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def verifier(service: Service, reports: Reports) -> Verifier:
    return verifier_of(service, reports.all.append)


def busy(service: Service, calls: int) -> str:
    name = service.start(max_tool_calls=1000).session.id
    for number in range(calls):
        service.call(name, FORBIDDEN if number % 3 == 2 else ALLOWED)
    return name


def tamper(service: Service, name: str, place: int) -> None:
    """Change the signature of a receipt that is kept."""
    chain = service.shelf.chains[name]
    token = chain[place].token
    chain[place] = chain[place]._replace(token=token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:])


def hash_all(verifier: Verifier) -> None:
    for _ in verifier.hash_pass():
        pass


def test_the_first_pass_covers_everything_and_the_last_changes_come_first(
    service: Service, verifier: Verifier, reports: Reports
) -> None:
    names = [busy(service, calls) for calls in (3, 5, 2)]
    service.call(names[0])
    empty = service.start().session.id
    verifier.first_pass()
    assert reports.order == [names[0], names[2], names[1], empty]
    summary = reports.summary
    assert (summary.state, summary.sessions_verified, summary.receipts_verified) == ("continuous", 4, 11)
    assert (summary.through, summary.verified_at, summary.broken) == (11, NOW, 0)
    assert summary.through_receipt == service.claims(names[0])[-1].receipt_id
    assert summary.last_full_pass_at == NOW


def test_nothing_is_called_verified_before_the_first_pass_is_done(
    service: Service, verifier: Verifier, reports: Reports
) -> None:
    busy(service, 30)
    verifier.first_pass()
    first = next(one for one in reports.all if isinstance(one, VerificationSummary))
    assert (first.state, first.verified_at, first.through) == ("first_pass", None, 0)


def test_the_first_pass_is_made_at_full_speed_and_the_others_pause(service: Service, reports: Reports) -> None:
    busy(service, 60)
    pace = StillPace(service.clock)
    verifier = verifier_of(service, reports.all.append, pace=pace)
    verifier.first_pass()
    assert set(pace.pauses) == {True}
    pace.pauses.clear()
    verifier.full_pass()
    assert set(pace.pauses) == {False}


@pytest.mark.parametrize("place", [0, 3, 59])
@pytest.mark.parametrize("attested", [False, True])
def test_an_altered_receipt_is_found_by_the_first_pass_where_it_is(
    service: Service, verifier: Verifier, reports: Reports, place: int, attested: bool
) -> None:
    other, name = busy(service, 4), busy(service, 60)
    if attested:
        service.attest(name)
    tamper(service, name, place)
    verifier.first_pass()
    assert reports.broken == {name: (place, "signature_invalid")}
    assert (reports.summary.sessions_verified, reports.summary.broken) == (1, 1)
    assert reports.order == [other]


def test_a_break_is_reported_without_reading_the_chain_twice(service: Service, reports: Reports) -> None:
    reader = CountingReader(service.shelf)
    verifier = verifier_of(service, reports.all.append, reader=reader)
    name = busy(service, 120)
    tamper(service, name, 119)
    verifier.first_pass()
    assert reports.broken == {name: (119, "signature_invalid")}
    assert reader.receipts_read == 120


def test_what_a_bookmark_covers_is_hashed_and_the_rest_is_verified(service: Service, reports: Reports) -> None:
    name = busy(service, 6)
    service.attest(name)
    service.call(name)
    verifier = verifier_of(service, reports.all.append)
    verifier.first_pass()
    assert reports.summary.receipts_verified == 7
    assert reports.summary.last_full_pass_at is None
    verifier.full_pass()
    assert reports.summary.last_full_pass_at == NOW


PASSES: dict[str, Callable[[Verifier], None]] = {"by hashes": hash_all, "by signatures": Verifier.full_pass}


@pytest.mark.parametrize("passing", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize("place", [0, 29, 58, 59])
def test_a_receipt_that_is_altered_later_is_found_by_the_next_pass(
    service: Service, verifier: Verifier, reports: Reports, passing: Callable[[Verifier], None], place: int
) -> None:
    name = busy(service, 60)
    verifier.first_pass()
    tamper(service, name, place)
    passing(verifier)
    assert reports.broken == {name: (place, "signature_invalid")}


def remove_a_row(service: Service, name: str) -> None:
    del service.shelf.chains[name][2]


def swap_two_rows(service: Service, name: str) -> None:
    chain = service.shelf.chains[name]
    chain[1], chain[2] = chain[2], chain[1]


def set_the_head_back(service: Service, name: str) -> None:
    session, chain = service.shelf.sessions[name], service.shelf.chains[name]
    before = service.claims(name)[-2]
    assert before.receipt_id == chain[-2].receipt_id
    last = service.claims(name)[-1]
    service.shelf.sessions[name] = structs.replace(
        session, length=session.length - 1, receipt_id=before.receipt_id, receipt_hash=last.parent_receipt_hash
    )


def set_another_head(service: Service, name: str) -> None:
    service.shelf.sessions[name] = structs.replace(service.shelf.sessions[name], receipt_hash="0" * 64)


def cut_the_tail(service: Service, name: str) -> None:
    """Remove the last receipt, and let the session row say so: only who has seen it before can tell."""
    set_the_head_back(service, name)
    del service.shelf.chains[name][-1]


def remove_the_session(service: Service, name: str) -> None:
    del service.shelf.sessions[name], service.shelf.chains[name]


DAMAGES = [remove_a_row, swap_two_rows, set_the_head_back, set_another_head, cut_the_tail, remove_the_session]


@pytest.mark.parametrize("passing", PASSES.values(), ids=PASSES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_changed_after_it_was_verified_is_a_break(
    service: Service,
    verifier: Verifier,
    reports: Reports,
    damage: Callable[[Service, str], None],
    passing: Callable[[Verifier], None],
) -> None:
    name, other = busy(service, 6), busy(service, 6)
    verifier.first_pass()
    damage(service, name)
    passing(verifier)
    assert list(reports.broken) == [name]
    assert (reports.summary.sessions_verified, reports.summary.receipts_verified) == (1, 6)
    assert other not in reports.broken


@pytest.mark.parametrize("damage", [remove_a_row, swap_two_rows, set_the_head_back, set_another_head])
def test_what_was_changed_before_the_start_is_found_by_the_first_pass(
    service: Service, verifier: Verifier, reports: Reports, damage: Callable[[Service, str], None]
) -> None:
    name = busy(service, 6)
    damage(service, name)
    verifier.first_pass()
    assert list(reports.broken) == [name]


def test_what_is_new_is_verified_without_reading_the_rest_again(service: Service, reports: Reports) -> None:
    reader = CountingReader(service.shelf)
    verifier = verifier_of(service, reports.all.append, reader=reader)
    name = busy(service, 120)
    verifier.first_pass()
    before = reader.receipts_read
    service.clock.pass_s(5)
    service.call(name)
    verifier.catch_up()
    assert reader.receipts_read - before == 2  # the last one, to go on from it, and the new one
    verifier.full_pass()
    assert (reports.summary.through, reports.summary.verified_at) == (121, NOW + 5)


def test_a_new_receipt_that_does_not_verify_is_a_break(service: Service, verifier: Verifier, reports: Reports) -> None:
    name = busy(service, 3)
    verifier.first_pass()
    service.call(name)
    tamper(service, name, 3)
    verifier.catch_up()
    assert reports.broken == {name: (3, "signature_invalid")}


def test_receipts_that_come_while_a_long_pass_is_under_way_are_not_left_for_its_end(
    service: Service, reports: Reports
) -> None:
    name = busy(service, 90)
    other = service.start().session.id
    pace = StillPace(service.clock)
    verifier = verifier_of(service, reports.all.append, pace=pace)
    verifier.first_pass()
    service.call(other)
    tamper(service, name, 89)
    verifier.full_pass()
    names = [one.session_id for one in reports.all if isinstance(one, BrokenChainFound)]
    assert names == [name]
    assert reports.summary.through == 91


def test_a_backlog_of_new_receipts_is_verified_with_pauses_too(service: Service, reports: Reports) -> None:
    name = busy(service, 3)
    pace = StillPace(service.clock)
    verifier = verifier_of(service, reports.all.append, pace=pace)
    verifier.first_pass()
    for _ in range(200):
        service.call(name)
    pace.pauses.clear()
    verifier.catch_up()
    assert len(pace.pauses) >= 20
    assert set(pace.pauses) == {False}


def test_a_backlog_of_new_receipts_has_hashes_compared_meanwhile(service: Service, reports: Reports) -> None:
    altered, name = busy(service, 3), busy(service, 3)
    verifier = verifier_of(service, reports.all.append)
    verifier.first_pass()
    for _ in range(200):
        service.call(name)
    service.clock.pass_s(30)
    tamper(service, altered, 1)
    verifier.catch_up()
    assert reports.broken == {altered: (1, "signature_invalid")}


def test_a_long_pass_by_signatures_has_hashes_compared_meanwhile(service: Service, reports: Reports) -> None:
    busy(service, 90)
    last = busy(service, 3)
    verifier = verifier_of(service, reports.all.append, pace=StillPace(service.clock, every=5))
    verifier.first_pass()
    service.clock.pass_s(30)
    tamper(service, last, 1)
    verifier.full_pass()
    assert reports.broken == {last: (1, "signature_invalid")}


def test_a_break_stays_found(service: Service, verifier: Verifier, reports: Reports) -> None:
    name = busy(service, 4)
    genuine = service.shelf.chains[name][2]
    tamper(service, name, 2)
    verifier.first_pass()
    service.shelf.chains[name][2] = genuine
    for _ in range(2):
        verifier.full_pass()
    assert reports.summary.broken == 1
    assert sum(isinstance(one, BrokenChainFound) for one in reports.all) == 1


def test_a_key_that_another_process_has_changed_to_is_no_break(reports: Reports) -> None:
    place = MemoryPlace()
    one, two = Service(place, name="one"), Service(place, name="two")
    name = busy(one, 2)
    verifier = verifier_of(one, reports.all.append)
    verifier.first_pass()
    two.rotate()
    two.call(name)
    verifier.catch_up()
    verifier.full_pass()
    assert reports.broken == {}
    assert reports.summary.receipts_verified == 3
    two.close(with_place=False)
    one.close()


class Unreadable(MemoryStore):
    """A reader that cannot read."""

    def session(self, session_id: str) -> Session | None:  # noqa: ARG002
        raise LedgerUnavailable("the disk does not answer")


def test_a_ledger_that_cannot_be_read_is_no_break(service: Service, reports: Reports) -> None:
    busy(service, 2)
    verifier = verifier_of(service, reports.all.append, reader=Unreadable(service.shelf))
    with pytest.raises(LedgerUnavailable):
        verifier.first_pass()
    assert reports.broken == {}
    assert reports.summary.verified_at is None
