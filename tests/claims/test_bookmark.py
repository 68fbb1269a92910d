"""Bookmarks: a verification goes on where it stopped, and nobody without the key can say where that was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import (
    Head,
    Keyring,
    SigningKey,
    Tally,
    TrustedKey,
    extend,
    receipt_id,
    sign_bookmark,
    sign_key_change,
    verifier_id,
    verify_bookmark,
    verify_chain,
    walk_chain,
    with_successors,
)
from remit.claims.attestation import OTHER_TOOLS
from remit.claims.canonical import decode_base64url
from remit.claims.jws import BOOKMARK, sign_token
from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid, IssuerMismatch, KeyUnknown, KeyUseForbidden, PayloadInvalid, TokenError
from tests.world import KEYRING, NOW, OURS, STRANGER, lineage_named, permitted, session_of

LATER = NOW + 1000
LENGTH = 12
WHOLE = session_of(LENGTH)


def verified(length: int) -> tuple[Head, Tally]:
    """Return where one stands who has verified the first receipts."""
    head, tally = Head(lineage_named()), Tally()
    for receipt, reached in walk_chain(WHOLE.tokens[:length], KEYRING, start=head):
        tally.add(receipt)
        head = reached
    return head, tally


def marked(length: int, key: SigningKey = OURS) -> str:
    return sign_bookmark(*verified(length), key, now=LATER)


@given(st.integers(0, LENGTH))
def test_a_verification_goes_on_as_if_it_had_never_stopped(length: int) -> None:
    head, tally = verify_bookmark(marked(length), KEYRING)
    assert head == verified(length)[0]
    for receipt, reached in walk_chain(WHOLE.tokens[length:], KEYRING, start=head):
        tally.add(receipt)
        head = reached
    assert (head, tally.counted()) == (WHOLE.head, verified(LENGTH)[1].counted())


def test_a_bookmark_says_who_when_and_which_session() -> None:
    claims = json.loads(decode_base64url(marked(3).split(".")[1]))
    assert (claims["iss"], claims["iat"]) == (verifier_id(OURS.public), LATER)
    assert (claims["session"], claims["head"]["length"]) == (lineage_named().grant_id, 3)


def test_a_bookmark_outlives_a_change_of_key() -> None:
    ring = with_successors(KEYRING, [sign_key_change(OURS, STRANGER.public, jti="keys:tests:0001", now=NOW)])
    head, _ = verify_bookmark(marked(LENGTH), ring)
    new_id, successor = receipt_id(bytes(16)), head.handed_to(STRANGER.public)
    receipt = extend(successor, permitted(), STRANGER, arguments={}, new_id=new_id, now=LATER)
    assert verify_chain([receipt.token], ring, start=head) == head.after(receipt)
    _, tally = verified(LENGTH)
    tally.add(receipt)
    assert verify_bookmark(sign_bookmark(head.after(receipt), tally, STRANGER, now=LATER), ring)[0].kid == STRANGER.kid


def test_only_a_trusted_key_of_ones_own_says_how_far_a_chain_was_verified() -> None:
    token = marked(3, STRANGER)
    with pytest.raises(KeyUnknown):
        verify_bookmark(token, KEYRING)
    with pytest.raises(IssuerMismatch):
        verify_bookmark(token, Keyring([TrustedKey(STRANGER.public, "them")]))
    foreign = Keyring([TrustedKey(STRANGER.public, verifier_id(STRANGER.public), foreign=True)])
    with pytest.raises(KeyUseForbidden) as caught:
        verify_bookmark(token, foreign)
    assert caught.value.code == "key_use_forbidden"


TOKEN = marked(3)


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_changing_any_character_of_a_bookmark_is_found(where: int, character: str) -> None:
    changed = TOKEN[:where] + character + TOKEN[where + 1 :]
    if changed != TOKEN:
        with pytest.raises(TokenError):
            verify_bookmark(changed, KEYRING)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"length": 2}, "$.head.length"),
        ({"receipt_id": "rcpt:other"}, "$.head.receipt_id"),
        ({"receipt_hash": "0" * 64}, "$.head.receipt_hash"),
        ({"receipt_hash": "A" * 64}, "$.head.receipt_hash"),
        ({"kid": None}, "$.head.kid"),
        ({"kid": "../key"}, "$.head.kid"),
        ({"run_nonce": "short"}, "$.head.run_nonce"),
        ({"iat": 1.5}, "$.head.iat"),
        ({"more": 1}, "$.head"),
    ],
    ids=str,
)
def test_a_head_that_is_not_where_the_count_ends_is_refused(change: dict[str, JSON], place: str) -> None:
    claims = json.loads(decode_base64url(TOKEN.split(".")[1]))
    claims["head"] |= change
    with pytest.raises(PayloadInvalid) as caught:
        verify_bookmark(sign_token(BOOKMARK, json.dumps(claims).encode(), OURS), KEYRING)
    assert (caught.value.fault, caught.value.place) == ("field_invalid", place)


def test_a_head_and_a_tally_of_different_receipts_are_not_signed_together() -> None:
    head, _ = verified(3)
    for length in (0, 2, 4):
        with pytest.raises(FieldInvalid) as caught:
            sign_bookmark(head, verified(length)[1], OURS, now=LATER)
        assert caught.value.place == "$.head.length"


def test_the_fullest_bookmark_still_fits_its_token() -> None:
    head, tally = verified(1)
    each, size = 2**44 - 1, 2**52 - 1
    tools: dict[str, JSON] = {f"{number:064}": each for number in range(200)}
    state = tally.to_state() | {
        "tools": tools | {OTHER_TOOLS: size - 200 * each},
        "verdicts": {"compliant": size, "violation": 0, "insufficient_evidence": 0},
        "side_effects": {"none": size, "internal_write": 0, "external_send": 0, "state_change": 0},
        "tree": {"size": size, "peaks": ["0" * 64] * 52},
    }
    lineage = head.lineage._replace(actor="\U0001f600" * 256)
    full = head._replace(length=size, lineage=lineage)
    reached, counted = verify_bookmark(sign_bookmark(full, Tally.from_state(state), OURS, now=LATER), KEYRING)
    assert (reached, counted.to_state()) == (full, state)
