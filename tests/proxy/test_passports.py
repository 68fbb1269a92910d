"""Passports that are forged, foreign, over or used before, shown to a real proxy: none of them starts anything."""

import hashlib
import hmac
import json
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from vectors.making.world import STRANGER, mint, part, resign

from remit import SigningKey
from remit.claims.canonical import decode_base64url, encode_base64url
from remit.claims.keys import ORDER
from tests.proxy.service import HTTP
from tests.proxy.visitor import MISSION, Visitor, key_of, killed, visiting
from tests.world import registered_in


class Genuine(NamedTuple):
    """What a passport is made of: every forgery differs from it in one thing."""

    header: dict[str, Any]
    claims: dict[str, Any]
    key: SigningKey

    def token(self, header: Any = None, claims: Any = None, key: SigningKey | None = None) -> str:
        """Return the passport, with parts replaced."""
        return mint(header or self.header, claims or self.claims, key or self.key)

    def with_header(self, **members: Any) -> str:
        return self.token(header=self.header | members)

    def with_claims(self, **members: Any) -> str:
        return self.token(claims=self.claims | members)

    def without(self, name: str) -> str:
        return self.token(claims={other: value for other, value in self.claims.items() if other != name})

    def raw_claims(self, more: str) -> str:
        return self.token(claims=(json.dumps(self.claims)[:-1] + more + "}").encode())

    def parts(self) -> tuple[str, str, str]:
        header, payload, signature = self.token().split(".")
        return header, payload, signature


def _genuine(key: SigningKey) -> Genuine:
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": f"remit:{key.kid}", "sub": MISSION.agent_id, "aud": "remit", "iat": now, "nbf": now, "exp": now + 600,
        "jti": f"pass:{secrets.token_hex(16)}", "mission": MISSION.mission, "allowed_tools": ["Read"],
        "resource_scope": ["/srv/project"], "max_tool_calls": 5, "max_duration_s": 600,
    }  # fmt: skip
    return Genuine({"alg": "ES256", "kid": key.kid, "typ": "remit-passport+jwt"}, claims, key)


def _by_hmac(genuine: Genuine, secret: bytes) -> str:
    message = f"{part(genuine.header | {'alg': 'HS256'})}.{part(genuine.claims)}"
    return f"{message}.{encode_base64url(hmac.new(secret, message.encode(), hashlib.sha256).digest())}"


def _in_der(genuine: Genuine) -> str:
    header, payload, signature = genuine.parts()
    raw = decode_base64url(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    return f"{header}.{payload}.{encode_base64url(der)}"


def _with_spare_bits(genuine: Genuine) -> str:
    """Return the same bytes spelled differently: four bits of the last character of a signature mean nothing."""
    token, alphabet = genuine.token(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) | 1]


def _flattened(genuine: Genuine) -> str:
    header, payload, signature = genuine.parts()
    return json.dumps({"protected": header, "payload": payload, "signature": signature})


Forge = Callable[[Genuine], str]
ALGORITHMS: Final[dict[str, Forge]] = {
    "alg none": lambda it: it.with_header(alg="none"),
    "alg nOnE": lambda it: it.with_header(alg="nOnE"),
    "alg none, no signature": lambda it: f"{part(it.header | {'alg': 'none'})}.{part(it.claims)}.",
    "alg HS256 with the public key in PEM": lambda it: _by_hmac(it, it.key.public.to_pem()),
    "alg HS256 with the public key as JWK": lambda it: _by_hmac(it, json.dumps(it.key.public.to_jwk()).encode()),
    "alg HS256, signed as before": lambda it: it.with_header(alg="HS256"),
    "alg ES384": lambda it: it.with_header(alg="ES384"),
    "alg es256": lambda it: it.with_header(alg="es256"),
    "alg as a list": lambda it: it.with_header(alg=["ES256"]),
    "no alg": lambda it: it.token(header={"kid": it.key.kid, "typ": it.header["typ"]}),
}
FORMS: Final[dict[str, Forge]] = {
    "JSON serialisation": _flattened,
    "five parts": lambda it: ".".join([*it.parts(), "AAAA", "AAAA"]),
    "two parts": lambda it: ".".join(it.parts()[:2]),
    "space before": lambda it: " " + it.token(),
    "newline after": lambda it: it.token() + "\n",
    "tab inside": lambda it: it.token().replace(".", ".\t", 1),
    "padding": lambda it: it.token() + "==",
    "padded header": lambda it: it.token().replace(".", "=.", 1),
    "spare bits": _with_spare_bits,
    "other alphabet": lambda it: it.token()[:-1] + "+",
    "not ASCII": lambda it: it.token()[:-1] + "\u00e9",
    "bearer before": lambda it: f"Bearer {it.token()}",
    "NUL after": lambda it: it.token() + "\x00",
}
SIGNATURES: Final[dict[str, Forge]] = {
    "in DER": _in_der,
    "r = 0": lambda it: resign(it.token(), lambda _r, s: (0, s)),
    "s = 0": lambda it: resign(it.token(), lambda r, _s: (r, 0)),
    "r = s = 0": lambda it: resign(it.token(), lambda _r, _s: (0, 0)),
    "the other s": lambda it: resign(it.token(), lambda r, s: (r, ORDER - s)),
    "one bit off": lambda it: resign(it.token(), lambda r, s: (r ^ 1, s)),
    "of another's key under our kid": lambda it: it.token(key=STRANGER),
    "of another payload": lambda it: ".".join([*it.parts()[:2], it.with_claims(max_tool_calls=6).split(".")[2]]),
}
HEADERS: Final[dict[str, Forge]] = {
    "alg twice": lambda it: it.token(header=(json.dumps(it.header)[:-1] + ', "alg": "ES256"}').encode()),
    "typ of a receipt": lambda it: it.with_header(typ="remit-receipt+jwt"),
    "typ of an attestation": lambda it: it.with_header(typ="remit-attestation+jwt"),
    "typ JWT": lambda it: it.with_header(typ="JWT"),
    "no typ": lambda it: it.token(header={"alg": "ES256", "kid": it.key.kid}),
    "crit": lambda it: it.with_header(crit=["exp"]),
    "crit, empty": lambda it: it.with_header(crit=[]),
    "crit b64": lambda it: it.with_header(crit=["b64"], b64=False),
    "jwk": lambda it: it.token({**it.header, "kid": STRANGER.kid, "jwk": STRANGER.public.to_jwk()}, key=STRANGER),
    "x5c": lambda it: it.with_header(x5c=["MIIB"]),
    "kid of a stranger": lambda it: it.token({**it.header, "kid": STRANGER.kid}, key=STRANGER),
    "kid that climbs": lambda it: it.with_header(kid="../../../../etc/passwd"),
    "kid of SQL": lambda it: it.with_header(kid="' OR 1=1 --"),
    "kid as a number": lambda it: it.with_header(kid=7),
    "kid of 10 KB": lambda it: it.with_header(kid="k" * 10_000),
    "kid in other case": lambda it: it.with_header(kid=it.key.kid.swapcase()),
    "no kid": lambda it: it.token(header={"alg": "ES256", "typ": it.header["typ"]}),
}
CLAIMS: Final[dict[str, Forge]] = {
    "exp twice": lambda it: it.raw_claims(f', "exp": {it.claims["exp"] + 1}'),
    "a list twice inside": lambda it: it.raw_claims(', "cnf": {"jkt": "a", "jkt": "b"}'),
    "NaN": lambda it: it.raw_claims(', "cwd": NaN'),
    "Infinity": lambda it: it.raw_claims(', "delegation_depth": Infinity'),
    "not UTF-8": lambda it: it.token(claims=json.dumps(it.claims).encode("utf-16")),
    "byte order mark": lambda it: it.token(claims=b"\xef\xbb\xbf" + json.dumps(it.claims).encode()),
    "half a character": lambda it: it.raw_claims(', "cwd": "\\ud800"'),
    "a list": lambda it: it.token(claims=[it.claims]),
    "iss of another": lambda it: it.with_claims(iss=f"remit:{STRANGER.kid}"),
    "iss missing": lambda it: it.without("iss"),
    "aud as a list": lambda it: it.with_claims(aud=["remit"]),
    "aud missing": lambda it: it.without("aud"),
    "exp missing": lambda it: it.without("exp"),
    "not yet valid": lambda it: it.with_claims(nbf=it.claims["iat"] + 300),
    "issued tomorrow": lambda it: it.with_claims(**{name: it.claims[name] + 86_400 for name in ("iat", "nbf", "exp")}),
    "longer than its mission": lambda it: it.with_claims(exp=it.claims["exp"] + 1),
    "a mission without end": lambda it: it.with_claims(max_duration_s=10**9),
    "iat with a fraction": lambda it: it.with_claims(iat=it.claims["iat"] + 0.5),
    "iat as a float": lambda it: it.with_claims(iat=float(it.claims["iat"])),
    "exp as a string": lambda it: it.with_claims(exp=str(it.claims["exp"])),
    "calls as a truth value": lambda it: it.with_claims(max_tool_calls=True),
    "calls below zero": lambda it: it.with_claims(max_tool_calls=-1),
    "calls beyond what JSON can count": lambda it: it.with_claims(max_tool_calls=2**53),
    "a member that nobody knows": lambda it: it.with_claims(admin=True),
    "its own parent": lambda it: it.with_claims(parent_jti=it.claims["jti"], delegation_depth=1),
    "a parent that delegated nothing": lambda it: it.with_claims(parent_jti="pass:nobody", delegation_depth=1),
    "jti that climbs": lambda it: it.with_claims(jti="../../etc/passwd\x00"),
    "two ways to be bound": lambda it: it.with_claims(cnf={"jkt": "A" * 43, "x5t#S256": "A" * 43}),
}
FORGERIES: Final = {
    f"{kind}: {name}": forge
    for kind, table in {
        "alg": ALGORITHMS,
        "form": FORMS,
        "signature": SIGNATURES,
        "header": HEADERS,
        "claims": CLAIMS,
    }.items()
    for name, forge in table.items()
}


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(tmp_path_factory.mktemp("proxy") / "home", HTTP) as visitor:
        yield visitor


@pytest.fixture
def genuine(visitor: Visitor) -> Genuine:
    return _genuine(visitor.key)


def _sessions(home: Path) -> int:
    with closing(sqlite3.connect(f"file:{home / 'ledger.db'}?mode=ro", uri=True)) as ledger:
        return int(ledger.execute("SELECT count(*) FROM sessions").fetchone()[0])


def _offer(visitor: Visitor, token: Any) -> str:
    """Return how the proxy refuses a passport; it must not keep anything of it."""
    before = _sessions(visitor.proxy.home)
    error = visitor.refused("/session/start", {"token": token})
    assert _sessions(visitor.proxy.home) == before
    return error


def test_what_the_forgeries_are_made_of_is_genuine(visitor: Visitor, genuine: Genuine) -> None:
    told = visitor.told("/session/start", {"token": registered_in(visitor.proxy.home, genuine.token())})
    assert told["session_id"] == genuine.claims["jti"]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_passport_starts_nothing(visitor: Visitor, genuine: Genuine, name: str) -> None:
    assert _offer(visitor, FORGERIES[name](genuine)) == "401 passport_invalid"


def test_a_passport_that_is_over_is_told_so(visitor: Visitor, genuine: Genuine) -> None:
    past = {name: genuine.claims[name] - 3600 for name in ("iat", "nbf", "exp")}
    assert _offer(visitor, genuine.with_claims(**past)) == "401 passport_expired"


@pytest.mark.parametrize("audience", ["remit2", "remit:observe", "REMIT", "remit "])
def test_a_passport_for_another_audience_starts_nothing(visitor: Visitor, genuine: Genuine, audience: str) -> None:
    token = registered_in(visitor.proxy.home, genuine.with_claims(aud=audience))
    assert _offer(visitor, token) == "403 audience_mismatch"


def test_a_genuine_passport_that_was_not_registered_is_told_to_be_issued_again(
    visitor: Visitor, genuine: Genuine
) -> None:
    assert _offer(visitor, genuine.token()) == "403 passport_unregistered"
    told = visitor.post("/session/start", {"token": genuine.token()}).json
    assert "remit issue" in told["error"]


def test_another_passport_under_a_registered_id_starts_nothing(visitor: Visitor, genuine: Genuine) -> None:
    token = registered_in(visitor.proxy.home, genuine.token())
    assert _offer(visitor, genuine.with_claims(allowed_tools=["*"])) == "403 passport_unregistered"
    assert visitor.told("/session/start", {"token": token})["existing"] is False


def test_clocks_may_differ_a_little(visitor: Visitor, genuine: Genuine) -> None:
    early = {name: genuine.claims[name] + 30 for name in ("iat", "nbf", "exp")}
    token = registered_in(visitor.proxy.home, genuine.with_claims(**early))
    assert visitor.told("/session/start", {"token": token})["existing"] is False


@pytest.mark.parametrize("token", [None, 7, True, [], {"protected": "a"}, "", "x" * 16_385])
def test_what_is_not_a_text_of_a_passports_length_is_not_looked_at(visitor: Visitor, token: Any) -> None:
    assert _offer(visitor, token) == "400 bad_request"


def test_a_body_with_half_a_character_is_not_read(visitor: Visitor) -> None:
    assert visitor.refused("/session/start", b'{"token": "\\ud800"}') == "400 bad_request"
    assert visitor.refused("/session/start", b'{"token": "a", "token": "b"}') == "400 bad_request"


def test_receipts_and_attestations_are_no_passports(visitor: Visitor) -> None:
    session = visitor.start()
    assert _offer(visitor, visitor.read(session)["receipt"]) == "401 passport_invalid"
    assert _offer(visitor, visitor.told(f"/sessions/{session}/attest")["token"]) == "401 passport_invalid"


def test_a_passport_of_another_home_is_a_strangers(visitor: Visitor, tmp_path: Path) -> None:
    other = _genuine(key_of(tmp_path / "other"))
    assert _offer(visitor, other.token()) == "401 passport_invalid"
    assert _offer(visitor, other.with_claims(iss=f"remit:{visitor.key.kid}")) == "401 passport_invalid"


@pytest.mark.parametrize("member", ["jku", "x5u"])
def test_nobody_is_asked_for_a_key(visitor: Visitor, genuine: Genuine, member: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        token = genuine.token({**genuine.header, "kid": STRANGER.kid, member: url}, key=STRANGER)
        assert _offer(visitor, token) == "401 passport_invalid"
        with pytest.raises(TimeoutError):
            listening.accept()


def test_another_passport_of_the_same_id_does_not_get_its_session(visitor: Visitor, genuine: Genuine) -> None:
    visitor.told("/session/start", {"token": registered_in(visitor.proxy.home, genuine.token())})
    assert _offer(visitor, genuine.with_claims(allowed_tools=["Read", "Bash"])) == "409 request_conflict"


def test_a_passport_that_was_used_before_a_crash_has_used_what_it_has_used(tmp_path: Path) -> None:
    with killed(tmp_path / "home", HTTP) as visitor:
        token = visitor.passport()
        first = visitor.told("/session/start", {"token": token})
        receipts = [visitor.read(first["session_id"])["receipt_hash"] for _ in range(2)]
    with visiting(tmp_path / "home", HTTP) as visitor:
        again = visitor.told("/session/start", {"token": token})
        assert (again["session_id"], again["existing"]) == (first["session_id"], True)
        assert again["budget_remaining"]["tool_calls"] == MISSION.max_tool_calls - 2
        claims = visitor.told(f"/sessions/{first['session_id']}/attest")["claims"]
        assert (claims["receipts"], claims["last_receipt_hash"]) == (2, receipts[-1])
