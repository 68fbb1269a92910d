"""P-256 by the textbook, to make signatures that no signer makes. Slow, not constant-time, never used to sign."""

from typing import Final

P: Final = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B: Final = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

Point = tuple[int, int] | None


def add(one: Point, two: Point) -> Point:
    """Return the sum of two points; None is the point at infinity."""
    if one is None or two is None:
        return one or two
    (x1, y1), (x2, y2) = one, two
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, P) if one == two else (y2 - y1) * pow(x2 - x1, -1, P)
    x3 = (slope * slope - x1 - x2) % P
    return x3, (slope * (x1 - x3) - y1) % P


def multiply(times: int, point: Point) -> Point:
    """Return `point` added to itself `times` times."""
    total, times = None, times % N
    while times:
        if times & 1:
            total = add(total, point)
        point, times = add(point, point), times >> 1
    return total


def lift(x: int) -> Point:
    """Return the point with this x and an even y, or None if the curve has none."""
    square = (x**3 - 3 * x + B) % P
    y = pow(square, (P + 1) // 4, P)
    if y * y % P != square:
        return None
    return x, y if y % 2 == 0 else P - y


def recover(nonce_point: Point, r: int, s: int, digest: int) -> Point:
    """Return the public key under which (r, s) signs `digest` with this nonce point."""
    inverse = pow(r, -1, N)
    return add(multiply(s * inverse, nonce_point), multiply(-digest * inverse, G))
