"""Who may come in: tokens, compared in constant time, with wrong ones slowed down.

Keeps this invariant: the right token always opens, however many wrong ones were tried. Tokens themselves are not kept,
only their digests. Which headers bring a token is for `customs.py`.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, final

from remit.errors import RemitError, TokenRequired, TooManyTries

__all__ = ["COMPARE_S", "MAX_TRIES", "Access", "Doorkeeper", "Doors", "Lock", "Reloading", "Shown", "Tries"]

# Whom a route is for: anyone, holders of the service's token, its administrator; people, who open a page by its
# address, and from there the views that it leads to; and hooks of assistants, which can do nothing else.
Access: TypeAlias = Literal["open", "token", "admin", "page", "view", "hook"]

MAX_TRIES: Final = 10
# How long a token may still be accepted that was replaced in the settings.
COMPARE_S: Final = 0.01
_WINDOW_S: Final = 1.0
_MAX_PEERS: Final = 1024


class Shown(NamedTuple):
    """What a client shows at a door: a token in a header, one in the query, a cookie. Empty is not shown.

    `subject` is the part of the path that a scoped token must be for.
    """

    token: str = ""
    query: str = ""
    cookie: str = ""
    subject: str = ""


class Doorkeeper(Protocol):
    """Whoever decides what opens which door."""

    def check(self, access: Access, shown: Shown, peer: str) -> None:
        """Raise unless what is shown opens the door."""


@final
class Lock:
    """What some tokens open."""

    __slots__ = ("_digests",)

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = tuple(_digest(token) for token in tokens)

    def opens(self, presented: str) -> bool:
        """Tell whether this is one of the tokens; nothing never is."""
        digest = _digest(presented)
        # All are compared, so that the time does not tell which one came close.
        return bool(sum([hmac.compare_digest(digest, right) for right in self._digests])) and presented != ""


@final
class Tries:
    """Counts what was wrong, peer by peer, and slows down those who go on."""

    __slots__ = ("_clock", "_tries")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tries: dict[str, tuple[float, int]] = {}

    def note(self, peer: str) -> None:
        """Count a wrong token of a peer, or raise if there were too many in this window."""
        now = self._clock()
        begun, tries = self._tries.pop(peer, (now, 0))
        if now - begun > _WINDOW_S:
            begun, tries = now, 0
        if len(self._tries) >= _MAX_PEERS:
            self._tries.pop(next(iter(self._tries)))
        self._tries[peer] = begun, tries + 1
        if tries >= MAX_TRIES:
            raise TooManyTries("too many wrong tokens; wait a second")


@final
class Doors:
    """The doors of a service that only looks at tokens in headers: what opens each."""

    __slots__ = ("_locks", "_tries")

    def __init__(self, tokens: Mapping[Access, tuple[str, ...]], *, clock: Callable[[], float]) -> None:
        """Take the tokens that open each door; one that has no entry is open."""
        self._locks = {door: Lock(given) for door, given in tokens.items()}
        self._tries = Tries(clock)

    def check(self, access: Access, shown: Shown, peer: str) -> None:
        """Raise unless the token that is shown opens the door."""
        lock = self._locks.get(access)
        if lock is None or lock.opens(shown.token):
            return
        if shown.token:
            self._tries.note(peer)
        # The same words at every door: they must not tell which doors there are.
        raise TokenRequired("this needs a token that opens it, as `Authorization: Bearer TOKEN`")


@final
class Reloading:
    """Authorizes requests with the tokens that are in the settings file.

    The version of the file is compared at most every `COMPARE_S`, when a request comes. So a token that was replaced is
    refused within 10 milliseconds. If the file is missing or cannot be read, the tokens that were read last stay in
    use.
    """

    __slots__ = ("_clock", "_compare_at", "_doors", "_failed", "_load", "_seen", "_version")

    def __init__(
        self,
        load: Callable[[], Doorkeeper],
        version: Callable[[], object],
        *,
        clock: Callable[[], float],
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """Read the tokens by `load`; `version` differs from one content of their file to the next, None without a file.

        `clock` returns seconds that never go back.
        """
        self._load = load
        self._version = version
        self._clock = clock
        self._failed = failed
        self._compare_at = clock() + COMPARE_S
        # Taken before the file is read: a change in between is found by the next comparison.
        self._seen = version()
        self._doors = load()

    def reload(self) -> None:
        """Read the tokens again, whether the file has changed or not."""
        self._doors = self._load()

    def check(self, access: Access, shown: Shown, peer: str) -> None:
        """Raise unless what is shown opens the door."""
        now = self._clock()
        if now >= self._compare_at:
            self._compare_at = now + COMPARE_S
            try:
                version = self._version()
                if version is not None and version != self._seen:
                    self._seen = version
                    self.reload()
            except RemitError as error:
                self._failed(error)
        self._doors.check(access, shown, peer)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
