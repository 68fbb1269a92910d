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
from remit.claims.jws import ATTESTATION, KINDS, PASSPORT, RECEIPT, Kind, sign_token, verify_token
from remit.errors import IssuerMismatch, TokenError
from tests.world import ISSUER, KEYRING, OURS, session_of

CLAIMS = {"iss": ISSUER, "n": 1, "text": "ünïcode 😀"}
PAYLOAD = json.dumps(CLAIMS).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.typ)
def test_verifiers_that_others_wrote_accept_our_tokens(kind: Kind) -> None:
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


def _verifies(token: str) -> bool:
    try:
        verify_token(RECEIPT, token, KEYRING)
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


@pytest.mark.parametrize("kind", [PASSPORT, RECEIPT, ATTESTATION], ids=lambda kind: kind.typ)
def test_a_token_too_long_for_its_kind_is_neither_made_nor_read(kind: Kind) -> None:
    payload = json.dumps({"iss": ISSUER, "pad": "x" * kind.max_length}).encode()
    for attempt in (
        lambda: sign_token(kind, payload, OURS),
        lambda: verify_token(kind, "a" * (kind.max_length + 1), KEYRING),
    ):
        with pytest.raises(RemitError) as caught:
            attempt()
        assert caught.value.code == "token_too_large"
