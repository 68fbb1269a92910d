"""How far chains were verified: from the root on, again and again while somebody looks, and never past a break."""

import threading
from collections.abc import Iterator
from itertools import count

import pytest
from msgspec import structs

from remit.errors import BrokenChain, LedgerUnavailable
from remit.hub.health import Health, Progress
from remit.ledger.memory import MemoryStore, Shelf
from remit.ledger.records import Kept, Session
from tests.governor.places import CountingReader, MemoryPlace
from tests.governor.world import ALLOWED, FORBIDDEN, Service
from tests.world import NOW

PATIENCE_S = 60.0


@pytest.fixture
def service() -> Iterator[Service]:
    """A service in memory, which tests may damage."""
    built = Service()
    yield built
    built.close()


@pytest.fixture
def health(service: Service) -> Iterator[Health]:
    """A health with the clocks of the service."""
    clock = service.clock
    built = Health(
        CountingReader(service.shelf),
        service.governor.means.keys,
        clock=lambda: clock.mono_ms / 1000,
        wall=lambda: clock.wall_ms / 1000,
    )
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
    assert health.look(service.session(name)) == Progress(7, 7, None, 7, NOW)
    assert health.look(service.session(name)).complete


def test_a_chain_is_read_in_slices(service: Service, health: Health) -> None:
    name = busy(service, 120)
    assert looked(health, service, name).complete
    assert (counted(health).receipts_read, counted(health).pages_read) == (120, 3)


def test_what_comes_after_a_pass_is_verified_at_once_and_nothing_is_read_again(
    service: Service, health: Health
) -> None:
    name = busy(service, 6)
    looked(health, service, name)
    service.clock.pass_s(50)
    service.call(name)
    assert looked(health, service, name) == Progress(7, 7, None, 6, NOW)
    assert counted(health).receipts_read == 7


def test_a_bookmark_is_not_believed(service: Service, health: Health) -> None:
    name = busy(service, 6)
    service.attest(name)
    tamper(service, name, 2)
    fault = looked(health, service, name).fault
    assert fault is not None
    assert (fault.index, fault.fault) == (2, "signature_invalid")


def test_a_pass_that_is_a_minute_old_is_made_again_from_the_root(service: Service, health: Health) -> None:
    name = busy(service, 120)
    looked(health, service, name)
    tamper(service, name, 9)
    service.clock.pass_s(59)
    assert looked(health, service, name).complete
    service.clock.pass_s(1)
    fault = looked(health, service, name).fault
    assert fault is not None
    assert (fault.index, fault.fault) == (9, "signature_invalid")


def test_while_a_pass_is_made_again_the_last_one_is_told(service: Service) -> None:
    reader = Gated(service.shelf)
    health = Health(reader, service.governor.means.keys, clock=lambda: service.clock.mono_ms / 1000, wall=lambda: NOW)
    name = busy(service, 60)
    looked(health, service, name)
    reader.gate.clear()
    service.clock.pass_s(60)
    health.look(service.session(name))
    assert reader.waiting.wait(PATIENCE_S)
    assert health.look(service.session(name)) == Progress(60, 60, None, 60, NOW)
    reader.gate.set()
    health.close()


def test_a_pass_that_took_long_is_believed_for_long(service: Service) -> None:
    readings = count(0, 20)  # seconds: so long takes everything between two looks at the clock
    health = Health(CountingReader(service.shelf), service.governor.means.keys, clock=lambda: float(next(readings)))
    name = busy(service, 2)
    assert looked(health, service, name).complete
    for _ in range(3):
        looked(health, service, name)
    assert counted(health).receipts_read == 2
    for _ in range(20):
        looked(health, service, name)
    assert counted(health).receipts_read > 2
    health.close()


def test_a_chain_that_was_longer_once_is_broken(service: Service, health: Health) -> None:
    name = busy(service, 5)
    shorter = structs.replace(service.session(name))
    service.call(name)
    looked(health, service, name)
    del service.shelf.chains[name][5:]
    service.shelf.sessions[name] = shorter
    fault = looked(health, service, name).fault
    assert fault is not None
    assert fault.fault == "head_mismatch"


@pytest.mark.parametrize(("tampered", "first"), [(8, 8), (3, 3)])
def test_a_break_that_is_reported_counts_and_the_first_one_is_looked_for(
    service: Service, health: Health, tampered: int, first: int
) -> None:
    name = busy(service, 10)
    looked(health, service, name)
    tamper(service, name, tampered)
    health.report(name, BrokenChain(8, "signature_invalid", "seen on a page"))
    assert name in health.faults()
    fault = looked(health, service, name).fault
    assert fault is not None
    assert fault.index == first


def test_a_break_that_only_its_reporter_sees_stays_found(service: Service, health: Health) -> None:
    name = busy(service, 4)
    health.report(name, BrokenChain(2, "row_mismatch", "seen on a page"))
    health.report(name, BrokenChain(3, "row_mismatch", "seen on a page"))
    fault = looked(health, service, name).fault
    assert fault is not None
    assert (fault.index, fault.fault) == (2, "row_mismatch")


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
    assert looked(health, one, name).complete
    health.close()
    two.close(with_place=False)
    one.close()


class Gated(MemoryStore):
    """A reader that has the second slice of a chain wait while its gate is closed."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf)
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def receipts(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Kept]:
        if after and not self.gate.is_set():
            self.waiting.set()
            assert self.gate.wait(PATIENCE_S)
        return super().receipts(session_id, after=after, limit=limit)


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
    assert looked(health, service, name).complete
    health.close()


def test_many_sessions_do_not_fill_the_memory_and_push_no_break_out_of_it(service: Service, health: Health) -> None:
    names = [busy(service, 1) for _ in range(260)]
    tamper(service, names[0], 0)
    for name in names:
        health.look(service.session(name))
    assert health.rest(PATIENCE_S)
    assert len(health._known) == 256
    assert list(health.faults()) == [names[0]]
    assert health.look(service.session(names[0])).fault is not None


def test_after_the_end_nothing_is_begun(service: Service, health: Health) -> None:
    name = busy(service, 2)
    health.close()
    assert health.look(service.session(name)) == Progress(0, 2)
    assert health.rest(PATIENCE_S)
    assert counted(health).pages_read == 0
