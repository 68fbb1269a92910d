"""Authorizes requests: by tokens, and by what browsers say about the page that made a request.

Invariants: the right token is always accepted, however many wrong ones were tried; tokens are compared in constant
time, and only their digests are kept. An origin that is not allowed reads nothing and changes nothing; it is compared
whole, as browsers write it. No response allows every origin, or credentials that a browser adds by itself; and a cookie
counts only where no page of another site had it sent. `headers.py` reads single headers, `application.py` calls all of
this in one order.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, final

from remit.errors import RemitError, TokenRequired, TooManyTries
from remit.server.headers import HeaderList, Sent, bearer, cookie, is_of_our_site
from remit.server.hosts import LOOPBACK_AUTHORITY

__all__ = [
    "COMPARE_S",
    "MAX_TRIES",
    "Access",
    "Authenticator",
    "BrowserPolicy",
    "Credentials",
    "RateLimiter",
    "ReloadingAuthenticator",
    "TokenAuthenticator",
    "TokenSet",
    "is_local_origin",
]

# Whom a route is for: anyone, holders of the service's token, its administrator; people, who open a page by its
# address, and from there the views that it leads to; and hooks of assistants, which can do nothing else.
Access: TypeAlias = Literal["open", "token", "admin", "page", "view", "hook"]

# Wrong tokens of one peer within a second.
MAX_TRIES: Final = 10
_WINDOW_S: Final = 1.0
_MAX_PEERS: Final = 1024
# How long a token may still be accepted that was replaced in the settings.
COMPARE_S: Final = 0.01

_SAFE_METHODS: Final = ("GET", "HEAD")
_QUERY_TOKEN: Final = "token"  # noqa: S105 - the name of a field
_CORS_HEADERS: Final = (b"content-type", b"authorization")
_PREFLIGHT_S: Final = 600
# Only a browser writes these, and for its own extensions alone; what their ids look like is for it to say.
_EXTENSION: Final = rb"(?:chrome|moz)-extension://[A-Za-z0-9-]{1,64}"
_LOCAL_ORIGIN: Final = re.compile(_EXTENSION + rb"|http://" + LOOPBACK_AUTHORITY.encode("ascii"))


class Credentials(NamedTuple):
    """The credentials of a request: a token in a header, one in the query, a cookie; each empty if there is none.

    `subject` is the part of the path that a scoped token must be for.
    """

    token: str = ""
    query: str = ""
    cookie: str = ""
    subject: str = ""


class Authenticator(Protocol):
    """Authorizes requests by their credentials."""

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless the credentials give this access."""


@final
class TokenSet:
    """Some tokens, as digests."""

    __slots__ = ("_digests",)

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = tuple(_digest(token) for token in tokens)

    def matches(self, presented: str) -> bool:
        """Tell whether this is one of the tokens; the empty text never is."""
        digest = _digest(presented)
        # All are compared, so that the time does not tell which one came close.
        return bool(sum([hmac.compare_digest(digest, right) for right in self._digests])) and presented != ""


@final
class RateLimiter:
    """Counts wrong tokens by peer, and refuses more than `MAX_TRIES` in a second."""

    __slots__ = ("_clock", "_tries")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tries: dict[str, tuple[float, int]] = {}

    def count(self, peer: str) -> None:
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
class TokenAuthenticator:
    """Authorizes requests by tokens in headers alone."""

    __slots__ = ("_limiter", "_tokens")

    def __init__(self, tokens: Mapping[Access, tuple[str, ...]], *, clock: Callable[[], float]) -> None:
        """Take the tokens that give each kind of access; one without an entry needs none."""
        self._tokens = {access: TokenSet(given) for access, given in tokens.items()}
        self._limiter = RateLimiter(clock)

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless the token of a request gives this access."""
        tokens = self._tokens.get(access)
        if tokens is None or tokens.matches(credentials.token):
            return
        if credentials.token:
            self._limiter.count(peer)
        # The same message for every kind of access: it must not tell which kinds there are.
        raise TokenRequired("this needs a token that opens it, as `Authorization: Bearer TOKEN`")


@final
class ReloadingAuthenticator:
    """Authorizes requests with the tokens that are in the settings file.

    The version of the file is compared at most every `COMPARE_S`, when a request comes. So a token that was replaced is
    refused within 10 milliseconds. If the file is missing or cannot be read, the tokens that were read last stay in
    use.
    """

    __slots__ = ("_authenticator", "_clock", "_compare_at", "_failed", "_load", "_seen", "_version")

    def __init__(
        self,
        load: Callable[[], Authenticator],
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
        self._authenticator = load()

    def reload(self) -> None:
        """Read the tokens again, whether the file has changed or not."""
        self._authenticator = self._load()

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless the credentials give this access."""
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
        self._authenticator.check(access, credentials, peer)


class BrowserPolicy(NamedTuple):
    """Where a service takes credentials from, and what pages may do. The default is for one without browsers."""

    # Headers that bring a token, in the order in which they count; a bearer token counts after them.
    token_headers: tuple[bytes, ...] = ()
    # The name of the cookie that is taken for a credential; none if empty.
    cookie: bytes = b""
    # Which origins may read responses and make changes; None where origins are not checked and no CORS header is sent.
    origins: Callable[[bytes], bool] | None = None
    # Whether a body of any type is read as JSON: where a header must bring a token, a browser asks first all the same.
    accepts_any_type: bool = False

    def credentials(self, sent: Sent, query: Mapping[str, str]) -> Credentials:
        """Return the credentials of a request.

        The first place that is present decides, even if what stands there is wrong or empty: each token header in
        turn, then `Authorization`, then the query, then the cookie.
        """
        for name in self.token_headers:
            if name in sent:
                return Credentials(sent[name].decode("latin-1").strip())
        if b"authorization" in sent:
            return Credentials(bearer(sent))
        return Credentials(
            "",
            query.get(_QUERY_TOKEN, ""),
            cookie(sent, self.cookie) if self.cookie and is_of_our_site(sent) else "",
        )

    def allows(self, method: str, sent: Sent) -> bool:
        """Tell whether a request changes nothing, or comes from an allowed origin or no page of another one."""
        if self.origins is None or method in _SAFE_METHODS:
            return True
        origin = sent.get(b"origin")
        return is_of_our_site(sent) if origin is None else self.origins(origin)

    def is_preflight(self, method: str, sent: Sent) -> bool:
        """Tell whether a browser asks what an allowed origin may do."""
        return (
            method == "OPTIONS"
            and self.origins is not None
            and b"access-control-request-method" in sent
            and self.origins(sent.get(b"origin", b""))
        )

    def preflight_headers(self) -> HeaderList:
        """Return what allowed origins may do: the same at every path, known or not."""
        return [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b", ".join((*_CORS_HEADERS, *self.token_headers))),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
        ]

    def cors_headers(self, sent: Sent) -> HeaderList:
        """Return what lets a page of an allowed origin read the response."""
        if self.origins is None:
            return []
        origin = sent.get(b"origin", b"")
        return [(b"access-control-allow-origin", origin)] if origin and self.origins(origin) else []


def is_local_origin(origin: bytes) -> bool:
    """Tell whether this is a browser extension, or a page that this machine serves to itself over HTTP.

    Nothing is trimmed, decoded or put into lower case. `null` and loopback names over HTTPS are refused.
    """
    return _LOCAL_ORIGIN.fullmatch(origin) is not None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
