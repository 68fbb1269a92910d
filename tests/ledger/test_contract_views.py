"""What every ledger keeps ready to be looked at: the newest first, denials, counts, who reports, and what was noted."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import structs

from remit.errors import LedgerUnavailable
from remit.ledger.commit import GroupCommit
from remit.ledger.records import MAX_NOTES, CodeCount, EventNote, IdempotencyKey, IndexedReceipt, MinuteCount, Source
from remit.ledger.store import LedgerReader, Transaction, Work
from tests.ledger.contract import (
    FIRST,
    SECOND,
    Place,
    Refused,
    append_to,
    checked,
    new_session,
    observe,
    once,
    pending_on,
    put,
    then_refuse,
    together,
)
from tests.world import NOW

MINUTE = NOW // 60
THIRD = new_session("third")


def numbers(found: list[IndexedReceipt]) -> list[int]:
    return [numbered.number for numbered in found]


def views(reader: LedgerReader) -> tuple[object, ...]:
    """Return all that is counted and noted."""
    counted = reader.denials_per_minute(0), reader.denials_per_code(), reader.source_count(), reader.sources()
    return *counted, reader.notes(FIRST.id), reader.latest_receipts(), reader.denials()


def report(session_id: str, key: str = "key", told: str = "{}") -> Work[None]:
    """Return the work of starting a session with a source."""
    session = next(it for it in (FIRST, SECOND, THIRD) if it.id == session_id)

    def work(transaction: Transaction) -> None:
        transaction.put_session(session)
        transaction.put_source(Source(session_id, key, told))

    return work


def found_by(key: str) -> Work[Source | None]:
    return lambda transaction: transaction.source(key)


def with_broken(session_id: str, broken: int) -> Work[None]:
    """Return the work of saying of a session whether its chain was found broken."""

    def work(transaction: Transaction) -> None:
        session = transaction.session(session_id)
        assert session is not None
        transaction.put_session(structs.replace(session, broken=broken))

    return work


@pytest.fixture
def denials(ledger: GroupCommit) -> LedgerReader:
    """Seven receipts of two sessions: the even ones are denials, the sixth by another code."""
    ledger.run(put(SECOND))
    for session, code in (
        (FIRST, ""),
        (FIRST, "a"),
        (SECOND, ""),
        (SECOND, "a"),
        (FIRST, ""),
        (FIRST, "b"),
        (FIRST, ""),
    ):
        ledger.run(observe(session.id, code))
    return ledger.read()


# The newest first


def test_the_latest_sessions_come_newest_first(ledger: GroupCommit) -> None:
    for session in (SECOND, THIRD):
        ledger.run(put(session))
    reader = ledger.read()
    assert [it.id for it in reader.latest_sessions()] == [THIRD.id, SECOND.id, FIRST.id]
    assert reader.latest_sessions() == reader.sessions()[::-1]


def test_the_latest_sessions_come_in_pages(ledger: GroupCommit) -> None:
    for session in (SECOND, THIRD):
        ledger.run(put(session))
    reader = ledger.read()
    assert [it.number for it in reader.latest_sessions(limit=2)] == [3, 2]
    assert [it.number for it in reader.latest_sessions(before=2)] == [1]
    assert reader.latest_sessions(before=1) == reader.latest_sessions(limit=0) == []


def test_broken_sessions_come_newest_first_and_are_counted(ledger: GroupCommit) -> None:
    reader = ledger.read()
    assert (reader.broken_sessions(), reader.broken_count()) == ([], 0)
    ledger.run(put(SECOND))
    ledger.run(put(structs.replace(THIRD, broken=1)))
    ledger.run(with_broken(FIRST.id, 1))
    assert [it.id for it in reader.broken_sessions()] == [THIRD.id, FIRST.id]
    assert reader.broken_sessions(limit=1) == [reader.session(THIRD.id)]
    assert (reader.broken_sessions(limit=0), reader.broken_count()) == ([], 2)


def test_a_session_that_is_broken_no_more_is_not_counted(ledger: GroupCommit) -> None:
    for broken in (1, 0):
        ledger.run(with_broken(FIRST.id, broken))
    assert (ledger.read().broken_sessions(), ledger.read().broken_count()) == ([], 0)


def test_the_latest_receipts_come_newest_first_with_their_place_and_code(denials: LedgerReader) -> None:
    found = denials.latest_receipts()
    assert [(it.number, it.code, it.kept.session_id) for it in found[:4]] == [
        (7, "", FIRST.id),
        (6, "b", FIRST.id),
        (5, "", FIRST.id),
        (4, "a", SECOND.id),
    ]
    assert [it.kept for it in found if it.kept.session_id == SECOND.id] == denials.receipts(SECOND.id)[::-1]


def test_the_latest_receipts_come_in_pages(denials: LedgerReader) -> None:
    assert numbers(denials.latest_receipts(limit=3)) == [7, 6, 5]
    assert numbers(denials.latest_receipts(before=5, limit=3)) == [4, 3, 2]
    assert denials.latest_receipts(before=1) == denials.latest_receipts(limit=0) == []


# Denials


def test_denials_come_newest_first_and_in_pages(denials: LedgerReader) -> None:
    assert [(it.number, it.code) for it in denials.denials()] == [(6, "b"), (4, "a"), (2, "a")]
    assert numbers(denials.denials(limit=2)) == [6, 4]
    assert numbers(denials.denials(before=4)) == [2]
    assert denials.denials(before=2) == denials.denials(limit=0) == []


def test_denials_of_one_code_come_newest_first_and_in_pages(denials: LedgerReader) -> None:
    assert numbers(denials.denials("a")) == [4, 2]
    assert numbers(denials.denials("a", limit=1)) == [4]
    assert numbers(denials.denials("a", before=4)) == [2]
    assert denials.denials("b", before=6) == denials.denials("c") == []


def test_denials_of_a_session_come_newest_first_and_in_pages_of_its_chain(denials: LedgerReader) -> None:
    assert [(it.number, it.kept.seq, it.code) for it in denials.denials_of(FIRST.id)] == [(6, 4, "b"), (2, 2, "a")]
    assert numbers(denials.denials_of(FIRST.id, limit=1)) == [6]
    assert numbers(denials.denials_of(FIRST.id, before=4)) == [2]
    assert numbers(denials.denials_of(FIRST.id, before=5)) == [6, 2]
    assert numbers(denials.denials_of(SECOND.id)) == [4]
    assert denials.denials_of(FIRST.id, before=2) == denials.denials_of("pass:nobody") == []


# Counts


def test_receipts_are_counted_by_minute_and_by_code(ledger: GroupCommit) -> None:
    for code, minute in (("", 0), ("a", 0), ("", 0), ("b", 2), ("b", 2), ("", 2)):
        ledger.run(observe(FIRST.id, code, minute=minute))
    early, late = [("", 2), ("a", 1)], [("", 1), ("b", 2)]
    assert ledger.read().denials_per_minute(0) == [
        *(MinuteCount(MINUTE, *it) for it in early),
        *(MinuteCount(MINUTE + 2, *it) for it in late),
    ]
    assert ledger.read().denials_per_code() == [CodeCount("", 3), CodeCount("a", 1), CodeCount("b", 2)]


def test_minutes_are_those_from_one_on(ledger: GroupCommit) -> None:
    for minute in (0, 1, 3):
        ledger.run(observe(FIRST.id, minute=minute))
    reader = ledger.read()
    assert [it.minute - MINUTE for it in reader.denials_per_minute(MINUTE + 1)] == [1, 3]
    assert [it.minute - MINUTE for it in reader.denials_per_minute(MINUTE + 2)] == [3]
    assert reader.denials_per_minute(MINUTE + 4) == []


def test_minutes_are_added_up_by_steps_that_begin_on_round_ones(ledger: GroupCommit) -> None:
    start = MINUTE // 10 * 10
    for minute in (0, 1, 9, 10, 25):
        ledger.run(observe(FIRST.id, minute=start + minute - MINUTE))
    found = ledger.read().denials_per_minute(start + 1, step=10)
    assert [(it.minute - start, it.receipts) for it in found] == [(0, 2), (10, 1), (20, 1)]


def test_the_receipts_of_a_group_are_all_counted(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    ledger.run(observe(FIRST.id, "a"))
    codes = ["", "a", "", "b", "a", "", "a"]
    together(ledger, *(observe((FIRST, SECOND)[index % 2].id, code) for index, code in enumerate(codes)))
    assert ledger.read().denials_per_code() == [CodeCount("", 3), CodeCount("a", 4), CodeCount("b", 1)]
    assert ledger.read().denials_per_minute(MINUTE) == [
        MinuteCount(MINUTE, *it) for it in ledger.read().denials_per_code()
    ]


def test_the_receipts_of_a_group_are_counted_in_their_own_minutes(ledger: GroupCommit) -> None:
    together(ledger, *(observe(FIRST.id, "a", minute=number // 2) for number in range(6)))
    assert ledger.read().denials_per_minute(0) == [MinuteCount(MINUTE + number, "a", 2) for number in range(3)]
    assert ledger.read().denials_per_code() == [CodeCount("a", 6)]


def test_an_empty_ledger_has_no_counts(ledger: GroupCommit) -> None:
    assert views(ledger.read()) == ([], [], 0, [], [], [], [])


# Notes


def test_notes_come_oldest_first_with_the_number_of_their_event(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    for text in ("one", "two", "é"):
        ledger.run(observe(FIRST.id, note=text))
    ledger.run(observe(SECOND.id, note="of another"))
    assert ledger.read().notes(FIRST.id) == [EventNote(1, "one"), EventNote(2, "two"), EventNote(3, "é")]
    assert ledger.read().notes(SECOND.id) == [EventNote(1, "of another")]
    assert ledger.read().notes("pass:nobody") == []


def test_only_the_last_notes_are_kept(ledger: GroupCommit) -> None:
    for number in range(MAX_NOTES + 3):
        ledger.run(observe(FIRST.id, note=f"note {number + 1}"))
    found = ledger.read().notes(FIRST.id)
    assert found == [EventNote(number, f"note {number}") for number in range(4, MAX_NOTES + 4)]


def test_a_group_with_more_notes_than_are_kept_leaves_the_last(ledger: GroupCommit) -> None:
    ledger.run(observe(FIRST.id, note="first"))
    count = 2 * MAX_NOTES + 7
    together(ledger, *(observe(FIRST.id, note=f"note {number}") for number in range(2, count + 2)))
    found = ledger.read().notes(FIRST.id)
    assert found == [EventNote(number, f"note {number}") for number in range(count + 2 - MAX_NOTES, count + 2)]


def test_a_receipt_without_a_note_leaves_the_notes_alone(ledger: GroupCommit) -> None:
    for work in (append_to(FIRST.id), observe(FIRST.id, note="one"), append_to(FIRST.id), observe(FIRST.id)):
        ledger.run(work)
    assert ledger.read().notes(FIRST.id) == [EventNote(1, "one")]


def test_a_note_can_come_with_a_key_and_the_first_receipt(ledger: GroupCommit) -> None:
    session = new_session("second", observed=1)
    pending = pending_on(session)
    ledger.run(lambda it: it.append(session, pending, once=IdempotencyKey("key", "digest"), note="one"))
    assert ledger.read().notes(SECOND.id) == [EventNote(1, "one")]
    assert ledger.run(lambda it: it.repeated(SECOND.id, "key")) is not None


# Who reports


def test_a_source_is_found_by_its_key_and_by_its_session(ledger: GroupCommit) -> None:
    ledger.run(report(SECOND.id, "key", '{"app":"é"}'), alone=True)
    told = Source(SECOND.id, "key", '{"app":"é"}')
    assert ledger.run(found_by("key"), alone=True) == ledger.read().source_of(SECOND.id) == told
    assert (ledger.run(found_by("other"), alone=True), ledger.read().source_of(FIRST.id)) == (None, None)


def test_a_key_finds_the_session_that_was_started_last_for_it(ledger: GroupCommit) -> None:
    for session in (SECOND, THIRD):
        ledger.run(report(session.id), alone=True)
        assert ledger.run(found_by("key"), alone=True) == Source(session.id, "key", "{}")
    assert ledger.read().source_of(SECOND.id) == Source(SECOND.id, "key", "{}")


def test_sessions_with_a_source_come_in_pages_in_the_order_they_were_started(ledger: GroupCommit) -> None:
    sessions = [new_session(f"of-{9 - number}") for number in range(4)]
    for session in sessions:
        ledger.run(put(session))
        if session is not sessions[1]:
            ledger.run(lambda it, session=session: reported(it, session.id))  # type: ignore[misc]
    reader = ledger.read()
    assert [(it.number, told) for it, told in reader.sources()] == [
        (number + 2, Source(sessions[number].id, "key", "{}")) for number in (0, 2, 3)
    ]
    assert [it for it, _ in reader.sources()] == [reader.session(sessions[number].id) for number in (0, 2, 3)]
    assert reader.sources(after=2, limit=1) == reader.sources()[1:2]
    assert reader.sources(after=5) == reader.sources(limit=0) == []
    assert reader.latest_sources() == reader.sources()[::-1]
    assert reader.latest_sources(limit=2) == reader.sources()[:0:-1]
    assert reader.source_count() == 3


def reported(transaction: Transaction, session_id: str) -> None:
    session = transaction.session(session_id)
    assert session is not None
    transaction.put_session(session)
    transaction.put_source(Source(session_id, "key", "{}"))


def test_work_sees_the_source_it_has_put_before_those_that_are_kept(ledger: GroupCommit) -> None:
    ledger.run(report(SECOND.id), alone=True)

    def work(transaction: Transaction) -> list[Source | None]:
        before = transaction.source("key")
        report(THIRD.id)(transaction)
        return [before, transaction.source("key"), transaction.source("other")]

    told = [Source(SECOND.id, "key", "{}"), Source(THIRD.id, "key", "{}"), None]
    assert ledger.run(work, alone=True) == told


def test_work_sees_the_last_source_it_has_put_under_a_key(ledger: GroupCommit) -> None:
    def work(transaction: Transaction) -> Source | None:
        for session in (SECOND, THIRD):
            report(session.id)(transaction)
        return transaction.source("key")

    assert ledger.run(work, alone=True) == ledger.run(found_by("key"), alone=True) == Source(THIRD.id, "key", "{}")


def test_work_sees_the_source_that_work_before_it_in_its_group_has_put(ledger: GroupCommit) -> None:
    answers = together(ledger, report(SECOND.id), report(THIRD.id), found_by("key"))
    assert answers[2] == ledger.run(found_by("key"), alone=True) == Source(THIRD.id, "key", "{}")


def test_a_source_leaves_the_epoch_alone(ledger: GroupCommit) -> None:
    ledger.run(report(SECOND.id), alone=True)
    assert (ledger.read().ledger_state().epoch, ledger.read().source_count()) == (0, 1)


def test_a_source_comes_with_the_first_receipt_of_its_session(ledger: GroupCommit) -> None:
    def work(transaction: Transaction) -> None:
        transaction.put_source(Source(SECOND.id, "key", "{}"))
        transaction.append(SECOND, pending_on(SECOND))

    ledger.run(work, alone=True)
    assert ledger.read().source_of(SECOND.id) == Source(SECOND.id, "key", "{}")
    assert len(checked(ledger.read(), SECOND.id)) == 1


# All or nothing, and two processes


def test_work_that_raises_counts_nothing_and_leaves_no_note_and_no_source(ledger: GroupCommit) -> None:
    ledger.run(observe(FIRST.id, "a", note="one"))
    before = views(ledger.read())
    for work in (observe(FIRST.id, "a", note="two"), observe(FIRST.id), report(SECOND.id)):
        with pytest.raises(Refused):
            ledger.run(then_refuse(work))
    assert views(ledger.read()) == before
    assert ledger.run(found_by("key"), alone=True) is None


def test_work_that_raises_in_a_group_is_not_counted_with_it(ledger: GroupCommit) -> None:
    works = (
        observe(FIRST.id, "a", note="one"),
        then_refuse(observe(FIRST.id, "a", note="no")),
        observe(FIRST.id, note="two"),
    )
    answers = together(ledger, *works)
    assert isinstance(answers[1], Refused)
    assert ledger.read().denials_per_code() == [CodeCount("", 1), CodeCount("a", 1)]
    assert ledger.read().notes(FIRST.id) == [EventNote(1, "one"), EventNote(2, "two")]


def put_twice(transaction: Transaction) -> None:
    observe(FIRST.id, "a", note="no")(transaction)
    report(THIRD.id)(transaction)
    transaction.put_source(Source(THIRD.id, "other", "{}"))


def put_again(transaction: Transaction) -> None:
    observe(FIRST.id, "a", note="no")(transaction)
    reported(transaction, SECOND.id)


def put_alone(transaction: Transaction) -> None:
    observe(FIRST.id, "a", note="no")(transaction)
    transaction.put_source(Source(THIRD.id, "key", "{}"))


def put_nothing_else(transaction: Transaction) -> None:
    transaction.put_source(Source(FIRST.id, "key", "{}"))


@pytest.mark.parametrize("work", [put_twice, put_again, put_alone, put_nothing_else])
def test_a_source_that_is_refused_leaves_everything_as_it_was(ledger: GroupCommit, work: Callable[..., Any]) -> None:
    ledger.run(report(SECOND.id), alone=True)
    before = views(ledger.read()), ledger.read().overview()
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.run(work, alone=True)
    assert caught.value.code == "ledger_unavailable"
    assert (views(ledger.read()), ledger.read().overview()) == before


def test_two_processes_count_together(ledger: GroupCommit, other: GroupCommit) -> None:
    for opened, code in ((ledger, "a"), (other, "a"), (ledger, ""), (other, "b"), (ledger, "a")):
        opened.run(observe(FIRST.id, code, note=f"by {code}"))
    assert (
        ledger.read().denials_per_code()
        == other.read().denials_per_code()
        == [CodeCount("", 1), CodeCount("a", 3), CodeCount("b", 1)]
    )
    assert [it.text for it in ledger.read().notes(FIRST.id)] == ["by a", "by a", "by ", "by b", "by a"]
    assert numbers(other.read().denials()) == [5, 4, 2, 1]


def test_a_receipt_that_had_to_be_made_again_is_counted_once(ledger: GroupCommit, other: GroupCommit) -> None:
    interfere = once(lambda: other.run(observe(FIRST.id, "b", note="theirs")))

    def work(transaction: Transaction) -> None:
        observe(FIRST.id, "a", note="ours")(transaction)
        interfere()

    ledger.run(work)
    assert ledger.read().denials_per_code() == [CodeCount("a", 1), CodeCount("b", 1)]
    assert ledger.read().notes(FIRST.id) == [EventNote(1, "theirs"), EventNote(2, "ours")]


def test_a_source_that_another_process_has_put_is_found(ledger: GroupCommit, other: GroupCommit) -> None:
    assert ledger.run(found_by("key"), alone=True) is None
    other.run(report(SECOND.id), alone=True)
    assert ledger.run(found_by("key"), alone=True) == Source(SECOND.id, "key", "{}")


def test_two_processes_that_look_for_a_key_alone_start_one_session(ledger: GroupCommit, other: GroupCommit) -> None:
    def start(session_id: str) -> Work[str]:
        def work(transaction: Transaction) -> str:
            there = transaction.source("key")
            if there is None:
                report(session_id)(transaction)
            return there.session_id if there else session_id

        return work

    with ThreadPoolExecutor(2) as threads:
        tried = [(ledger, SECOND), (other, THIRD)] * 4
        answers = set(threads.map(lambda it: it[0].run(start(it[1].id), alone=True), tried))
    assert [told.session_id for _, told in ledger.read().sources()] == list(answers)


def test_what_is_kept_ready_is_there_when_the_ledger_is_opened_again(place: Place, ledger: GroupCommit) -> None:
    ledger.run(report(SECOND.id), alone=True)
    for code in ("", "a"):
        ledger.run(observe(FIRST.id, code, note=f"by {code}"))
    before = views(ledger.read())
    ledger.close()
    again = place.open()
    again.run(lambda transaction: transaction.session(FIRST.id))
    assert views(again.read()) == before
    again.close()
