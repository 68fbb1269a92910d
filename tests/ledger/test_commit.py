"""Group commit over a store that fails when it is told to: nobody is told that something counts which may not."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from remit.errors import HeadMoved, LedgerUnavailable, StateCorrupt
from remit.ledger.commit import MAX_GROUP, CommitObserver, GroupCommit
from remit.ledger.records import LedgerState, Session, UnsignedReceipt
from remit.ledger.store import Transaction, Work
from remit.ledger.transaction import Store, TransactionChanges
from tests.ledger.contract import (
    PATIENT_S,
    Counted,
    MemoryPlace,
    append_once,
    append_to,
    checked,
    new_session,
    put,
    together,
)
from tests.ledger.memory import MemoryStore, MemoryTables

pytestmark = pytest.mark.slow

FIRST = new_session("first")
# Long enough for a busy machine to begin what was asked, short enough to wait for.
HASTY_S = 0.5
_T = TypeVar("_T")
Fault = Callable[[Callable[[], Any]], Any]


def before(error: Exception) -> Fault:
    """Fail, and do nothing."""

    def fault(_: Callable[[], Any]) -> Any:
        raise error

    return fault


def after(error: Exception) -> Fault:
    """Do it, and fail all the same."""

    def fault(go: Callable[[], Any]) -> Any:
        go()
        raise error

    return fault


class Hang:
    """Stand still until released, then go on."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, go: Callable[[], _T]) -> _T:
        self.begun.set()
        assert self.released.wait(PATIENT_S)
        return go()


class Script:
    """What the stores of one shelf do: each step meets the faults that were set for it, one after the other."""

    def __init__(self, shelf: MemoryTables) -> None:
        self.shelf = shelf
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.steps: list[str] = []

    def meet(self, step: str, go: Callable[[], _T]) -> _T:
        self.steps.append(step)
        faults = self.faults[step]
        answer: _T = faults.pop(0)(go) if faults else go()
        return answer

    def open(self) -> Store:
        return self.meet("open", lambda: ScriptedStore(self))


class ScriptedStore(MemoryStore):
    """A store in memory that goes by a script."""

    def __init__(self, script: Script) -> None:
        super().__init__(script.shelf)
        self._script = script

    def begin(self) -> None:
        self._script.meet("begin", super().begin)

    def commit(self, changes: TransactionChanges) -> dict[str, Session]:
        return self._script.meet("commit", lambda: super(ScriptedStore, self).commit(changes))

    def session(self, session_id: str) -> Session | None:
        return self._script.meet("session", lambda: super(ScriptedStore, self).session(session_id))

    def ledger_state(self) -> LedgerState:
        return self._script.meet("switches", super().ledger_state)

    def close(self) -> None:
        self._script.meet("close", super().close)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    place = MemoryPlace(tmp_path)
    ledger = place.open()
    ledger.run(put(FIRST))
    ledger.close()
    return Script(place.shelf)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def ledger_over(script: Script, observer: CommitObserver | None = None, deadline_s: float = PATIENT_S) -> GroupCommit:
    return GroupCommit(script.open, MemoryStore(script.shelf), deadline_s=deadline_s, observer=observer)


@pytest.fixture
def ledger(script: Script, counted: Counted) -> Iterator[GroupCommit]:
    opened = ledger_over(script, counted)
    yield opened
    opened.close()


@pytest.fixture
def hasty(script: Script) -> Iterator[GroupCommit]:
    """A ledger that gives up soon."""
    opened = ledger_over(script, deadline_s=HASTY_S)
    yield opened
    opened.close()


def at_last(ledger: GroupCommit, work: Work[_T]) -> _T:
    """Ask until there is an answer: on a busy machine, even a store that works can be too slow for the hasty."""
    while True:
        try:
            return ledger.run(work)
        except LedgerUnavailable:
            continue


def assert_unavailable(ledger: GroupCommit, work: Work[object]) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.run(work)
    assert caught.value.code == "ledger_unavailable"


BROKEN = LedgerUnavailable("broken")


# A commit fails


def test_a_commit_that_fails_fails_everyone_who_waits_for_it(script: Script, ledger: GroupCommit) -> None:
    script.faults["commit"] = [before(BROKEN)]
    answers = together(ledger, *(append_to(FIRST.id) for _ in range(3)))
    assert [type(answer) for answer in answers] == [LedgerUnavailable] * 3
    assert checked(ledger.read(), FIRST.id) == []


def test_after_a_commit_that_failed_the_store_is_opened_anew_and_read_again(
    script: Script, ledger: GroupCommit, counted: Counted
) -> None:
    ledger.run(append_to(FIRST.id))
    script.faults["commit"] = [before(BROKEN)]
    assert_unavailable(ledger, append_to(FIRST.id))
    script.steps.clear()
    receipt = ledger.run(append_to(FIRST.id)).receipt
    assert script.steps == ["open", "switches", "session", "begin", "commit"]
    assert counted.failures == [BROKEN]
    assert checked(ledger.read(), FIRST.id)[1:] == [receipt.token]


def test_the_store_of_a_commit_that_failed_is_closed_before_anyone_hears_of_it(
    script: Script, ledger: GroupCommit
) -> None:
    script.faults["commit"] = [before(BROKEN)]
    assert_unavailable(ledger, append_to(FIRST.id))
    assert script.steps[-1] == "close"


def test_a_commit_that_fails_after_writing_is_found_out_by_its_key(script: Script, ledger: GroupCommit) -> None:
    script.faults["commit"] = [after(BROKEN)]
    assert_unavailable(ledger, append_once(FIRST.id, "key"))
    found = ledger.run(append_once(FIRST.id, "key"))
    assert [kept.receipt_id for kept in ledger.read().receipts(FIRST.id)] == [found]


def test_a_commit_that_fails_before_writing_is_done_by_asking_again(script: Script, ledger: GroupCommit) -> None:
    script.faults["commit"] = [before(BROKEN)]
    assert_unavailable(ledger, append_once(FIRST.id, "key"))
    found = ledger.run(append_once(FIRST.id, "key"))
    assert [kept.receipt_id for kept in ledger.read().receipts(FIRST.id)] == [found]


def test_a_chain_goes_on_from_what_a_failed_commit_has_written(script: Script, ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    for fault in (after, before, after):
        script.faults["commit"] = [fault(BROKEN)]
        assert_unavailable(ledger, append_to(FIRST.id))
    receipt = ledger.run(append_to(FIRST.id)).receipt
    tokens = checked(ledger.read(), FIRST.id)
    assert (len(tokens), tokens[-1]) == (4, receipt.token)


def test_a_receipt_of_work_that_failed_is_not_given_out(script: Script, ledger: GroupCommit) -> None:
    made: list[UnsignedReceipt] = []
    script.faults["begin"] = [before(BROKEN)]
    assert_unavailable(ledger, lambda it: made.append(append_to(FIRST.id)(it)))
    assert checked(ledger.read(), FIRST.id) == []


@pytest.mark.parametrize("step", ["open", "switches", "session", "begin", "commit"])
@pytest.mark.parametrize("error", [LedgerUnavailable("just now"), StateCorrupt("damaged")])
def test_a_store_that_fails_anywhere_fails_the_work_and_works_again(
    script: Script, ledger: GroupCommit, step: str, error: LedgerUnavailable | StateCorrupt
) -> None:
    script.faults[step] = [before(error)]
    with pytest.raises(type(error)) as caught:
        ledger.run(append_to(FIRST.id))
    assert caught.value.code == error.code
    ledger.run(append_to(FIRST.id))
    assert len(checked(ledger.read(), FIRST.id)) == 1


@pytest.mark.parametrize("step", ["open", "switches", "begin", "commit"])
@pytest.mark.parametrize("error", [OSError("unexpected"), ZeroDivisionError(), MemoryError()])
def test_a_store_that_fails_unforeseen_is_unavailable_and_works_again(
    script: Script, ledger: GroupCommit, step: str, error: Exception
) -> None:
    script.faults[step] = [before(error)]
    assert_unavailable(ledger, append_to(FIRST.id))
    ledger.run(append_to(FIRST.id))
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_a_store_that_cannot_even_be_closed_is_let_go_of(script: Script, ledger: GroupCommit) -> None:
    script.faults["begin"] = [before(BROKEN)]
    script.faults["close"] = [after(OSError("stuck"))]
    assert_unavailable(ledger, append_to(FIRST.id))
    ledger.run(append_to(FIRST.id))


def test_a_store_that_fails_again_and_again_is_opened_again_and_again(script: Script, ledger: GroupCommit) -> None:
    script.faults["open"] = [before(BROKEN)] * 5
    for _ in range(5):
        assert_unavailable(ledger, append_to(FIRST.id))
    ledger.run(append_to(FIRST.id))
    assert script.steps.count("open") == 6


def test_a_head_that_moves_at_the_last_moment_is_read_again(script: Script, ledger: GroupCommit) -> None:
    script.faults["commit"] = [before(HeadMoved("moved"))]
    ledger.run(append_to(FIRST.id))
    assert script.steps.count("session") == 2
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_a_head_that_moves_while_the_ledger_is_held_is_a_failure(script: Script, ledger: GroupCommit) -> None:
    script.faults["commit"] = [before(HeadMoved("moved"))] * 2
    assert_unavailable(ledger, append_to(FIRST.id))
    ledger.run(append_to(FIRST.id))


# Work fails


@pytest.mark.parametrize("error", [KeyError("x"), HeadMoved("x"), MemoryError(), RecursionError(), StopIteration()])
def test_what_work_raises_goes_to_its_caller_and_to_no_other(ledger: GroupCommit, error: Exception) -> None:
    def work(_: Transaction) -> None:
        raise error

    answers = together(ledger, append_to(FIRST.id), append_to(FIRST.id))
    with pytest.raises(type(error)) as caught:
        ledger.run(work)
    assert caught.value is error
    assert checked(ledger.read(), FIRST.id) == [answer.receipt.token for answer in answers]


def test_work_that_writes_nothing_takes_no_commit(script: Script, ledger: GroupCommit) -> None:
    assert ledger.run(lambda it: it.ledger_state.kill_switch) is False
    assert "commit" not in script.steps


# A store hangs


@pytest.mark.parametrize("step", ["open", "switches", "session", "begin", "commit"])
def test_a_store_that_hangs_is_unavailable_until_it_goes_on(script: Script, hasty: GroupCommit, step: str) -> None:
    hang = Hang()
    script.faults[step] = [hang]
    assert_unavailable(hasty, append_once(FIRST.id, "key"))
    assert hang.begun.wait(PATIENT_S)
    assert_unavailable(hasty, append_once(FIRST.id, "key"))
    hang.released.set()
    found = at_last(hasty, append_once(FIRST.id, "key"))
    assert [kept.receipt_id for kept in hasty.read().receipts(FIRST.id)] == [found]
    checked(hasty.read(), FIRST.id)


def test_work_that_was_given_up_before_it_began_is_never_run(script: Script, hasty: GroupCommit) -> None:
    ran: list[str] = []
    script.faults["begin"] = [hang := Hang()]
    assert_unavailable(hasty, append_to(FIRST.id))
    for _ in range(3):
        assert_unavailable(hasty, lambda _: ran.append("ran"))
    hang.released.set()
    hasty.close()
    assert ran == []


def test_readers_answer_while_a_store_hangs(script: Script, hasty: GroupCommit) -> None:
    script.faults["commit"] = [hang := Hang()]
    assert_unavailable(hasty, append_to(FIRST.id))
    session = hasty.read().session(FIRST.id)
    assert session is not None
    assert session.length == 0
    hang.released.set()


# The end


def test_closing_finishes_what_was_asked_for(script: Script, ledger: GroupCommit) -> None:
    script.faults["begin"] = [hang := Hang()]
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(ledger.run, append_to(FIRST.id))
        assert hang.begun.wait(PATIENT_S)
        closing = threads.submit(ledger.close)
        hang.released.set()
        closing.result()
        assert checked(ledger.read(), FIRST.id) == [first.result().receipt.token]
    assert script.steps[-1] == "close"


def test_a_ledger_that_was_closed_is_unavailable(script: Script, ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    ledger.close()
    assert_unavailable(ledger, append_to(FIRST.id))
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_closing_twice_is_closing_once(script: Script, ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    ledger.close()
    ledger.close()
    assert script.steps.count("close") == 1


def test_a_ledger_that_was_never_used_opens_nothing(script: Script, ledger: GroupCommit) -> None:
    ledger.close()
    assert script.steps == []


# Groups


def test_work_that_waits_together_is_committed_together(script: Script, ledger: GroupCommit, counted: Counted) -> None:
    together(ledger, *(append_to(FIRST.id) for _ in range(50)))
    ledger.close()
    assert counted.sizes == [1, 50]
    assert script.steps.count("commit") == 1


def test_a_group_has_a_largest_size(ledger: GroupCommit, counted: Counted) -> None:
    together(ledger, *(append_to(FIRST.id) for _ in range(MAX_GROUP + 50)))
    assert len(checked(ledger.read(), FIRST.id)) == MAX_GROUP + 50
    ledger.close()  # whoever watches is told after everyone was answered
    assert counted.sizes == [1, MAX_GROUP, 50]


def test_whoever_watches_is_told_how_long_the_store_took(ledger: GroupCommit, counted: Counted) -> None:
    ledger.run(append_to(FIRST.id))
    ledger.run(lambda _: None)
    ledger.close()
    assert counted.seconds[0] > 0
    assert counted.seconds[1] == 0


def test_whoever_watches_is_told_of_what_receipts_do_not_count(ledger: GroupCommit, counted: Counted) -> None:
    ledger.run(append_to(FIRST.id))
    ledger.run(lambda transaction: transaction.put_revocation("pass:1", at_ms=1, reason="lost"))
    ledger.run(append_to(FIRST.id))
    ledger.close()
    assert (counted.sizes, counted.turns) == ([1, 1, 1], 1)


def test_work_is_done_in_the_order_it_was_asked_for(ledger: GroupCommit) -> None:
    done: list[int] = []
    together(ledger, *(lambda _, number=number: done.append(number) for number in range(100)))
    assert done == list(range(100))


def test_work_that_runs_alone_shares_its_commit_with_no_other(
    script: Script, ledger: GroupCommit, counted: Counted
) -> None:
    together(ledger, *(append_to(FIRST.id) for _ in range(4)), alone=True)
    ledger.close()
    assert counted.sizes == [1, 1, 1, 1, 1]
    assert script.steps.count("commit") == 4


def test_work_that_runs_alone_holds_the_ledger_and_reads_everything_again(script: Script, ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    script.steps.clear()
    ledger.run(append_to(FIRST.id), alone=True)
    assert script.steps == ["begin", "switches", "session", "commit"]


def test_work_that_runs_alone_and_refuses_lets_go_of_the_ledger(script: Script, ledger: GroupCommit) -> None:
    def refuse(_: Transaction) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        ledger.run(refuse, alone=True)
    assert not script.shelf.lock.locked()


# What comes before work


def test_all_work_of_a_group_is_prepared_before_any_of_it_is_done(ledger: GroupCommit) -> None:
    done: list[str] = []
    together(ledger, *(lambda _: done.append("done") for _ in range(3)), prepare=lambda _: done.append("prepared"))
    assert done == ["prepared"] * 3 + ["done"] * 3


def test_work_is_prepared_once_however_often_it_is_done(script: Script, ledger: GroupCommit) -> None:
    prepared: list[int] = []
    script.faults["commit"] = [before(HeadMoved("moved"))]
    ledger.run(append_to(FIRST.id), prepare=lambda _: prepared.append(1))
    assert (prepared, script.steps.count("commit")) == ([1], 2)


def test_work_is_not_done_if_it_cannot_be_prepared_and_no_other_is_harmed(ledger: GroupCommit) -> None:
    turns = iter("no")
    done: list[str] = []

    def prepare(_: Transaction) -> None:
        if next(turns) == "n":
            raise KeyError

    answers = together(ledger, *(lambda _, name=name: done.append(name) for name in ("one", "two")), prepare=prepare)
    assert (type(answers[0]), answers[1], done) == (KeyError, None, ["two"])


def test_the_ledger_is_not_held_while_work_is_prepared(script: Script, ledger: GroupCommit) -> None:
    held: list[bool] = []
    ledger.run(append_to(FIRST.id), alone=True, prepare=lambda _: held.append(script.shelf.lock.locked()))
    assert held == [False]


def test_a_store_that_fails_while_work_is_prepared_is_unavailable(script: Script, ledger: GroupCommit) -> None:
    def prepare(transaction: Transaction) -> None:
        transaction.session(FIRST.id)

    script.faults["session"] = [before(BROKEN)]
    with pytest.raises(LedgerUnavailable):
        ledger.run(append_to(FIRST.id), prepare=prepare)
    assert script.steps[-1] == "close"
    ledger.run(append_to(FIRST.id), prepare=prepare)
    assert len(checked(ledger.read(), FIRST.id)) == 1


# Those who watch


class Careless(CommitObserver):
    """Fails to hear of failures."""

    def failed(self, error: BaseException) -> None:
        raise ZeroDivisionError from error


def test_an_observer_that_fails_does_not_stop_the_writer(script: Script) -> None:
    ledger = ledger_over(script, Careless(), deadline_s=HASTY_S)
    script.faults["commit"] = [before(BROKEN)]
    assert_unavailable(ledger, append_to(FIRST.id))
    for _ in range(20):
        with suppress(LedgerUnavailable):
            ledger.run(append_once(FIRST.id, "key"))
            break
    ledger.close()
    assert len(checked(ledger.read(), FIRST.id)) == 1


class Ends(CommitObserver):
    """Counts how often the end has come."""

    def __init__(self) -> None:
        self.heads: list[int] = []

    def stopping(self, store: Store) -> None:
        self.heads.append(store.overview().receipts)


def test_an_observer_hears_of_the_end_when_everything_is_done(script: Script) -> None:
    ledger = ledger_over(script, ends := Ends())
    ledger.run(append_to(FIRST.id))
    ledger.close()
    assert ends.heads == [1]
