"""Who may come in to the Hub: its token by a header, on two pages by their address, on further ones by a cookie.

Keeps these invariants: a cookie is not the token and opens nothing but what is read; it ends with its time, or with the
token that it was made by; the token of a protection opens the hooks of that protection and nothing else, and ends with
the token of the Hub too; and the right token always opens, however many wrong ones were tried. The token is not kept,
only what tells that another is the same.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple, final

from remit.claims.canonical import encode_base64url
from remit.errors import HubTokenRequired
from remit.server.auth import Access, BrowserPolicy, Credentials, RateLimiter, TokenSet, is_local_origin
from remit.server.openapi import Security

__all__ = [
    "COOKIE",
    "COOKIE_S",
    "HUB_BROWSER_POLICY",
    "HUB_SECURITY",
    "HubDoors",
    "hook_token",
    "proof_key",
    "shared_hook_token",
]

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
    opened_by={
        "token": ("token", "bearer"),
        "page": ("token", "bearer", "query"),
        "view": ("token", "bearer", "cookie"),
        "hook": ("hook",),
    },
)


class _Keyed(NamedTuple):
    """What is made from the token."""

    tokens: TokenSet
    # Keyed, and not yet told what to authenticate.
    seal: hmac.HMAC
    # What hooks of protections show that the first release has written.
    shared_hooks: TokenSet


def hook_token(token: str, protection: str) -> str:
    """Return the token that the hooks of a protection show: an HMAC of the Hub's token, which opens nothing else."""
    return encode_base64url(hmac.digest(token.encode("utf-8"), f"remit hooks {protection}".encode(), "sha256"))


def proof_key(token: str, protection: str) -> str:
    """Return the key by which the Hub proves itself to the hooks of a protection. It is never sent."""
    return encode_base64url(hmac.digest(token.encode("utf-8"), f"remit proof {protection}".encode(), "sha256"))


def shared_hook_token(token: str) -> str:
    """Return the token that the first release has given to the hooks of all protections."""
    return encode_base64url(hmac.digest(token.encode("utf-8"), b"remit hooks", "sha256"))


@final
class HubDoors:
    """The doors of the Hub."""

    __slots__ = ("_keyed", "_limiter", "_takes_shared", "_wall")

    def __init__(
        self,
        token: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        takes_shared: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Open for `token`; `clock` tells how fast wrong ones come, `wall` the seconds since 1970.

        `takes_shared` tells whether a protection was written by the first release, whose hooks show one token for all.
        """
        self._keyed = _keyed(token)
        self._takes_shared = takes_shared
        self._limiter = RateLimiter(clock)
        self._wall = wall

    def renew(self, token: str) -> None:
        """Open for another token from now on; the one before opens nothing any more, nor do its cookies."""
        self._keyed = _keyed(token)

    def set_cookie(self) -> tuple[bytes, bytes]:
        """Return the header that has a browser open the views, for half a day."""
        expiry = str(int(self._wall()) + COOKIE_S)
        value = f"{expiry}.{_sealed(self._keyed.seal, expiry)}"
        written = f"{COOKIE}={value}; Path=/dashboard/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_S}"
        return b"set-cookie", written.encode("ascii")

    def check(self, access: Access, credentials: Credentials, peer: str) -> None:
        """Raise unless what is shown opens the door."""
        if access == "open":
            return
        query = credentials.query if access == "page" else ""
        cookie = credentials.cookie if access == "view" else ""
        if access == "hook":
            opens = self._opens_hook(credentials)
        else:
            tokens = self._keyed.tokens
            opens = tokens.matches(credentials.token) or tokens.matches(query) or self._is_ours(cookie)
        if opens:
            return
        if credentials.token or query or cookie:
            self._limiter.count(peer)
        if access == "hook":
            raise HubTokenRequired("this hook does not show the token of its protection")
        # The same words at every door: they must not tell which doors there are.
        raise HubTokenRequired(
            f"this needs the token of the Hub, as `{_TOKEN_HEADER}: TOKEN`; `remit open` brings it along"
        )

    def prove(self, protection: str, nonce: bytes, request: bytes, answer: bytes) -> str:
        """Return what proves to a hook that an answer is the Hub's, and that it answers this request.

        The request is part of it: whoever was shown the nonce could otherwise have the answer to another event proved.
        """
        key = _made(self._keyed.seal, f"remit proof {protection}")
        asked = sha256(request).hexdigest().encode("ascii")
        return hmac.digest(key.encode("ascii"), b"\n".join((nonce, asked, answer)), "sha256").hex()

    def _opens_hook(self, credentials: Credentials) -> bool:
        right = _made(self._keyed.seal, f"remit hooks {credentials.subject}").encode("ascii")
        if hmac.compare_digest(credentials.token.encode("utf-8", "surrogatepass"), right):
            return True
        return self._keyed.shared_hooks.matches(credentials.token) and self._takes_shared(credentials.subject)

    def _is_ours(self, cookie: str) -> bool:
        """Tell whether we have made a cookie, and its time is not over."""
        expiry, _, seal = cookie.partition(".")
        right = _sealed(self._keyed.seal, expiry).encode("ascii")
        if not hmac.compare_digest(seal.encode("utf-8", "surrogatepass"), right):
            return False
        return self._wall() < int(expiry)  # we have sealed it, so it is a number


def _keyed(token: str) -> _Keyed:
    seal = hmac.new(token.encode("utf-8"), digestmod=sha256)
    return _Keyed(TokenSet((token,)), seal, TokenSet((shared_hook_token(token),)))


def _sealed(seal: hmac.HMAC, expiry: str) -> str:
    return _made(seal, f"remit dashboard {expiry}")


def _made(seal: hmac.HMAC, text: str) -> str:
    making = seal.copy()
    making.update(text.encode("utf-8", "surrogatepass"))
    return encode_base64url(making.digest())
