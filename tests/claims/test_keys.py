"""Key objects: P-256 or nothing, one signature for one message, no secret on show."""

import pickle

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from vectors.making.p256 import P, lift

from remit import Keyring, SigningKey, TrustedKey, VerifyingKey
from remit.claims.canonical import decode_base64url, encode_base64url
from remit.claims.keys import ORDER
from remit.claims.strictjson import JSON
from remit.errors import KeyMaterialError, KeyUnknown, SignatureInvalid
from tests.world import OURS, STRANGER, key_named


def private_pem(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, secret: bytes = b""
) -> bytes:
    encryption = serialization.BestAvailableEncryption(secret) if secret else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_keys_go_out_and_come_back_as_pem_and_jwk() -> None:
    assert SigningKey.from_pem(OURS.unsafe_to_pem()).public == OURS.public
    assert VerifyingKey.from_pem(OURS.public.to_pem()) == OURS.public
    assert VerifyingKey.from_jwk(OURS.public.to_jwk()) == OURS.public
    assert len({OURS.public, VerifyingKey.from_jwk(OURS.public.to_jwk()), STRANGER.public}) == 2
    assert OURS.public != "a key"


def test_a_jwk_without_kid_is_called_by_its_thumbprint_and_a_foreign_kid_is_kept() -> None:
    jwk = OURS.public.to_jwk()
    assert VerifyingKey.from_jwk({name: jwk[name] for name in ("kty", "crv", "x", "y")}).kid == OURS.kid
    assert VerifyingKey.from_jwk(jwk | {"kid": "key-1"}).kid == "key-1"


def test_the_thumbprint_is_that_of_rfc_7638() -> None:
    from jwcrypto.jwk import JWK

    assert JWK(**OURS.public.to_jwk()).thumbprint() == OURS.kid


@given(st.binary(max_size=300))
def test_one_message_has_one_low_signature(message: bytes) -> None:
    signature = OURS.sign(message)
    assert signature == OURS.sign(message)
    assert int.from_bytes(signature[32:], "big") <= ORDER // 2
    OURS.public.check(message, signature)
    with pytest.raises(SignatureInvalid):
        STRANGER.public.check(message, signature)


def test_no_nonce_is_used_for_two_messages() -> None:
    halves = {OURS.sign(str(number).encode())[:32] for number in range(2_000)}
    assert len(halves) == 2_000


def test_different_seeds_give_different_keys_and_equal_ones_equal_keys() -> None:
    assert key_named("a").kid == key_named("a").kid != key_named("b").kid


@pytest.mark.parametrize("seed", [b"", bytes(32), bytes(39), bytes(41)], ids=len)
def test_a_seed_has_forty_bytes(seed: bytes) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        SigningKey.derive(seed)
    assert caught.value.code == "key_malformed"


def test_the_lowest_and_highest_seeds_are_keys_too() -> None:
    for seed in (bytes(40), b"\xff" * 40):
        SigningKey.derive(seed).public.check(b"m", SigningKey.derive(seed).sign(b"m"))


def test_a_private_key_shows_itself_nowhere() -> None:
    secret = OURS.unsafe_to_pem().decode().splitlines()[1]
    assert secret not in repr(OURS) + str(OURS) + repr(OURS.public)
    assert OURS.kid in repr(OURS)
    with pytest.raises(KeyMaterialError) as caught:
        pickle.dumps(OURS)
    assert caught.value.code == "key_use_forbidden"


K1 = ec.derive_private_key(7, ec.SECP256K1())
P384 = ec.derive_private_key(7, ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
P256 = ec.derive_private_key(7, ec.SECP256R1())


@pytest.mark.parametrize(
    ("pem", "code"),
    [
        (private_pem(K1), "key_not_p256"),
        (private_pem(P384), "key_not_p256"),
        (private_pem(ED), "key_not_p256"),
        (private_pem(P256, b"locked"), "key_malformed"),
        (public_pem(P256), "key_malformed"),
        (b"", "key_malformed"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key_malformed"),
    ],
    ids=range(7),
)
def test_a_signing_key_is_a_plain_p256_private_key(pem: bytes, code: str) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        SigningKey.from_pem(pem)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("pem", "code"),
    [
        (public_pem(K1), "key_not_p256"),
        (public_pem(P384), "key_not_p256"),
        (public_pem(ED), "key_not_p256"),
        (private_pem(P256), "key_malformed"),
        (b"x" * 99, "key_malformed"),
    ],
    ids=range(5),
)
def test_a_verifying_key_is_a_p256_public_key(pem: bytes, code: str) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        VerifyingKey.from_pem(pem)
    assert caught.value.code == code


JWK: dict[str, JSON] = OURS.public.to_jwk()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kty": "RSA"}, "key_not_p256"),
        ({"kty": "oct", "k": "AAAA"}, "key_not_p256"),
        ({"crv": "P-384"}, "key_not_p256"),
        ({"crv": None}, "key_not_p256"),
        ({"d": "AAAA"}, "key_use_forbidden"),
        ({"alg": "ES384"}, "key_use_forbidden"),
        ({"alg": "none"}, "key_use_forbidden"),
        ({"use": "enc"}, "key_use_forbidden"),
        ({"key_ops": ["sign"]}, "key_use_forbidden"),
        ({"key_ops": []}, "key_use_forbidden"),
        ({"key_ops": "verify"}, "key_use_forbidden"),
        ({"kid": "../key"}, "key_malformed"),
        ({"kid": 5}, "key_malformed"),
        ({"x": None}, "key_malformed"),
        ({"x": 5}, "key_malformed"),
        ({"x": "AAAA"}, "key_malformed"),
        ({"x": str(JWK["x"]) + "="}, "key_malformed"),
        ({"x": encode_base64url(b"\0" + decode_base64url(str(JWK["x"])))}, "key_malformed"),
        ({"y": "A" * 43}, "key_malformed"),
        ({"x": "A" * 43, "y": "A" * 43}, "key_malformed"),
    ],
    ids=str,
)
def test_a_jwk_that_is_not_a_p256_key_for_verifying_is_refused(change: dict[str, JSON], code: str) -> None:
    with pytest.raises(KeyMaterialError) as caught:
        VerifyingKey.from_jwk(JWK | change)
    assert caught.value.code == code


def test_a_coordinate_has_one_spelling() -> None:
    x, y = next(point for number in range(1 << 20) if (point := lift(number)))
    jwk: dict[str, JSON] = {"kty": "EC", "crv": "P-256", "y": encode_base64url(y.to_bytes(32, "big"))}
    VerifyingKey.from_jwk(jwk | {"x": encode_base64url(x.to_bytes(32, "big"))})
    with pytest.raises(KeyMaterialError):
        VerifyingKey.from_jwk(jwk | {"x": encode_base64url((x + P).to_bytes(32, "big"))})


def test_keys_of_the_library_are_held_to_the_curve_too() -> None:
    for key in (K1, P384):
        for attempt in (lambda key=key: SigningKey(key), lambda key=key: VerifyingKey(key.public_key())):
            with pytest.raises(KeyMaterialError) as caught:
                attempt()
            assert caught.value.code == "key_not_p256"
    with pytest.raises(KeyMaterialError):
        VerifyingKey(P256.public_key(), "evil\n")


def test_a_pem_holds_one_key_and_nothing_else() -> None:
    private, public = OURS.unsafe_to_pem(), OURS.public.to_pem()
    old_form = P256.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    for pem in (private * 2, b"note\n" + private, private + b"note\n", old_form):
        with pytest.raises(KeyMaterialError):
            SigningKey.from_pem(pem)
    for pem in (public + STRANGER.public.to_pem(), b"note\n" + public):
        with pytest.raises(KeyMaterialError):
            VerifyingKey.from_pem(pem)
    assert SigningKey.from_pem(b"\n" + private).kid == OURS.kid


def test_a_jwk_that_says_it_verifies_is_taken() -> None:
    assert VerifyingKey.from_jwk(JWK | {"key_ops": ["sign", "verify"]}) == OURS.public


def test_a_keyring_finds_by_exact_kid_and_refuses_two_meanings_of_one() -> None:
    trusted = TrustedKey(OURS.public, "us")
    ring = Keyring([trusted, trusted, TrustedKey(STRANGER.public, "them")])
    assert ring.find(OURS.kid) == trusted
    assert [key.issuer for key in ring] == ["us", "them"]
    with pytest.raises(KeyUnknown):
        ring.find(OURS.kid.lower())
    renamed = VerifyingKey.from_jwk(STRANGER.public.to_jwk() | {"kid": OURS.kid})
    strange = TrustedKey(OURS.public, "us", foreign=True)
    for conflicting in (TrustedKey(OURS.public, "them"), TrustedKey(renamed, "us"), strange):
        with pytest.raises(KeyMaterialError) as caught:
            Keyring([trusted, conflicting])
        assert caught.value.code == "key_conflict"
