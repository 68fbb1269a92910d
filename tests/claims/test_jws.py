"""Tokens: others' verifiers accept ours, and no change to a token goes unseen."""

import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws as joserfc_jws
from joserfc.jwk import ECKey
from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS

from remit import RemitError
from remit.claims.canonical import decode_base64url, encode_base64url
from remit.claims.jws import (
    ATTESTATION,
    BOOKMARK,
    KEY_CHANGE,
    KEY_LIMIT,
    KINDS,
    PASSPORT,
    RECEIPT,
    TokenKind,
    UnverifiedToken,
    sign_token,
    unsafe_peek,
    verify_token,
)
from remit.claims.keys import ORDER
from remit.errors import IssuerMismatch, TokenError
from tests.world import ISSUER, KEYRING, OURS, THEIR_ISSUER, THEIRS, session_of

CLAIMS = {"iss": ISSUER, "n": 1, "text": "ünïcode 😀"}
PAYLOAD = json.dumps(CLAIMS).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.typ)
def test_verifiers_that_others_wrote_accept_our_tokens(kind: TokenKind) -> None:
    token = sign_token(kind, PAYLOAD, OURS)
    header = {"alg": "ES256", "kid": OURS.kid, "typ": kind.typ}
    assert jwt.get_unverified_header(token) == header
    assert jwt.decode(token, OURS.public.to_pem(), algorithms=["ES256"]) == CLAIMS
    theirs = joserfc_jws.deserialize_compact(token, ECKey.import_key(OURS.public.to_pem()), algorithms=["ES256"])
    assert json.loads(theirs.payload) == CLAIMS
    jwcrypto = JWS()
    jwcrypto.deserialize(token)
    jwcrypto.verify(JWK.from_pem(OURS.public.to_pem()), alg="ES256")
    assert json.loads(jwcrypto.payload) == CLAIMS


def test_verification_returns_the_claims() -> None:
    verified = verify_token(RECEIPT, sign_token(RECEIPT, PAYLOAD, OURS), KEYRING)
    assert (verified.claims, verified.kid) == (CLAIMS, OURS.kid)


def test_one_payload_has_one_token() -> None:
    assert sign_token(RECEIPT, PAYLOAD, OURS) == sign_token(RECEIPT, PAYLOAD, OURS)


RECEIPT_TOKEN = session_of(1).tokens[0]


@given(st.integers(0, len(RECEIPT_TOKEN) - 1), st.characters(codec="utf-8"))
def test_changing_any_character_of_a_token_is_found(where: int, character: str) -> None:
    changed = RECEIPT_TOKEN[:where] + character + RECEIPT_TOKEN[where + 1 :]
    if changed != RECEIPT_TOKEN:
        with pytest.raises(TokenError):
            verify_token(RECEIPT, changed, KEYRING)


def test_every_last_letter_of_a_signature_but_one_is_refused() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    accepted = [letter for letter in alphabet if _verifies(RECEIPT_TOKEN[:-1] + letter)]
    assert accepted == [RECEIPT_TOKEN[-1]]


def _verifies(token: str, kind: TokenKind = RECEIPT) -> bool:
    try:
        verify_token(kind, token, KEYRING)
    except TokenError:
        return False
    return True


@given(st.text(max_size=300) | st.lists(st.text("abcdefAB01-_=", max_size=90), max_size=6).map(".".join))
def test_any_text_gives_a_token_error_and_nothing_else(text: str) -> None:
    for kind in KINDS:
        with pytest.raises(TokenError):
            verify_token(kind, text, KEYRING)


def test_a_key_is_believed_for_its_issuer_only() -> None:
    with pytest.raises(IssuerMismatch):
        verify_token(PASSPORT, sign_token(PASSPORT, b'{"iss":"https://issuer.example"}', OURS), KEYRING)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.typ)
def test_a_token_too_long_for_its_kind_is_neither_made_nor_read(kind: TokenKind) -> None:
    payload = json.dumps({"iss": ISSUER, "pad": "x" * kind.max_length}).encode()
    for attempt in (
        lambda: sign_token(kind, payload, OURS),
        lambda: verify_token(kind, "a" * (kind.max_length + 1), KEYRING),
    ):
        with pytest.raises(RemitError) as caught:
            attempt()
        assert caught.value.code == "token_too_large"


LIMITS = {
    PASSPORT: 16_384,
    RECEIPT: 65_535,
    ATTESTATION: 65_535,
    KEY_CHANGE: 16_384,
    KEY_LIMIT: 16_384,
    BOOKMARK: 65_535,
}


@pytest.mark.parametrize(("kind", "limit"), LIMITS.items(), ids=str)
def test_a_token_just_as_long_as_its_kind_allows_is_made_and_read(kind: TokenKind, limit: int) -> None:
    frame = len(sign_token(kind, json.dumps({"iss": ISSUER, "pad": ""}).encode(), OURS))
    lengths = {}
    for pad in range((limit - frame) * 3 // 4 - 4, (limit - frame) * 3 // 4 + 4):
        try:
            token = sign_token(kind, json.dumps({"iss": ISSUER, "pad": "x" * pad}).encode(), OURS)
        except TokenError:
            continue
        lengths[len(token)] = verify_token(kind, token, KEYRING).claims
    assert limit - 1 <= max(lengths) <= limit
    with pytest.raises(TokenError) as caught:
        verify_token(kind, "a" * limit, KEYRING)
    assert caught.value.code == "token_malformed"


def test_what_is_hashed_has_one_form_whoever_signed_it() -> None:
    payload = json.dumps({"iss": THEIR_ISSUER}).encode()
    for kind in KINDS:
        token = sign_token(kind, payload, THEIRS)
        message, _, part = token.rpartition(".")
        raw = decode_base64url(part)
        other = encode_base64url(raw[:32] + (ORDER - int.from_bytes(raw[32:], "big")).to_bytes(32, "big"))
        assert _verifies(token, kind)
        assert _verifies(f"{message}.{other}", kind) == (kind in (PASSPORT, BOOKMARK))


def test_a_token_of_one_kind_is_no_token_of_any_other() -> None:
    assert len({kind.typ for kind in KINDS}) == len(KINDS) == len(LIMITS)
    for made in KINDS:
        token = sign_token(made, PAYLOAD, OURS)
        assert [kind for kind in KINDS if _verifies(token, kind)] == [made]


def test_a_header_is_compared_in_ascii() -> None:
    """The Kelvin sign is a small k to those who fold case; no kind has one today."""
    kind = TokenKind("remit-check+jwt", 9999, hashed=True)
    token = sign_token(TokenKind("remit-chec\u212a+jwt", 9999, hashed=True), PAYLOAD, OURS)
    with pytest.raises(TokenError) as caught:
        verify_token(kind, token, KEYRING)
    assert caught.value.code == "token_kind_mismatch"


def test_a_peek_shows_what_a_token_says_whoever_signed_it() -> None:
    token = sign_token(RECEIPT, PAYLOAD, THEIRS)
    header = {"alg": "ES256", "kid": THEIRS.kid, "typ": RECEIPT.typ}
    for shown in (token, token[:-3], token.rpartition(".")[0] + ".", token + ".more"):
        assert unsafe_peek(shown) == (header, CLAIMS)


def test_a_peek_leaves_out_what_cannot_be_read() -> None:
    head, payload, signature = sign_token(RECEIPT, PAYLOAD, OURS).split(".")
    assert unsafe_peek(f"{head}.{payload}=.{signature}") == UnverifiedToken(unsafe_peek(f"{head}..").header, None)
    assert unsafe_peek(f".{payload}.") == (None, CLAIMS)
    assert unsafe_peek("a" * 70_000) == unsafe_peek(f"{head}.{payload}." + "a" * 70_000) == UnverifiedToken(None, None)


@given(st.text(max_size=300) | st.lists(st.binary(max_size=60).map(encode_base64url), max_size=6).map(".".join))
def test_a_peek_into_any_text_raises_nothing(text: str) -> None:
    assert len(unsafe_peek(text)) == 2
