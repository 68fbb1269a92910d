"""Changes of key: trust grows only by what a trusted key has signed, in a line, and a chain goes on along it."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from remit import (
    BrokenChain,
    Head,
    Keyring,
    Position,
    RemitError,
    SessionSummary,
    SignedReceipt,
    SigningKey,
    Tally,
    TrustedKey,
    VerifyingKey,
    extend,
    receipt_id,
    sign_attestation,
    sign_key_change,
    sign_key_limit,
    sign_receipt,
    verifier_id,
    verify_chain,
    verify_key_change,
    verify_key_limit,
    verify_session,
    with_successors,
)
from remit.claims.jws import KEY_CHANGE, KEY_LIMIT, sign_token
from remit.errors import AttestationMismatch, FieldInvalid, KeyConflict, KeyUnknown, KeyUseForbidden, PayloadInvalid
from tests.world import ISSUER, KEYRING, MISSION, NOW, OURS, STRANGER, THEIR_ISSUER, THEIRS, key_named, permitted
from tests.world import lineage_named as lineage

KEYS = [OURS, *(key_named(f"successor {number}") for number in range(1, 5))]
JTI = "keys:tests:0001"


def change(old: SigningKey, new: SigningKey) -> str:
    return sign_key_change(old, new.public, jti=JTI, now=NOW)


CHANGES = [change(old, new) for old, new in pairwise(KEYS)]
GROWN = with_successors(KEYRING, CHANGES)


def chain_by(keys: list[SigningKey], head: Head | None = None) -> tuple[list[SignedReceipt], Head]:
    """Return a chain whose receipts are signed by these keys, one each."""
    head, receipts = head or Head(lineage()), []
    for number, key in enumerate(keys, head.length):
        step_head, new_id = head.handed_to(key.public), receipt_id(bytes([number] * 16))
        receipts.append(extend(step_head, permitted(), key, arguments={}, new_id=new_id, now=NOW))
        head = head.after(receipts[-1])
    return receipts, head


def tokens_by(*keys: SigningKey) -> list[str]:
    return [receipt.token for receipt in chain_by(list(keys))[0]]


def test_a_change_of_key_says_who_hands_over_to_whom_and_when() -> None:
    found = verify_key_change(CHANGES[0], KEYRING)
    assert found == (OURS.kid, KEYS[1].public, NOW, JTI)
    assert found.successor.kid == KEYS[1].kid


def test_a_successor_is_trusted_under_its_own_name() -> None:
    ring = with_successors(KEYRING, CHANGES[:1])
    assert ring.find(KEYS[1].kid) == TrustedKey(KEYS[1].public, verifier_id(KEYS[1].public))
    with pytest.raises(KeyUnknown):
        KEYRING.find(KEYS[1].kid)


@given(st.integers(0, 4), st.integers(0, 4))
def test_the_later_key_succeeds_every_earlier_one_and_no_other(later: int, earlier: int) -> None:
    assert GROWN.succeeds(KEYS[later].kid, KEYS[earlier].kid) == (later > earlier)
    assert not GROWN.succeeds(KEYS[later].kid, THEIRS.kid)
    assert not KEYRING.succeeds(KEYS[later].kid, KEYS[earlier].kid)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_a_chain_goes_from_a_key_to_those_that_succeed_it_and_never_back(order: list[int]) -> None:
    tokens = tokens_by(*(KEYS[index] for index in order))
    back = next((place for place in range(1, len(order)) if order[place] < order[place - 1]), None)
    if back is None:
        head = verify_chain(tokens, GROWN)
        assert head is not None
        assert (head.kid, head.lineage) == (KEYS[order[-1]].kid, lineage(key=KEYS[order[-1]]))
        return
    with pytest.raises(BrokenChain) as caught:
        verify_chain(tokens, GROWN)
    assert (caught.value.index, caught.value.fault) == (back, "issuer_changed")


def test_a_key_that_is_trusted_but_was_not_handed_over_to_does_not_go_on() -> None:
    ring = Keyring(GROWN)
    with pytest.raises(BrokenChain) as caught:
        verify_chain(tokens_by(OURS, KEYS[1]), ring)
    assert (caught.value.index, caught.value.fault) == (1, "issuer_changed")


def test_a_successor_speaks_in_its_own_name_only() -> None:
    """A name can be given to a key by hand; a chain still asks for the name that follows from the key."""
    ring = Keyring(KEYRING).with_successor(OURS.kid, TrustedKey(STRANGER.public, ISSUER))
    receipt = chain_by([OURS])[0][0]
    forged = structs.replace(
        receipt.claims,
        parent_receipt_id=receipt.claims.receipt_id,
        parent_receipt_hash=receipt.hash,
        step_id="step:000002",
    )
    with pytest.raises(BrokenChain) as caught:
        verify_chain([receipt.token, sign_receipt(forged, STRANGER).token], ring)
    assert caught.value.fault == "issuer_changed"


def test_a_receipt_whose_issuer_is_not_its_verifier_is_refused() -> None:
    claims = structs.replace(chain_by([OURS])[0][0].claims, verifier_id="remit:other")
    with pytest.raises(BrokenChain) as caught:
        verify_chain([sign_receipt(claims, OURS).token], KEYRING)
    assert caught.value.fault == "issuer_changed"


def test_a_session_begun_under_one_key_may_have_its_first_receipt_under_the_next() -> None:
    start = Head(lineage())
    receipts, reached = chain_by([KEYS[2]])
    assert verify_chain([receipts[0].token], GROWN, start=start) == reached
    with pytest.raises(BrokenChain) as caught:
        verify_chain([receipts[0].token], Keyring(GROWN), start=start)
    assert caught.value.fault == "issuer_changed"
    assert verify_chain([receipts[0].token], Keyring(GROWN), start=start.handed_to(KEYS[2].public)) == reached


def test_a_head_that_is_handed_over_still_asks_for_the_change_of_key() -> None:
    _, head = chain_by([OURS])
    receipts, reached = chain_by([KEYS[1]], head)
    handed = head.handed_to(KEYS[1].public)
    assert handed.kid == OURS.kid
    assert verify_chain([receipts[0].token], GROWN, start=handed) == reached
    with pytest.raises(BrokenChain):
        verify_chain([receipts[0].token], Keyring(GROWN), start=handed)


def test_a_successor_does_not_carry_a_chain_into_another_session() -> None:
    _, head = chain_by([OURS])
    receipts, _ = chain_by([KEYS[1]], head._replace(lineage=lineage("other")))
    with pytest.raises(BrokenChain) as caught:
        verify_chain([receipts[0].token], GROWN, start=head)
    assert caught.value.fault == "lineage_changed"


@pytest.mark.parametrize(("signer", "confirmed"), [(OURS, False), (KEYS[1], True), (KEYS[3], True), (STRANGER, False)])
def test_a_session_is_attested_by_its_last_key_or_one_that_succeeds_it(signer: SigningKey, confirmed: bool) -> None:
    receipts, _ = chain_by([OURS, KEYS[1]])
    tally = Tally()
    for receipt in receipts:
        tally.add(receipt)
    moment = "2026-09-21T14:13:20Z"
    summary = SessionSummary(lineage().grant_id, MISSION.agent_id, "Review", "ended", moment, moment, {})
    issuer = verifier_id(signer.public)
    signed = sign_attestation(summary, tally, signer, issuer=issuer, jti=JTI, now=NOW, chain_verified=True)
    ring = with_successors(Keyring([*KEYRING, TrustedKey(STRANGER.public, verifier_id(STRANGER.public))]), CHANGES)
    tokens = [receipt.token for receipt in receipts]
    if confirmed:
        assert verify_session(signed.token, tokens, ring) == signed.claims
        return
    with pytest.raises(AttestationMismatch) as caught:
        verify_session(signed.token, tokens, ring)
    assert caught.value.member == "iss"


def test_a_key_hands_over_once() -> None:
    assert [key.key for key in with_successors(GROWN, CHANGES)] == [key.key for key in GROWN]
    again = sign_key_change(OURS, KEYS[1].public, jti="keys:tests:0002", now=NOW + 1)
    assert with_successors(GROWN, [again]).succeeds(KEYS[4].kid, OURS.kid)
    with pytest.raises(KeyConflict) as caught:
        with_successors(GROWN, [change(OURS, STRANGER)])
    assert caught.value.code == "key_conflict"


@pytest.mark.parametrize("earlier", range(4))
def test_no_key_hands_back_to_one_before_it(earlier: int) -> None:
    with pytest.raises(KeyConflict) as caught:
        with_successors(GROWN, [change(KEYS[4], KEYS[earlier])])
    assert caught.value.code == "key_conflict"


def test_a_keyring_lets_no_key_succeed_itself() -> None:
    with pytest.raises(KeyConflict):
        KEYRING.with_successor(OURS.kid, TrustedKey(OURS.public, ISSUER))
    with pytest.raises(KeyUnknown):
        KEYRING.with_successor(STRANGER.kid, TrustedKey(KEYS[1].public, ISSUER))


def test_a_successor_that_is_trusted_as_someone_else_is_refused() -> None:
    for known in (
        TrustedKey(KEYS[1].public, "them"),
        TrustedKey(KEYS[1].public, verifier_id(KEYS[1].public), foreign=True),
    ):
        with pytest.raises(KeyConflict):
            with_successors(Keyring([*KEYRING, known]), CHANGES)


def test_records_are_verified_in_their_order() -> None:
    with pytest.raises(KeyUnknown):
        with_successors(KEYRING, [CHANGES[1], CHANGES[0]])


def test_a_stranger_or_a_foreign_key_does_not_hand_over() -> None:
    with pytest.raises(KeyUnknown):
        verify_key_change(change(STRANGER, KEYS[1]), KEYRING)
    foreign = Keyring([TrustedKey(THEIRS.public, verifier_id(THEIRS.public), foreign=True)])
    with pytest.raises(KeyUseForbidden) as caught:
        with_successors(foreign, [change(THEIRS, KEYS[1])])
    assert caught.value.code == "key_use_forbidden"


CLAIMS = {"iss": ISSUER, "iat": NOW, "jti": JTI, "successor": KEYS[1].public.to_jwk()}


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"successor": KEYS[1].public.to_jwk() | {"kid": "key-1"}}, "$.successor"),
        ({"successor": KEYS[1].public.to_jwk() | {"key_ops": "verify"}}, "$.successor"),
        ({"successor": KEYS[1].public.to_jwk() | {"d": "AAAA"}}, "$.successor"),
        ({"successor": KEYS[1].public.to_jwk() | {"ext": True}}, "$.successor[...]"),
        ({"successor": OURS.public.to_jwk()}, "$.successor"),
        ({"successor": None}, "$.successor"),
        ({"iat": -1}, "$.iat"),
        ({"jti": "x"}, "$.jti"),
        ({"exp": NOW}, "$"),
    ],
    ids=str,
)
def test_a_record_holds_a_successor_as_we_write_it_and_nothing_else(members: dict[str, object], place: str) -> None:
    token = sign_token(KEY_CHANGE, json.dumps(CLAIMS | members).encode(), OURS)
    with pytest.raises(PayloadInvalid) as caught:
        verify_key_change(token, KEYRING)
    assert (caught.value.fault, caught.value.place) == ("field_invalid", place)


def test_a_record_is_in_the_name_that_follows_from_the_key() -> None:
    token = sign_token(KEY_CHANGE, json.dumps(CLAIMS | {"iss": THEIR_ISSUER}).encode(), OURS)
    with pytest.raises(PayloadInvalid) as caught:
        verify_key_change(token, Keyring([TrustedKey(OURS.public, THEIR_ISSUER)]))
    assert caught.value.place == "$.iss"


def test_what_breaks_a_rule_is_not_signed() -> None:
    renamed = VerifyingKey.from_jwk(KEYS[1].public.to_jwk() | {"kid": "key-1"})
    for key, jti, now in ((OURS.public, JTI, NOW), (renamed, JTI, NOW), (KEYS[1].public, "x", NOW)):
        with pytest.raises(FieldInvalid):
            sign_key_change(OURS, key, jti=jti, now=now)


@given(st.integers(0, len(CHANGES[0]) - 1), st.characters(codec="ascii"))
def test_changing_any_character_of_a_record_is_found(where: int, character: str) -> None:
    changed = CHANGES[0][:where] + character + CHANGES[0][where + 1 :]
    if changed != CHANGES[0]:
        with pytest.raises(RemitError):
            verify_key_change(changed, KEYRING)


# Where the period of a key ends


POSITION = Position(7, 2, 1)


def limit(signer: SigningKey, kid: str, since: int | None = None) -> str:
    return sign_key_limit(signer, kid, POSITION, jti=JTI, now=NOW, distrusted_from=since)


@pytest.mark.parametrize("since", [None, NOW - 100])
def test_a_successor_says_where_the_period_of_a_key_ended(since: int | None) -> None:
    found = verify_key_limit(limit(KEYS[2], OURS.kid, since), GROWN)
    assert found == (OURS.kid, POSITION, since, NOW, JTI)


@given(st.integers(0, 4), st.integers(0, 4))
def test_only_a_successor_limits_a_key(signer: int, limited: int) -> None:
    if signer == limited:
        with pytest.raises(FieldInvalid):
            limit(KEYS[signer], KEYS[limited].kid)
    elif signer > limited:
        assert verify_key_limit(limit(KEYS[signer], KEYS[limited].kid), GROWN).kid == KEYS[limited].kid
    else:
        with pytest.raises(KeyUseForbidden):
            verify_key_limit(limit(KEYS[signer], KEYS[limited].kid), GROWN)


def test_a_stranger_or_someone_elses_key_limits_nobody() -> None:
    with pytest.raises(KeyUnknown):
        verify_key_limit(limit(STRANGER, OURS.kid), GROWN)
    theirs = Keyring(
        [TrustedKey(OURS.public, ISSUER), TrustedKey(THEIRS.public, verifier_id(THEIRS.public), foreign=True)]
    )
    with pytest.raises(KeyUseForbidden):
        verify_key_limit(limit(THEIRS, OURS.kid), theirs)


LIMIT_CLAIMS = {"iss": verifier_id(KEYS[1].public), "iat": NOW, "jti": JTI, "key": OURS.kid, **POSITION._asdict()}


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"receipts": -1}, "$.receipts"),
        ({"passports": 1.5}, "$.passports"),
        ({"sessions": None}, "$.sessions"),
        ({"key": "a b"}, "$.key"),
        ({"key": KEYS[1].kid}, "$.key"),
        ({"distrusted_from": "now"}, "$.distrusted_from"),
        ({"until": NOW}, "$"),
        ({"jti": "short"}, "$.jti"),
    ],
)
def test_a_limit_that_breaks_a_rule_is_refused(members: dict[str, object], place: str) -> None:
    token = sign_token(KEY_LIMIT, json.dumps(LIMIT_CLAIMS | members).encode(), KEYS[1])
    with pytest.raises(PayloadInvalid) as caught:
        verify_key_limit(token, GROWN)
    assert caught.value.place == place


def test_a_limit_in_anothers_name_is_refused() -> None:
    token = sign_token(KEY_LIMIT, json.dumps(LIMIT_CLAIMS | {"iss": THEIR_ISSUER}).encode(), OURS)
    with pytest.raises(PayloadInvalid) as caught:
        verify_key_limit(token, Keyring([TrustedKey(OURS.public, THEIR_ISSUER)]))
    assert caught.value.place == "$.iss"
