"""How far chains were verified: from the bookmark on, in slices, while somebody looks, and never past a break."""

from collections.abc import Iterator

import pytest

from remit.errors import LedgerUnavailable
from remit.hub.health import Health, Progress
from remit.ledger.memory import MemoryStore, Shelf
from remit.ledger.records import Session
from tests.governor.places import CountingReader, MemoryPlace
from tests.governor.world import ALLOWED, FORBIDDEN, Service

PATIENCE_S = 30.0


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory, which tests may damage."""
    built = Service()
    yield built
    built.close()


@pytest.fixture
def health(service: Service) -> Iterator[Health]:
    built = Health(CountingReader(service.shelf), service.governor.means.keys)
    yield built
    built.close()


def busy(service: Service, calls: int) -> str:
    name = service.start(max_tool_calls=1000).session.id
    for number in range(calls):
        service.call(name, FORBIDDEN if number % 3 == 2 else ALLOWED)
    return name


def looked(health: Health, service: Service, name: str) -> Progress:
    """Look, let the work be done, and look again."""
    health.look(service.session(name))
    assert health.rest(PATIENCE_S)
    return health.look(service.session(name))


def tamper(service: Service, name: str, place: int) -> None:
    """Change the signature of a receipt that is kept."""
    chain = service.shelf.chains[name]
    token = chain[place].token
    chain[place] = chain[place]._replace(token=token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:])


def counted(health: Health) -> CountingReader:
    assert isinstance(health._reader, CountingReader)
    return health._reader


def test_a_look_tells_what_is_known_and_has_the_rest_verified(service: Service, health: Health) -> None:
    name = busy(service, 7)
    assert health.look(service.session(name)) == Progress(0, 7)
    assert health.rest(PATIENCE_S)
    assert health.look(service.session(name)) == Progress(7, 7)
    assert health.look(service.session(name)).complete


def test_a_chain_is_read_in_slices(service: Service, health: Health) -> None:
    name = busy(service, 120)
    assert looked(health, service, name).complete
    assert (counted(health).receipts_read, counted(health).pages_read) == (120, 3)


def test_what_was_verified_is_not_read_again(service: Service, health: Health) -> None:
    name = busy(service, 6)
    looked(health, service, name)
    service.call(name)
    assert looked(health, service, name) == Progress(7, 7)
    assert counted(health).receipts_read == 7


def test_verification_goes_on_at_the_signed_bookmark(service: Service, health: Health) -> None:
    name = busy(service, 6)
    service.attest(name)
    service.call(name)
    assert looked(health, service, name).complete
    # The receipt at the bookmark, which must be the one that was there, and the one after it.
    assert counted(health).receipts_read == 2


@pytest.mark.parametrize("place", [0, 3, 59])
def test_a_break_is_found_where_it_is(service: Service, health: Health, place: int) -> None:
    name = busy(service, 60)
    tamper(service, name, place)
    progress = looked(health, service, name)
    assert progress.verified == place
    assert not progress.complete
    assert progress.fault is not None
    assert (progress.fault.index, progress.fault.fault) == (place, "signature_invalid")
    assert health.faults() == {name: progress.fault}


@pytest.mark.parametrize("lost", [1, 20, 59])
def test_receipts_that_are_missing_are_a_break(service: Service, health: Health, lost: int) -> None:
    name = busy(service, 60)
    del service.shelf.chains[name][lost:]
    fault = looked(health, service, name).fault
    assert fault is not None
    assert (fault.index, fault.fault) == (lost, "head_mismatch")


def test_a_break_stays_found(service: Service, health: Health) -> None:
    name = busy(service, 4)
    genuine = service.shelf.chains[name][2]
    tamper(service, name, 2)
    looked(health, service, name)
    service.shelf.chains[name][2] = genuine
    assert looked(health, service, name).fault is not None


def test_a_session_without_receipts_has_nothing_to_verify(service: Service, health: Health) -> None:
    name = service.start().session.id
    assert health.look(service.session(name)).complete
    assert counted(health).pages_read == 0


def test_nothing_is_read_while_nobody_looks(service: Service, health: Health) -> None:
    name = busy(service, 3)
    looked(health, service, name)
    before = counted(health).pages_read
    service.call(name)
    assert health.rest(PATIENCE_S)
    assert counted(health).pages_read == before


def test_work_ends_a_while_after_the_last_look(service: Service) -> None:
    readings = iter((0.0,))
    health = Health(CountingReader(service.shelf), service.governor.means.keys, clock=lambda: next(readings, 1000.0))
    name = busy(service, 3)
    assert looked(health, service, name) == Progress(0, 3)
    health.close()


def test_a_key_that_another_process_has_changed_to_is_no_break() -> None:
    place = MemoryPlace()
    one, two = Service(place, name="one"), Service(place, name="two")
    health = Health(one.governor.means.reader, one.governor.means.keys)
    name = busy(one, 2)
    two.rotate()
    two.call(name)
    assert looked(health, one, name) == Progress(3, 3)
    health.close()
    two.close(with_place=False)
    one.close()


class Flaky(MemoryStore):
    """A reader that cannot read once."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf)
        self.failures = 1

    def session(self, session_id: str) -> Session | None:
        if self.failures:
            self.failures -= 1
            raise LedgerUnavailable("the disk does not answer")
        return super().session(session_id)


def test_a_ledger_that_cannot_be_read_is_asked_again_at_the_next_look(service: Service) -> None:
    health = Health(Flaky(service.shelf), service.governor.means.keys)
    name = busy(service, 2)
    assert looked(health, service, name) == Progress(0, 2)
    assert looked(health, service, name) == Progress(2, 2)
    health.close()


def test_many_sessions_do_not_fill_the_memory(service: Service, health: Health) -> None:
    names = [busy(service, 1) for _ in range(260)]
    for name in names:
        health.look(service.session(name))
    assert health.rest(PATIENCE_S)
    assert len(health._known) == 256


def test_after_the_end_nothing_is_begun(service: Service, health: Health) -> None:
    name = busy(service, 2)
    health.close()
    assert health.look(service.session(name)) == Progress(0, 2)
    assert health.rest(PATIENCE_S)
    assert counted(health).pages_read == 0
