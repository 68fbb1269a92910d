"""Keys of a ledger: one hands over to the next by a signed record, and what the old one signed stays believed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.claims.chain import verifier_id
from remit.claims.keys import Keyring, SigningKey, TrustedKey
from remit.claims.succession import sign_key_change, verify_key_change
from remit.errors import KeyUnknown, KeyUseForbidden, RemitError, SignatureInvalid, StateMissing, TokenKindMismatch
from remit.ledger.embedded import EmbeddedLedger, open_embedded_ledger
from remit.ledger.keys import build_keyring
from remit.ledger.records import KeyRecord
from remit.ledger.store import Transaction
from tests.ledger.changing import rotate
from tests.ledger.contract import FIRST_KEY, PATIENT_S, append_to, checked, new_session
from tests.world import NOW, OURS, STRANGER, THEIR_ISSUER, THEIRS, key_named, session_of

FIRST = new_session("first")
NEXT, LAST = key_named("keys: next"), key_named("keys: last")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def one(place: Path) -> Iterator[EmbeddedLedger]:
    embedded = open_embedded_ledger(place, deadline_s=PATIENT_S)
    embedded.ledger.run(start)
    yield embedded
    embedded.close()


@pytest.fixture
def two(place: Path, one: EmbeddedLedger) -> Iterator[EmbeddedLedger]:
    """The same home, opened by another process."""
    embedded = open_embedded_ledger(place, deadline_s=PATIENT_S)
    yield embedded
    embedded.close()


def start(transaction: Transaction) -> None:
    transaction.put_session(new_session("first", verifier=f"remit:{transaction.ledger_state.kid}"))


def append(embedded: EmbeddedLedger) -> str:
    """Append a receipt, and return the id of the key that signed it."""
    return embedded.ledger.run(append_to(FIRST.id, signing=embedded.keys.signing)).receipt.kid


def rotated(embedded: EmbeddedLedger) -> KeyRecord:
    return rotate(embedded.ledger, embedded.keys, embedded.key_files, NOW * 1000)


def records(embedded: EmbeddedLedger) -> list[KeyRecord]:
    return embedded.ledger.read().keys()


def kid_of(embedded: EmbeddedLedger) -> str:
    return embedded.ledger.run(lambda it: it.ledger_state.kid)


# Changing the key


def test_a_chain_goes_on_under_the_new_key_and_verifies(one: EmbeddedLedger) -> None:
    old = append(one)
    new = rotated(one).kid
    assert append(one) == append(one) == new != old
    assert len(checked(one.ledger.read(), FIRST.id, one.keys.keyring())) == 3


def test_the_record_of_a_change_is_signed_by_the_old_key(one: EmbeddedLedger) -> None:
    (before,) = one.ledger.read().keys()
    record = rotated(one)
    assert one.ledger.read().keys() == [before, record]
    change = verify_key_change(record.change or "", build_keyring([before]))
    assert (change.predecessor, change.successor.kid) == (before.kid, record.kid)
    assert change.successor.to_pem().decode() == record.public_pem


def test_the_new_key_is_the_one_that_signs_and_the_epoch_moves(one: EmbeddedLedger) -> None:
    before = one.ledger.run(lambda it: it.ledger_state)
    record = rotated(one)
    after = one.ledger.run(lambda it: it.ledger_state)
    assert (after.kid, after.epoch > before.epoch) == (record.kid, True)


def test_the_file_of_the_old_key_is_gone(one: EmbeddedLedger, place: Path) -> None:
    old = kid_of(one)
    new = rotated(one).kid
    assert one.key_files.kids() == [new]
    assert [path.name for path in (place / "keys").iterdir()] == [f"{new}.pem"]
    with pytest.raises(StateMissing):
        one.key_files.load(old)


def test_an_old_key_that_a_crash_has_left_is_removed_when_the_ledger_is_opened(
    place: Path, one: EmbeddedLedger
) -> None:
    old = one.keys.signing(kid_of(one))
    new = rotated(one)
    one.home.folder("keys").create(f"{old.kid}.pem", old.unsafe_to_pem())
    one.close()
    again = open_embedded_ledger(place)
    kids = again.key_files.kids()
    again.close()
    assert kids == [new.kid]


def test_the_old_key_stays_believed(one: EmbeddedLedger) -> None:
    old = append(one)
    new = rotated(one).kid
    ring = one.keys.keyring()
    assert ring.find(old).key.kid == old
    assert ring.succeeds(new, old)


def test_a_ledger_opens_again_after_a_change_and_goes_on(place: Path, one: EmbeddedLedger) -> None:
    append(one)
    new = rotated(one).kid
    one.close()
    again = open_embedded_ledger(place, deadline_s=PATIENT_S)
    assert append(again) == new
    assert len(checked(again.ledger.read(), FIRST.id, again.keys.keyring())) == 2
    again.close()


def test_keys_can_be_changed_again_and_again(one: EmbeddedLedger) -> None:
    kids = [append(one)]
    for _ in range(3):
        rotated(one)
        kids.append(append(one))
    assert len(set(kids)) == 4
    assert [record.kid for record in records(one)] == kids
    assert len(checked(one.ledger.read(), FIRST.id, one.keys.keyring())) == 4


def test_a_chain_that_saw_nothing_of_a_key_in_between_goes_on(one: EmbeddedLedger) -> None:
    append(one)
    rotated(one)
    rotated(one)
    append(one)
    assert len(checked(one.ledger.read(), FIRST.id, one.keys.keyring())) == 2


def test_a_change_that_cannot_be_kept_leaves_the_old_key_in_use(place: Path, one: EmbeddedLedger) -> None:
    old = append(one)
    one.ledger.close()
    with pytest.raises(RemitError):
        rotated(one)
    again = open_embedded_ledger(place, deadline_s=PATIENT_S)
    assert append(again) == old
    again.close()


# Another process


def test_another_process_goes_on_with_the_new_key(one: EmbeddedLedger, two: EmbeddedLedger) -> None:
    old = append(two)
    new = rotated(one).kid
    assert append(two) == append(one) == new != old
    assert len(checked(two.ledger.read(), FIRST.id, two.keys.keyring())) == 3


def test_a_process_that_has_not_signed_yet_begins_with_the_new_key(one: EmbeddedLedger, two: EmbeddedLedger) -> None:
    new = rotated(one).kid
    assert append(two) == new
    assert len(checked(two.ledger.read(), FIRST.id, two.keys.keyring())) == 1


def test_a_process_that_has_only_read_so_far_begins_with_the_new_key(one: EmbeddedLedger, two: EmbeddedLedger) -> None:
    kid_of(two)
    new = rotated(one).kid
    assert append(two) == new


def test_a_change_in_the_middle_of_work_is_seen_before_it_counts(one: EmbeddedLedger, two: EmbeddedLedger) -> None:
    append(two)
    changes: list[str] = []

    def work(transaction: Transaction) -> str:
        pending = append_to(FIRST.id, signing=two.keys.signing)(transaction)
        if not changes:
            changes.append(rotated(one).kid)
        return pending.key.kid

    assert [two.ledger.run(work)] == changes
    assert len(checked(two.ledger.read(), FIRST.id, two.keys.keyring())) == 2


def test_processes_that_change_the_key_in_turn_make_one_line(one: EmbeddedLedger, two: EmbeddedLedger) -> None:
    for embedded in (one, two, one, two):
        rotated(embedded)
        append(embedded)
    kids = [record.kid for record in records(one)]
    assert one.key_files.kids() == [kids[-1]] == [kid_of(two)]
    assert len(checked(one.ledger.read(), FIRST.id, one.keys.refresh())) == 4


# What is believed


def record_of(key: SigningKey, change: str | None) -> KeyRecord:
    return KeyRecord(key.kid, key.public.to_pem().decode(), change, NOW * 1000)


def change(old: SigningKey, new: SigningKey) -> str:
    return sign_key_change(old, new.public, jti="key:tests:0001", now=NOW)


def test_the_first_key_and_those_it_has_led_to_are_believed() -> None:
    ring = build_keyring([FIRST_KEY, record_of(NEXT, change(OURS, NEXT)), record_of(LAST, change(NEXT, LAST))])
    assert [ring.find(key.kid).issuer for key in (OURS, NEXT, LAST)] == [
        verifier_id(key.public) for key in (OURS, NEXT, LAST)
    ]
    assert ring.succeeds(LAST.kid, OURS.kid)


def test_keys_of_others_are_believed_as_those_of_others() -> None:
    ring = build_keyring([FIRST_KEY], [TrustedKey(THEIRS.public, THEIR_ISSUER, foreign=True)])
    assert ring.find(THEIRS.kid).foreign
    assert not ring.find(OURS.kid).foreign


def test_a_key_without_a_record_is_not_believed() -> None:
    ring = build_keyring([FIRST_KEY, record_of(STRANGER, None)])
    with pytest.raises(KeyUnknown):
        ring.find(STRANGER.kid)


def test_a_record_that_was_changed_is_refused() -> None:
    token = change(OURS, NEXT)
    message, _, signature = token.rpartition(".")
    other = change(OURS, LAST).rpartition(".")[0]
    with pytest.raises(SignatureInvalid) as caught:
        build_keyring([FIRST_KEY, record_of(NEXT, f"{other}.{signature}")])
    assert caught.value.code == "signature_invalid"
    assert build_keyring([FIRST_KEY, record_of(NEXT, f"{message}.{signature}")]).find(NEXT.kid)


def test_a_record_of_a_stranger_is_refused() -> None:
    with pytest.raises(KeyUnknown) as caught:
        build_keyring([FIRST_KEY, record_of(NEXT, change(STRANGER, NEXT))])
    assert caught.value.code == "key_unknown"


def test_a_record_of_a_key_of_others_is_refused() -> None:
    theirs = TrustedKey(THEIRS.public, verifier_id(THEIRS.public), foreign=True)
    with pytest.raises(KeyUseForbidden) as caught:
        build_keyring([FIRST_KEY, record_of(NEXT, change(THEIRS, NEXT))], [theirs])
    assert caught.value.code == "key_use_forbidden"


def test_records_out_of_order_are_refused() -> None:
    with pytest.raises(KeyUnknown):
        build_keyring([FIRST_KEY, record_of(LAST, change(NEXT, LAST)), record_of(NEXT, change(OURS, NEXT))])


def test_a_receipt_is_no_record_of_a_change() -> None:
    with pytest.raises(TokenKindMismatch) as caught:
        build_keyring([FIRST_KEY, record_of(NEXT, session_of(1).tokens[0])])
    assert caught.value.code == "token_kind_mismatch"


def test_a_record_for_another_key_than_it_stands_beside_believes_only_what_was_signed() -> None:
    ring: Keyring = build_keyring([FIRST_KEY, record_of(STRANGER, change(OURS, NEXT))])
    with pytest.raises(KeyUnknown):
        ring.find(STRANGER.kid)
