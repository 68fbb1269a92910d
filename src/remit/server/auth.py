"""Authorizes requests by tokens, and by the headers in which browsers describe the page that made a request.

Invariants: the right token is always accepted, however many wrong ones were tried. Tokens are compared in constant
time, and only their digests are kept. A page of an origin that is not allowed can read and change nothing; origins are
compared as a whole, as browsers write them. No response allows all origins, or credentials that browsers add by
themselves. A cookie is accepted only if no page of another site made the request. `headers.py` parses single headers;
`application.py` calls these checks.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, final

from remit.errors import RemitError, TokenRequired, TooManyTries
from remit.server.headers import HeaderList, Headers, bearer, cookie, is_same_origin
from remit.server.hosts import LOOPBACK_AUTHORITY

# Who may use a route: "open" is for everyone, "token" needs the service's token, "admin" the administrator's.
# "page" also accepts the token in the query, so that users can open a page by its URL, and "view" the cookie that such
# a page has set. "hook" needs the token of one protection, which is for its hooks only.
Access: TypeAlias = Literal["open", "token", "admin", "page", "view", "hook"]

# Wrong tokens that one peer may send within a second.
MAX_TRIES: Final = 10
_WINDOW_S: Final = 1.0
_MAX_PEERS: Final = 1024
# How long a token that was replaced in the settings may still be accepted.
COMPARE_S: Final = 0.01

_SAFE_METHODS: Final = ("GET", "HEAD")
_QUERY_TOKEN: Final = "token"  # noqa: S105 - the name of a field
_CORS_HEADERS: Final = (b"content-type", b"authorization")
_PREFLIGHT_S: Final = 600
# Only browsers send these, for their extensions. The form of the ids differs between browsers.
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
    """A set of tokens, kept as digests."""

    __slots__ = ("_digests",)

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = tuple(_digest(token) for token in tokens)

    def matches(self, presented: str) -> bool:
        """Return whether this is one of the tokens. The empty string never is."""
        digest = _digest(presented)
        # All are compared, so that the time does not reveal which one came close.
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
    """Authorizes requests by tokens in headers only."""

    __slots__ = ("_limiter", "_tokens")

    def __init__(self, tokens: Mapping[Access, tuple[str, ...]], *, clock: Callable[[], float]) -> None:
        """Accept these tokens for each kind of access. A kind without an entry needs no token."""
        self._tokens = {access: TokenSet(given) for access, given in tokens.items()}
        self._limiter = RateLimiter(clock)

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless the token of a request gives this access."""
        tokens = self._tokens.get(access)
        if tokens is None or tokens.matches(credentials.token):
            return
        if credentials.token:
            self._limiter.count(peer)
        # The same message for every kind of access: it must not reveal which kinds there are.
        raise TokenRequired("a token with access is required, as `Authorization: Bearer TOKEN`")


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
        """Read the tokens with `load`. `version` returns a value that changes with the file; None if there is no file.

        `clock` returns monotonic seconds. `failed` is called with each error of a reload.
        """
        self._load = load
        self._version = version
        self._clock = clock
        self._failed = failed
        self._compare_at = clock() + COMPARE_S
        # Before the file is read, so that the next comparison finds a change in between.
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
    """Where a service accepts credentials, and which origins may use it. The default is for a service without pages."""

    # Headers with a token, in order of precedence. `Authorization` comes after them.
    token_headers: tuple[bytes, ...] = ()
    # The name of the cookie that is accepted; none if empty.
    cookie: bytes = b""
    # Which origins may read responses and make changes; None where origins are not checked and no CORS header is sent.
    origins: Callable[[bytes], bool] | None = None
    # Whether a body of any type is read as JSON. Safe if a token header is required: browsers send a preflight then.
    accepts_any_type: bool = False

    def credentials(self, sent: Headers, query: Mapping[str, str]) -> Credentials:
        """Return the credentials of a request.

        The first of these that is present counts, even if its value is wrong or empty: the token headers in turn,
        `Authorization`, the query, the cookie.
        """
        for name in self.token_headers:
            if name in sent:
                return Credentials(sent[name].decode("latin-1").strip())
        if b"authorization" in sent:
            return Credentials(bearer(sent))
        return Credentials(
            "",
            query.get(_QUERY_TOKEN, ""),
            cookie(sent, self.cookie) if self.cookie and is_same_origin(sent) else "",
        )

    def allows(self, method: str, sent: Headers) -> bool:
        """Return whether a request is safe, or comes from an allowed origin, or from no page of another origin."""
        if self.origins is None or method in _SAFE_METHODS:
            return True
        origin = sent.get(b"origin")
        return is_same_origin(sent) if origin is None else self.origins(origin)

    def is_preflight(self, method: str, sent: Headers) -> bool:
        """Return whether this is a CORS preflight request from an allowed origin."""
        return (
            method == "OPTIONS"
            and self.origins is not None
            and b"access-control-request-method" in sent
            and self.origins(sent.get(b"origin", b""))
        )

    def preflight_headers(self) -> HeaderList:
        """Return the headers of a preflight response. They are the same for every path, known or not."""
        return [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b", ".join((*_CORS_HEADERS, *self.token_headers))),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
        ]

    def cors_headers(self, sent: Headers) -> HeaderList:
        """Return the header that lets a page of an allowed origin read the response."""
        if self.origins is None:
            return []
        origin = sent.get(b"origin", b"")
        return [(b"access-control-allow-origin", origin)] if origin and self.origins(origin) else []


def is_local_origin(origin: bytes) -> bool:
    """Return whether an origin is a browser extension, or a loopback host over plain HTTP.

    Nothing is trimmed, decoded or lowercased. `null`, and loopback hosts over HTTPS, are refused.
    """
    return _LOCAL_ORIGIN.fullmatch(origin) is not None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
