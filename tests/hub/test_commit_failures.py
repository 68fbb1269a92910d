"""Whether anything can be recorded, as the writer of a ledger tells it."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remit.errors import LedgerUnavailable
from remit.hub.commit_failures import CommitFailure, CommitFailureTracker
from remit.ledger.commit import CommitObserver, GroupCommit
from remit.ledger.transaction import Store
from tests.faults.proxy_driver import ledger_processes_of, until
from tests.governor.places import DEADLINE_S, MemoryPlace, Weather
from tests.hub.service import error_of, event, running
from tests.ledger.contract import FIRST, SECOND, new_session, put
from tests.ledger.memory import MemoryStore


class Told(CommitObserver):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def committed(self, store: Store, size: int, seconds: float) -> None:
        self.told.append(f"committed {size}" + (" in time" if seconds and self.knows(store) else ""))

    def epoch_changed(self) -> None:
        self.told.append("turned")

    def failed(self, error: BaseException) -> None:
        self.told.append(f"failed {error}")

    def stopping(self, store: Store) -> None:
        self.told.append("stopping" if self.knows(store) else "")

    def knows(self, store: Store) -> bool:
        return isinstance(store, MemoryStore)


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def tracker(told: Told) -> CommitFailureTracker:
    moments = iter((100.5, 200.5, 300.5))
    return CommitFailureTracker(told, wall=lambda: next(moments))


@pytest.fixture
def ledger(weather: Weather, tracker: CommitFailureTracker) -> Iterator[GroupCommit]:
    place = MemoryPlace()
    built = GroupCommit(lambda: place.open_store(weather), place.reader(), deadline_s=DEADLINE_S, observer=tracker)
    yield built
    built.close()


def failed(ledger: GroupCommit, weather: Weather) -> None:
    weather.lost = True
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.run(put(FIRST))
    assert caught.value.code == "ledger_unavailable"


def settled(ledger: GroupCommit, ask: Callable[[], CommitFailure | None]) -> CommitFailure | None:
    """Return what is known once the writer has told of everything before."""
    ledger.close()
    return ask()


def test_what_fails_is_known_since_the_first_time(
    ledger: GroupCommit, weather: Weather, tracker: CommitFailureTracker
) -> None:
    assert tracker.failure is None
    for _ in range(2):
        failed(ledger, weather)
    assert settled(ledger, lambda: tracker.failure) == CommitFailure(100, "the disk is full")


def test_work_that_only_reads_does_not_show_that_all_is_well(
    ledger: GroupCommit, weather: Weather, tracker: CommitFailureTracker
) -> None:
    failed(ledger, weather)
    assert ledger.run(lambda transaction: transaction.session(FIRST.id)) is None
    assert settled(ledger, lambda: tracker.failure) is not None


def test_what_is_written_again_ends_it(ledger: GroupCommit, weather: Weather, tracker: CommitFailureTracker) -> None:
    failed(ledger, weather)
    ledger.run(put(SECOND))
    assert settled(ledger, lambda: tracker.failure) is None


def test_an_error_that_is_not_ours_is_told_by_its_kind(tracker: CommitFailureTracker) -> None:
    tracker.failed(OSError("/some/where"))
    assert tracker.failure == CommitFailure(100, "OSError")


def test_whoever_else_observes_is_told_everything(
    ledger: GroupCommit, weather: Weather, tracker: CommitFailureTracker, told: Told
) -> None:
    failed(ledger, weather)
    ledger.run(put(new_session("third")))
    tracker.epoch_changed()
    ledger.close()
    assert told.told[0] == "failed the disk is full"
    assert {"committed 1 in time", "turned", "stopping"} <= set(told.told)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_hub_says_that_its_ledger_takes_nothing_until_it_does(tmp_path: Path, processes: str) -> None:
    with running(tmp_path / "home", "--processes", processes) as hub:
        hub.observe("Chat")
        [writer] = ledger_processes_of(tmp_path / "home") or [hub.pid]
        assert (writer == hub.pid) == (processes == "1")
        allowed = resource.prlimit(writer, resource.RLIMIT_FSIZE)
        # No file may grow, as on a disk that is full.
        resource.prlimit(writer, resource.RLIMIT_FSIZE, (0, allowed[1]))
        assert error_of(hub.post("/v1/events/observe", event("Chat"))) == "503 ledger_unavailable"
        until(lambda: b"Nothing can be recorded since" in hub.get("/dashboard").body)
        resource.prlimit(writer, resource.RLIMIT_FSIZE, allowed)
        hub.observe("Chat")
        until(lambda: b"Nothing can be recorded" not in hub.get("/dashboard").body)
