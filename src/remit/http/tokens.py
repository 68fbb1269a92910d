"""Who may come in: bearer tokens, compared in constant time, with wrong ones slowed down.

Keeps this invariant: the right token always opens, however many wrong ones were tried. Tokens themselves are not kept,
only their digests.
"""

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

from remit.errors import TokenRequired, TooManyTries

__all__ = ["MAX_TRIES", "Access", "Doors"]

# Whom a route is for: anyone, holders of the service's token, its administrator.
Access: TypeAlias = Literal["open", "token", "admin"]

MAX_TRIES: Final = 10
_WINDOW_S: Final = 1.0
_MAX_PEERS: Final = 1024


@final
class Doors:
    """The doors of a service: what opens each."""

    __slots__ = ("_clock", "_digests", "_tries")

    def __init__(self, tokens: Mapping[Access, tuple[str, ...]], *, clock: Callable[[], float]) -> None:
        """Take the tokens that open each door; one that has no entry is open."""
        self._digests = {door: tuple(_digest(token) for token in given) for door, given in tokens.items()}
        self._tries: dict[str, tuple[float, int]] = {}
        self._clock = clock

    def check(self, access: Access, presented: str, peer: str) -> None:
        """Raise unless what was presented opens the door."""
        digests = self._digests.get(access)
        if digests is None:
            return
        digest = _digest(presented)
        # All are compared, so that the time does not tell which one came close.
        if sum([hmac.compare_digest(digest, right) for right in digests]):
            return
        if presented and self._count(peer) > MAX_TRIES:
            raise TooManyTries("too many wrong tokens; wait a second")
        # The same words at every door: they must not tell which doors there are.
        raise TokenRequired("this needs a token that opens it, as `Authorization: Bearer TOKEN`")

    def _count(self, peer: str) -> int:
        """Count a wrong token of a peer, and return how many there were in this window."""
        now = self._clock()
        begun, tries = self._tries.pop(peer, (now, 0))
        if now - begun > _WINDOW_S:
            begun, tries = now, 0
        if len(self._tries) >= _MAX_PEERS:
            self._tries.pop(next(iter(self._tries)))
        self._tries[peer] = begun, tries + 1
        return tries + 1


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
