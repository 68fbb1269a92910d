"""Signatures at the edges of ECDSA on P-256, valid and not."""

import hashlib
from collections.abc import Iterator
from typing import Any

from remit.claims.canonical import encode_base64url
from vectors.making.p256 import G, N, P, Point, add, lift, multiply, recover

MESSAGE = b"remit"
DIGEST = int.from_bytes(hashlib.sha256(MESSAGE).digest(), "big") % N


def _jwk(point: Point) -> dict[str, str]:
    assert point is not None
    x, y = (encode_base64url(number.to_bytes(32, "big")) for number in point)
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def _raw(r: int, s: int) -> str:
    return (r.to_bytes(32, "big") + s.to_bytes(32, "big")).hex()


def _case(name: str, key: Point, signature: str, result: str, message: bytes = MESSAGE) -> dict[str, Any]:
    return {"name": name, "jwk": _jwk(key), "message": message.hex(), "signature": signature, "result": result}


def _x(point: Point) -> int:
    assert point is not None
    return point[0]


def ecdsa_cases() -> Iterator[dict[str, Any]]:
    """Yield the cases; `result` is for a verifier that asks for the lower s."""
    yield from _valid_edges()
    yield from _forgeries()


def _valid_edges() -> Iterator[dict[str, Any]]:
    half = N // 2
    for name, s in (("1", 1), ("2", 2), ("2^128", 2**128), ("n / 2", half)):
        nonce_point = multiply(7, G)
        key = recover(nonce_point, _x(nonce_point), s, DIGEST)
        yield _case(f"s = {name}", key, _raw(_x(nonce_point), s), "ok")
        yield _case(f"s = n - {name}", key, _raw(_x(nonce_point), N - s), "signature_not_low_s")
    for nonce in (1, 2, 3, N - 1, half, half + 1):
        nonce_point = multiply(nonce, G)
        key = recover(nonce_point, _x(nonce_point) % N, 5, DIGEST)
        yield _case(f"nonce {nonce:x}", key, _raw(_x(nonce_point) % N, 5), "ok")
    beyond = next(point for x in range(N, P) if (point := lift(x)))
    key = recover(beyond, _x(beyond) - N, 11, DIGEST)
    yield _case("x of the nonce point lies between n and p", key, _raw(_x(beyond) - N, 11), "ok")
    yield _case("that x not reduced", key, _raw(_x(beyond), 11), "signature_out_of_range")
    small = next(point for x in range(1, 99) if (point := lift(x)))
    key = recover(small, _x(small), 13, DIGEST)
    yield _case("a very small r", key, _raw(_x(small), 13), "ok")
    yield _case("a very small r, plus n", key, _raw(_x(small) + N, 13), "signature_out_of_range")
    for name, secret in (("G", 1), ("-G", N - 1), ("2 G", 2)):
        key = multiply(secret, G)
        r = _x(multiply(9, G))
        s = pow(9, -1, N) * (DIGEST + r * secret) % N
        yield _case(f"the public key is {name}", key, _raw(r, min(s, N - s)), "ok")


def _forgeries() -> Iterator[dict[str, Any]]:
    key = multiply(12345, G)
    r = _x(multiply(77, G))
    s = pow(77, -1, N) * (DIGEST + r * 12345) % N
    s = min(s, N - s)
    yield _case("an ordinary signature", key, _raw(r, s), "ok")
    edges = {"0": 0, "1": 1, "n - 1": N - 1, "n": N, "n + 1": N + 1, "p": P, "p + 1": P + 1, "2^256 - 1": 2**256 - 1}
    for first, one in edges.items():
        for second, two in edges.items():
            inside = 0 < one < N and 0 < two < N
            result = (
                ("signature_invalid" if two <= N // 2 else "signature_not_low_s")
                if inside
                else "signature_out_of_range"
            )
            yield _case(f"r = {first}, s = {second}", key, _raw(one, two), result)
    for name, one, two in (
        ("halves swapped", s, r if r <= N // 2 else N - r),
        ("r off by one", r + 1, s),
        ("s off by one", r, s - 1),
        ("r and s inverted", pow(r, -1, N), min(pow(s, -1, N), N - pow(s, -1, N))),
        ("r negated", N - r, s),
    ):
        yield _case(name, key, _raw(one, two), "signature_invalid")
    yield _case("another message", key, _raw(r, s), "signature_invalid", b"remiT")
    yield _case("empty message", key, _raw(r, s), "signature_invalid", b"")
    yield _case("another key", multiply(54321, G), _raw(r, s), "signature_invalid")
    yield _case("the negated key", multiply(N - 12345, G), _raw(r, s), "signature_invalid")
    # u1 G + u2 Q is the point at infinity: no nonce point, so no signature.
    infinite = multiply(-DIGEST * pow(r, -1, N), G)
    yield _case("the sum is the point at infinity", infinite, _raw(r, s), "signature_invalid")
    # u1 G and u2 Q are the same point, so a verifier has to double it.
    doubled = multiply(DIGEST * pow(r, -1, N), G)
    yield _case("the two points are equal, r wrong", doubled, _raw(r, s), "signature_invalid")
    yield from _malformed(key, r, s)


def _malformed(key: Point, r: int, s: int) -> Iterator[dict[str, Any]]:
    raw = bytes.fromhex(_raw(r, s))
    for name, signature in (
        ("empty", b""),
        ("one half", raw[:32]),
        ("63 bytes", raw[:-1]),
        ("65 bytes", raw + b"\0"),
        ("zero in front", b"\0" + raw),
        ("halves of 33 bytes", b"\0" + raw[:32] + b"\0" + raw[32:]),
        ("halves of 48 bytes", bytes(16) + raw[:32] + bytes(16) + raw[32:]),
        ("DER", b"\x30\x44\x02\x20" + raw[:32] + b"\x02\x20" + raw[32:]),
    ):
        yield _case(f"signature: {name}", key, signature.hex(), "signature_out_of_range")
    assert add(key, None) == key
