"""Authorizes requests to the Hub: by its token in a header, or in the query of two pages, or by the dashboard's cookie.

Invariants: the cookie is not the token and gives access to dashboard pages only; it ends when it expires, or when the
token of the Hub is replaced. The token of a protection gives access to the hooks of that protection and to nothing
else, and is derived from the token of the Hub, so it is replaced with it. The right token is always accepted, however
many wrong ones were tried. The token itself is not kept, only its digest and an HMAC state that is keyed with it.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple, final

from remit.claims.canonical import encode_base64url
from remit.errors import HubTokenRequired
from remit.server.auth import Access, BrowserPolicy, Credentials, RateLimiter, TokenSet, is_local_origin
from remit.server.hook_tokens import shared_hook_token
from remit.server.openapi import Security

COOKIE: Final = "remit_dashboard"
COOKIE_S: Final = 12 * 3600
_TOKEN_HEADER: Final = "X-Service-Hub-Token"  # noqa: S105 - the name of a header
_ALIAS: Final = "X-Ardur-Hub-Token"

HUB_BROWSER_POLICY: Final = BrowserPolicy(
    token_headers=(_TOKEN_HEADER.lower().encode("ascii"), _ALIAS.lower().encode("ascii")),
    cookie=COOKIE.encode("ascii"),
    origins=is_local_origin,
    accepts_any_type=True,
)
HUB_SECURITY: Final = Security(
    schemes={
        "token": {"type": "apiKey", "in": "header", "name": _TOKEN_HEADER, "description": f"Or as `{_ALIAS}`"},
        "bearer": {"type": "http", "scheme": "bearer", "description": "The same token"},
        "query": {"type": "apiKey", "in": "query", "name": "token", "description": "The same token, to bookmark"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by the dashboard"},
        "hook": {"type": "http", "scheme": "bearer", "description": "What `remit token hook PROTECTION` prints"},
    },
    schemes_by_access={
        "token": ("token", "bearer"),
        "page": ("token", "bearer", "query"),
        "view": ("token", "bearer", "cookie"),
        "hook": ("hook",),
    },
)


class _TokenState(NamedTuple):
    """What is derived from the token of the Hub."""

    tokens: TokenSet
    # An HMAC keyed with the token, to be copied for each message.
    mac: hmac.HMAC
    # The token that the first release has given to the hooks of all protections.
    shared_hooks: TokenSet


@final
class HubAuthenticator:
    """Authorizes requests to the Hub by token or cookie, and authenticates its answers to hooks."""

    __slots__ = ("_accepts_shared", "_limiter", "_state", "_wall")

    def __init__(
        self,
        token: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        accepts_shared: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Accept `token`. `clock` returns monotonic seconds, for the rate limit; `wall` the seconds since 1970.

        `accepts_shared` returns whether a protection was written by the first release, whose hooks all have one token.
        """
        self._state = _derive(token)
        self._accepts_shared = accepts_shared
        self._limiter = RateLimiter(clock)
        self._wall = wall

    def renew(self, token: str) -> None:
        """Replace the token. The one before is refused from now on, and so are its cookies and hook tokens."""
        self._state = _derive(token)

    def set_cookie(self) -> tuple[bytes, bytes]:
        """Return the `Set-Cookie` header that gives a browser access to the dashboard for `COOKIE_S` seconds."""
        expiry = str(int(self._wall()) + COOKIE_S)
        value = f"{expiry}.{_cookie_mac(self._state.mac, expiry)}"
        header = f"{COOKIE}={value}; Path=/dashboard/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_S}"
        return b"set-cookie", header.encode("ascii")

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless the credentials give this access."""
        if access == "open":
            return
        query = credentials.query if access == "page" else ""
        cookie = credentials.cookie if access == "view" else ""
        if access == "hook":
            is_right = self._is_hook_token(credentials)
        else:
            tokens = self._state.tokens
            is_right = tokens.matches(credentials.token) or tokens.matches(query) or self._is_valid_cookie(cookie)
        if is_right:
            return
        if credentials.token or query or cookie:
            self._limiter.count(peer)
        if access == "hook":
            raise HubTokenRequired("the hook has sent another token than that of its protection")
        # The same message for every kind of access: it must not reveal which kinds there are.
        raise HubTokenRequired(
            f"the token of the Hub is required, as `{_TOKEN_HEADER}: TOKEN`; `remit open` opens the dashboard with it"
        )

    def prove(self, protection: str, nonce: bytes, request: bytes, answer: bytes) -> str:
        """Return the HMAC that authenticates an answer to a hook.

        It covers the request too. With the nonce alone, an attacker who has seen it could send another event with the
        same nonce, and pass the answer to that event on to the hook.
        """
        key = _mac(self._state.mac, f"remit proof {protection}")
        request_digest = sha256(request).hexdigest().encode("ascii")
        return hmac.digest(key.encode("ascii"), b"\n".join((nonce, request_digest, answer)), "sha256").hex()

    def _is_hook_token(self, credentials: Credentials) -> bool:
        right = _mac(self._state.mac, f"remit hooks {credentials.subject}").encode("ascii")
        if hmac.compare_digest(credentials.token.encode("utf-8", "surrogatepass"), right):
            return True
        return self._state.shared_hooks.matches(credentials.token) and self._accepts_shared(credentials.subject)

    def _is_valid_cookie(self, cookie: str) -> bool:
        """Return whether the Hub has made this cookie with its current token, and it has not expired."""
        expiry, _, mac = cookie.partition(".")
        right = _cookie_mac(self._state.mac, expiry).encode("ascii")
        if not hmac.compare_digest(mac.encode("utf-8", "surrogatepass"), right):
            return False
        return self._wall() < int(expiry)  # a number, because the MAC is right


def _derive(token: str) -> _TokenState:
    mac = hmac.new(token.encode("utf-8"), digestmod=sha256)
    return _TokenState(TokenSet((token,)), mac, TokenSet((shared_hook_token(token),)))


def _cookie_mac(keyed: hmac.HMAC, expiry: str) -> str:
    return _mac(keyed, f"remit dashboard {expiry}")


def _mac(keyed: hmac.HMAC, text: str) -> str:
    mac = keyed.copy()
    mac.update(text.encode("utf-8", "surrogatepass"))
    return encode_base64url(mac.digest())
