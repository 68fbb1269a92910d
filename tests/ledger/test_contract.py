"""What every ledger promises: durable when it returns, all or nothing, one after the other, and chains never fork."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs

from remit.claims.canonical import sha256_hex
from remit.errors import HeadMoved
from remit.ledger.commit import GroupCommit
from remit.ledger.records import (
    Delegation,
    EarlierRequest,
    KeyRecord,
    LedgerOverview,
    LedgerState,
    Session,
    StoredReceipt,
    UnsignedReceipt,
)
from remit.ledger.store import Transaction, Work
from tests.ledger.contract import (
    FIRST,
    FIRST_KEY,
    LEDGER_ID,
    PATIENT_S,
    SECOND,
    Place,
    Refused,
    append_once,
    append_to,
    checked,
    new_session,
    once,
    pending_on,
    put,
    then_refuse,
    together,
)
from tests.world import OURS, THEIRS


def stored(ledger: GroupCommit, session_id: str = FIRST.id) -> Session:
    session = ledger.read().session(session_id)
    assert session is not None
    return session


def read_in(transaction: Transaction, session_id: str = FIRST.id) -> Session:
    session = transaction.session(session_id)
    assert session is not None
    return session


# Durable when it returns


def test_what_work_wrote_is_there_for_readers_when_its_answer_is(ledger: GroupCommit) -> None:
    receipt = ledger.run(append_to(FIRST.id)).receipt
    assert ledger.read().receipt(receipt.claims.receipt_id) == StoredReceipt(
        FIRST.id, 1, receipt.claims.receipt_id, receipt.token, 1
    )
    assert stored(ledger).receipt_hash == receipt.hash == sha256_hex(receipt.token.encode())
    assert checked(ledger.read(), FIRST.id) == [receipt.token]


def test_what_work_wrote_is_there_when_the_ledger_is_opened_again(place: Place, ledger: GroupCommit) -> None:
    before = [ledger.run(append_to(FIRST.id)).receipt.token for _ in range(3)]
    ledger.close()
    again = place.open()
    after = again.run(append_to(FIRST.id)).receipt.token
    again.close()
    assert checked(again.read(), FIRST.id) == [*before, after]


def test_readers_see_nothing_of_work_that_is_not_done(ledger: GroupCommit) -> None:
    looked: list[object] = []

    def work(transaction: Transaction) -> None:
        pending = append_to(FIRST.id)(transaction)
        looked.append(ledger.read().receipt(pending.draft.claims.receipt_id))
        looked.append(pending.signed)

    ledger.run(work)
    assert looked == [None, None]


# All or nothing


def test_work_that_raises_after_writing_leaves_nothing(ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    before = ledger.read().overview(), stored(ledger)
    everything: list[Work[object]] = [
        append_to(FIRST.id, key="key"),
        put(SECOND),
        lambda it: it.put_revocation("pass:x", at_ms=1, reason="r"),
        lambda it: it.put_ledger_state(LedgerState(THEIRS.kid, kill_switch=True)),
        lambda it: it.put_key(KeyRecord(THEIRS.kid, "pem", None, 1)),
        lambda it: it.put_attestation(FIRST.id, "att:1", "token", "bookmark"),
    ]

    def work(transaction: Transaction) -> None:
        for write in everything:
            write(transaction)
        raise Refused

    with pytest.raises(Refused):
        ledger.run(work)
    assert (ledger.read().overview(), stored(ledger)) == before
    assert ledger.read().keys() == [FIRST_KEY]
    assert ledger.read().attestations(FIRST.id) == []
    assert ledger.run(lambda it: (it.ledger_state, it.revoked("pass:x"), it.repeated(FIRST.id, "key"))) == (
        LedgerState(OURS.kid),
        False,
        None,
    )


def test_work_that_raises_harms_no_other_in_its_group(place: Place, ledger: GroupCommit) -> None:
    answers = together(
        ledger,
        append_to(FIRST.id),
        then_refuse(append_to(FIRST.id)),
        then_refuse(put(SECOND)),
        append_to(FIRST.id),
    )
    assert isinstance(answers[1], Refused)
    assert isinstance(answers[2], Refused)
    assert checked(ledger.read(), FIRST.id) == [answers[0].receipt.token, answers[3].receipt.token]
    assert ledger.read().session(SECOND.id) is None


# One after the other


def test_work_sees_its_own_writes(ledger: GroupCommit) -> None:
    def work(transaction: Transaction) -> None:
        first = append_to(FIRST.id, key="one")(transaction)
        first_id = first.draft.claims.receipt_id
        second = append_to(FIRST.id, result_of=first_id)(transaction)
        assert read_in(transaction).length == 2
        assert transaction.receipt(first_id) is first
        assert transaction.repeated(FIRST.id, "one") == EarlierRequest(first, "digest of one")
        assert transaction.result_of(first_id) is second
        transaction.put_revocation("pass:x", at_ms=1, reason="r")
        transaction.put_ledger_state(transaction.ledger_state._replace(kill_switch=True))
        assert transaction.revoked("pass:x")
        assert transaction.ledger_state.kill_switch

    ledger.run(work)
    assert len(checked(ledger.read(), FIRST.id)) == 2


def test_work_sees_the_work_before_it_in_its_group(ledger: GroupCommit) -> None:
    answers = together(ledger, *(append_to(FIRST.id) for _ in range(20)))
    assert checked(ledger.read(), FIRST.id) == [pending.receipt.token for pending in answers]


def test_one_key_in_one_group_is_one_receipt(ledger: GroupCommit) -> None:
    answers = together(ledger, *(append_once(FIRST.id, "key") for _ in range(5)))
    assert len(set(answers)) == 1
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_a_group_holds_receipts_of_many_sessions(ledger: GroupCommit) -> None:
    sessions = [new_session(f"of-{number}") for number in range(5)]
    together(ledger, *(put(session) for session in sessions), *(append_to(session.id) for session in sessions * 3))
    assert [len(checked(ledger.read(), session.id)) for session in sessions] == [3] * 5


def test_a_session_can_begin_with_its_first_receipt(ledger: GroupCommit) -> None:
    pending = pending_on(SECOND)
    after = ledger.run(lambda transaction: transaction.append(SECOND, pending))
    assert (after.length, after.receipt_id) == (1, pending.receipt.claims.receipt_id)
    assert checked(ledger.read(), SECOND.id) == [pending.receipt.token]


# The head


def test_a_receipt_on_a_head_that_moved_is_refused(ledger: GroupCommit) -> None:
    stale = stored(ledger)
    ledger.run(append_to(FIRST.id))
    with pytest.raises(HeadMoved) as caught:
        ledger.run(lambda transaction: transaction.append(stale, pending_on(stale)))
    assert caught.value.code == "head_moved"
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_a_receipt_that_was_drafted_on_another_head_is_refused(ledger: GroupCommit) -> None:
    early = pending_on(stored(ledger))
    ledger.run(append_to(FIRST.id))
    with pytest.raises(HeadMoved):
        ledger.run(lambda transaction: transaction.append(read_in(transaction), early))
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_a_receipt_that_was_drafted_for_another_session_is_refused(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    with pytest.raises(HeadMoved):
        ledger.run(lambda transaction: transaction.append(read_in(transaction), pending_on(SECOND)))
    assert checked(ledger.read(), FIRST.id) == []


def test_a_receipt_on_a_head_that_moved_harms_no_other_in_its_group(ledger: GroupCommit) -> None:
    stale = stored(ledger)
    answers = together(
        ledger,
        append_to(FIRST.id),
        lambda transaction: transaction.append(stale, pending_on(stale)),
        append_to(FIRST.id),
    )
    assert isinstance(answers[1], HeadMoved)
    assert checked(ledger.read(), FIRST.id) == [answers[0].receipt.token, answers[2].receipt.token]


# What is kept comes back as it was


def test_a_session_comes_back_as_it_was_put(ledger: GroupCommit) -> None:
    session = new_session("whole", parent="pass:parent", limit=7, used=3, reserved=2, lifetime_ms=2**40)
    session = structs.replace(session, compliant=5, violation=4, insufficient_evidence=3, elapsed_ms=11)
    session = structs.replace(session, state="revoked", cause="passport_revoked", ended_ms=2**42, seen_boot="boot é")
    session = structs.replace(session, holder="aGVsbG8", observed=9, marks="sent, wrote é")
    ledger.run(put(session))
    kept = stored(ledger, session.id)
    assert (kept.number, kept.version) == (2, 1)
    assert structs.replace(kept, number=0, version=0) == session
    assert ledger.run(lambda transaction: transaction.session(session.id)) == kept


def test_a_session_that_was_changed_comes_back_changed(ledger: GroupCommit) -> None:
    changes = {"state": "ended", "cause": "asked", "ended_ms": 9, "used": 4, "reserved": 1, "seen_mono_ms": 77}
    changes |= {"observed": 3, "marks": "sent"}
    ledger.run(lambda transaction: transaction.put_session(structs.replace(read_in(transaction), **changes)))
    kept = stored(ledger)
    assert kept == structs.replace(FIRST, number=1, version=2, **changes)
    assert list(ledger.run(lambda transaction: list(transaction.active_sessions()), alone=True)) == []


def test_what_a_session_has_used_is_kept_with_the_receipt(ledger: GroupCommit) -> None:
    def work(transaction: Transaction) -> Session:
        session = structs.replace(read_in(transaction), used=1, compliant=1)
        return transaction.append(session, pending_on(session))

    after = ledger.run(work)
    kept = stored(ledger)
    assert (kept.used, kept.compliant, kept.length) == (after.used, after.compliant, after.length) == (1, 1, 1)


def test_sessions_come_in_pages_in_the_order_they_were_started(ledger: GroupCommit) -> None:
    for number in range(5):
        ledger.run(put(new_session(f"of-{9 - number}")))
    reader = ledger.read()
    everything = reader.sessions()
    assert [session.number for session in everything] == [1, 2, 3, 4, 5, 6]
    assert [session.id for session in everything[1:]] == [new_session(f"of-{9 - number}").id for number in range(5)]
    assert reader.sessions(after=2, limit=3) == everything[2:5]
    assert reader.sessions(after=6) == []


def test_receipts_come_in_pages_in_the_order_of_the_chain(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    for _ in range(4):
        ledger.run(append_to(FIRST.id))
        ledger.run(append_to(SECOND.id))
    reader = ledger.read()
    everything = reader.receipts(FIRST.id)
    assert [(kept.session_id, kept.seq) for kept in everything] == [(FIRST.id, number) for number in (1, 2, 3, 4)]
    assert reader.receipts(FIRST.id, after=1, limit=2) == everything[1:3]
    assert reader.receipts(FIRST.id, after=4) == reader.receipts("pass:nobody") == []


def test_a_receipt_is_found_by_its_id_its_key_and_what_it_is_the_result_of(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    decision = ledger.run(append_to(FIRST.id, key="key")).receipt.claims.receipt_id
    result = ledger.run(append_to(FIRST.id, result_of=decision)).receipt
    kept = ledger.read().receipts(FIRST.id)
    assert kept[1] == StoredReceipt(FIRST.id, 2, result.claims.receipt_id, result.token, 2)
    found = ledger.run(lambda it: (it.receipt(decision), it.repeated(FIRST.id, "key"), it.result_of(decision)))
    assert found == (kept[0], EarlierRequest(kept[0], "digest of key"), kept[1])
    assert ledger.run(
        lambda it: (
            it.receipt("rcpt:none"),
            it.repeated(SECOND.id, "key"),
            it.repeated(FIRST.id, "other"),
            it.result_of(result.claims.receipt_id),
        )
    ) == (None, None, None, None)


def delegation(receipt_id: str, request: str = "request-1") -> Delegation:
    return Delegation(FIRST.id, request, "digest", f"pass:child:{request}", "passport", 5, receipt_id, 2**41)


def delegate(made: Delegation) -> Work[None]:
    return lambda transaction: transaction.put_delegation(made)


def test_a_delegation_comes_back_until_it_is_settled_and_after(ledger: GroupCommit) -> None:
    receipt = ledger.run(append_to(FIRST.id)).receipt.claims.receipt_id
    made, later = delegation(receipt), delegation(receipt, "request-2")
    for each in (made, later):
        ledger.run(delegate(each))
    assert ledger.run(lambda it: it.delegation(FIRST.id, "request-1")) == made
    assert ledger.run(lambda it: it.delegation_to(made.child)) == made
    assert ledger.run(lambda it: it.open_delegations(FIRST.id), alone=True) == [made, later]
    settled = made._replace(settled=True)
    ledger.run(lambda it: it.put_delegation(settled))
    assert ledger.run(lambda it: it.delegation(FIRST.id, "request-1")) == settled
    assert ledger.run(lambda it: it.delegation_to(made.child)) == settled
    assert ledger.run(lambda it: it.open_delegations(FIRST.id), alone=True) == [later]
    assert ledger.run(lambda it: (it.delegation(SECOND.id, "request-1"), it.delegation_to("pass:x"))) == (None, None)


def test_work_sees_the_delegations_it_has_made_and_settled(ledger: GroupCommit) -> None:
    receipt = ledger.run(append_to(FIRST.id)).receipt.claims.receipt_id
    made, later = delegation(receipt), delegation(receipt, "request-2")
    ledger.run(lambda it: it.put_delegation(made))

    def work(transaction: Transaction) -> list[Delegation]:
        transaction.put_delegation(later)
        assert transaction.delegation(FIRST.id, "request-2") == transaction.delegation_to(later.child) == later
        transaction.put_delegation(made._replace(settled=True))
        return transaction.open_delegations(FIRST.id)

    assert ledger.run(work, alone=True) == [later]


def test_a_revocation_stays(ledger: GroupCommit) -> None:
    for at_ms in (1, 2):
        ledger.run(lambda it, at_ms=at_ms: it.put_revocation("pass:x", at_ms=at_ms, reason="lost"))  # type: ignore[misc]
    assert ledger.run(lambda it: (it.revoked("pass:x"), it.revoked("pass:y"))) == (True, False)


def test_the_epoch_counts_changes_of_switches_revocations_and_keys(ledger: GroupCommit) -> None:
    changes: list[Work[None]] = [
        lambda it: it.put_ledger_state(it.ledger_state._replace(kill_switch=True)),
        lambda it: it.put_revocation("pass:x", at_ms=1, reason="lost"),
        lambda it: it.put_key(KeyRecord(THEIRS.kid, "pem", "change", 2)),
        lambda it: it.put_ledger_state(LedgerState(THEIRS.kid)),
    ]
    seen = []
    for change in changes:
        ledger.run(change)
        seen.append(ledger.run(lambda it: it.ledger_state))
    assert seen == [
        LedgerState(OURS.kid, kill_switch=True, epoch=1),
        LedgerState(OURS.kid, kill_switch=True, epoch=2),
        LedgerState(OURS.kid, kill_switch=True, epoch=3),
        LedgerState(THEIRS.kid, kill_switch=False, epoch=4),
    ]


def test_receipts_and_sessions_leave_the_epoch_alone(ledger: GroupCommit) -> None:
    ledger.run(append_to(FIRST.id))
    assert ledger.run(lambda it: it.ledger_state) == LedgerState(OURS.kid)


def test_keys_come_oldest_first(ledger: GroupCommit) -> None:
    later = [KeyRecord(f"{letter}-kid", f"pem {letter}", f"change {letter}", 7) for letter in "zay"]
    for record in later:
        ledger.run(lambda it, record=record: it.put_key(record))  # type: ignore[misc]
    assert ledger.read().keys() == [FIRST_KEY, *later]


def test_attestations_come_oldest_first_and_the_last_bookmark_counts(ledger: GroupCommit) -> None:
    ledger.run(put(SECOND))
    assert (ledger.read().attestations(FIRST.id), ledger.read().bookmark(FIRST.id)) == ([], None)
    for number, bookmark in enumerate(["early", "late", None]):
        ledger.run(
            lambda it, number=number, bookmark=bookmark: it.put_attestation(  # type: ignore[misc]
                FIRST.id, f"att:{9 - number}", f"token {number}", bookmark
            )
        )
    assert ledger.read().attestations(FIRST.id) == ["token 0", "token 1", "token 2"]
    assert ledger.read().bookmark(FIRST.id) == "late"
    assert (ledger.read().attestations(SECOND.id), ledger.read().bookmark(SECOND.id)) == ([], None)


def test_active_sessions_are_those_that_are_not_over(ledger: GroupCommit) -> None:
    ledger.run(put(new_session("over", state="expired", cause="late", ended_ms=1)))
    ledger.run(put(SECOND))
    assert ledger.run(lambda it: list(it.active_sessions()), alone=True) == [FIRST.id, SECOND.id]
    assert ledger.read().active_session_count() == 2


def test_readers_see_how_the_switches_stand(ledger: GroupCommit) -> None:
    ledger.run(lambda it: it.put_ledger_state(it.ledger_state._replace(kill_switch=True)), alone=True)
    assert ledger.read().ledger_state().kill_switch


def test_the_overview_tells_how_much_there_is_and_the_last_receipt(ledger: GroupCommit) -> None:
    assert ledger.read().overview() == LedgerOverview(LEDGER_ID, 1, 0, None, None, 0)
    ledger.run(put(SECOND))
    ledger.run(append_to(SECOND.id))
    last = ledger.run(append_to(FIRST.id)).receipt
    assert ledger.read().overview() == LedgerOverview(LEDGER_ID, 2, 2, last.claims.receipt_id, last.hash, 0)


def test_what_is_not_there_is_none(ledger: GroupCommit) -> None:
    reader = ledger.read()
    assert (reader.session("pass:nobody"), reader.receipt("rcpt:none"), reader.bookmark("pass:nobody")) == (None,) * 3
    assert ledger.run(lambda it: it.session("pass:nobody")) is None


# Two processes on one ledger


def test_two_processes_on_one_session_never_fork_its_chain(ledger: GroupCommit, other: GroupCommit) -> None:
    def many(opened: GroupCommit) -> list[str]:
        return [opened.run(append_to(FIRST.id)).receipt.token for _ in range(25)]

    with ThreadPoolExecutor(4) as threads:
        written = [token for tokens in threads.map(many, [ledger, other] * 2) for token in tokens]
    assert sorted(checked(ledger.read(), FIRST.id)) == sorted(written)


def test_work_sees_what_another_process_has_appended(ledger: GroupCommit, other: GroupCommit) -> None:
    for opened in (ledger, other, ledger, other, other):
        opened.run(append_to(FIRST.id))
    assert ledger.run(lambda transaction: read_in(transaction).length) == 5


def test_work_sees_what_another_process_has_appended_after_work_that_was_refused(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    ledger.run(append_to(FIRST.id))
    interfere = once(lambda: other.run(append_to(FIRST.id)))

    def work(transaction: Transaction) -> None:
        append_to(FIRST.id)(transaction)
        interfere()

    ledger.run(work)
    for _ in range(3):
        other.run(append_to(FIRST.id))
        other_length = other.run(lambda transaction: read_in(transaction).length)
        assert ledger.run(lambda transaction: read_in(transaction).length) == other_length


def test_a_receipt_of_another_process_in_between_is_built_upon(ledger: GroupCommit, other: GroupCommit) -> None:
    others: list[UnsignedReceipt] = []
    interfere = once(lambda: others.append(other.run(append_to(FIRST.id))))

    def work(transaction: Transaction) -> UnsignedReceipt:
        pending = append_to(FIRST.id)(transaction)
        interfere()
        return pending

    ours = ledger.run(work)
    assert checked(ledger.read(), FIRST.id) == [others[0].receipt.token, ours.receipt.token]


def test_a_group_is_done_again_if_another_process_was_faster(ledger: GroupCommit, other: GroupCommit) -> None:
    interfere = once(lambda: other.run(append_to(FIRST.id)))

    def refuse(transaction: Transaction) -> None:
        interfere()
        raise Refused

    answers = together(ledger, append_to(FIRST.id), refuse, append_to(FIRST.id))
    assert isinstance(answers[1], Refused)
    assert checked(ledger.read(), FIRST.id)[1:] == [answers[0].receipt.token, answers[2].receipt.token]


def test_two_processes_that_start_one_session_start_it_once(ledger: GroupCommit, other: GroupCommit) -> None:
    def start(transaction: Transaction, nonce: str) -> str:
        there = transaction.session(SECOND.id)
        if there is None:
            transaction.put_session(structs.replace(SECOND, run_nonce=nonce))
        return there.run_nonce if there else nonce

    interfere = once(lambda: other.run(lambda it: start(it, "theirs")))

    def work(transaction: Transaction) -> str:
        answer = start(transaction, "ours")
        interfere()
        return answer

    assert ledger.run(work) == stored(ledger, SECOND.id).run_nonce == "theirs"


def test_one_key_in_two_processes_is_one_receipt(ledger: GroupCommit, other: GroupCommit) -> None:
    others: list[str] = []
    interfere = once(lambda: others.append(other.run(append_once(FIRST.id, "key"))))

    def work(transaction: Transaction) -> str:
        answer = append_once(FIRST.id, "key")(transaction)
        interfere()
        return answer

    assert [ledger.run(work)] == others
    assert len(checked(ledger.read(), FIRST.id)) == 1


def test_many_with_one_key_in_two_processes_get_one_receipt(ledger: GroupCommit, other: GroupCommit) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(lambda opened: opened.run(append_once(FIRST.id, "key")), [ledger, other] * 8))
    assert len(answers) == len(checked(ledger.read(), FIRST.id)) == 1


def kill_switch(*, on: bool) -> Work[None]:
    return lambda it: it.put_ledger_state(it.ledger_state._replace(kill_switch=on))


def test_a_kill_switch_of_another_process_holds_for_work_that_was_under_way(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    interfere = once(lambda: other.run(kill_switch(on=True)))

    def work(transaction: Transaction) -> bool:
        on = transaction.ledger_state.kill_switch
        append_to(FIRST.id)(transaction)
        interfere()
        return on

    assert ledger.run(work)


def test_a_revocation_of_another_process_holds_for_work_that_was_under_way(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    interfere = once(lambda: other.run(lambda it: it.put_revocation("pass:x", at_ms=1, reason="lost")))

    def work(transaction: Transaction) -> bool:
        revoked = transaction.revoked("pass:x")
        append_to(FIRST.id)(transaction)
        interfere()
        return revoked

    assert ledger.run(work)


def test_a_delegation_that_another_process_settles_is_seen_by_work_that_was_under_way(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    made = delegation(ledger.run(append_to(FIRST.id)).receipt.claims.receipt_id)
    ledger.run(lambda it: it.put_delegation(made))

    def settle(transaction: Transaction) -> None:
        append_to(FIRST.id)(transaction)
        transaction.put_delegation(made._replace(settled=True))

    interfere = once(lambda: other.run(settle))

    def start(transaction: Transaction) -> Delegation | None:
        found = transaction.delegation_to(made.child)
        interfere()
        transaction.put_session(SECOND)
        return found

    assert ledger.run(start) == made._replace(settled=True)


def test_work_that_only_reads_sees_what_another_process_has_written(ledger: GroupCommit, other: GroupCommit) -> None:
    def look(transaction: Transaction) -> tuple[int, bool]:
        return read_in(transaction).length, transaction.ledger_state.kill_switch

    assert ledger.run(look) == (0, False)
    other.run(append_to(FIRST.id))
    other.run(kill_switch(on=True))
    assert ledger.run(look) == (1, True)


def test_work_that_refuses_does_not_do_so_by_what_another_process_has_changed(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    def start(transaction: Transaction) -> None:
        if transaction.ledger_state.kill_switch:
            raise Refused
        transaction.put_session(SECOND)

    ledger.run(kill_switch(on=True))
    with pytest.raises(Refused):
        ledger.run(start)
    other.run(kill_switch(on=False))
    ledger.run(start)


def test_a_head_that_another_process_has_moved_is_not_moved_for_one_who_has_read_it(
    ledger: GroupCommit, other: GroupCommit
) -> None:
    ledger.run(append_to(FIRST.id))
    other.run(append_to(FIRST.id))
    fresh = stored(ledger)
    ledger.run(lambda it: it.append(fresh, pending_on(fresh)))
    assert len(checked(ledger.read(), FIRST.id)) == 3


def test_readers_do_not_wait_for_a_writer_that_holds_the_ledger(ledger: GroupCommit) -> None:
    begun, release = threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> UnsignedReceipt:
        pending = append_to(FIRST.id)(transaction)
        begun.set()
        assert release.wait(PATIENT_S)
        return pending

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(ledger.run, hold, alone=True)
        assert begun.wait(PATIENT_S)
        assert stored(ledger).length == 0
        assert ledger.read().overview().receipts == 0
        release.set()
        assert held.result().receipt.claims.step_id == "step:000001"
    assert stored(ledger).length == 1


def test_a_writer_waits_for_one_of_another_process(ledger: GroupCommit, other: GroupCommit) -> None:
    begun, release = threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> UnsignedReceipt:
        begun.set()
        assert release.wait(PATIENT_S)
        return append_to(FIRST.id)(transaction)

    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(ledger.run, hold, alone=True)
        assert begun.wait(PATIENT_S)
        waiting = threads.submit(other.run, append_to(FIRST.id))
        release.set()
        tokens = [held.result().receipt.token, waiting.result().receipt.token]
    assert checked(ledger.read(), FIRST.id) == tokens
