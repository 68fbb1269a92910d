"""What one service takes and another does not: ways to bring a token, and requests that pages of browsers make.

Keeps these invariants: an origin that is not allowed reads nothing and changes nothing; no answer allows every origin,
or credentials that a browser adds by itself; and a cookie counts only where no page of another site had it sent. Which
tokens and cookies are right is for the doors.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remit.errors import OriginRefused
from remit.http.headers import HeaderList, Sent, bearer, cookie, is_of_our_site
from remit.http.tokens import Shown

__all__ = ["Customs"]

_READING: Final = ("GET", "HEAD")
_QUERY_TOKEN: Final = "token"  # noqa: S105 - the name of a field
_ASKED_BEFORE: Final = (b"content-type", b"authorization")
_PREFLIGHT_S: Final = 600


class Customs(NamedTuple):
    """The customs of a service. As they are without a word, they are those of one that browsers do not visit."""

    # Headers that bring a token, in the order in which they count; a bearer token counts after them.
    token_headers: tuple[bytes, ...] = ()
    # The name of the cookie that is shown at the doors; none if empty.
    cookie: bytes = b""
    # Which origins may read answers and ask for changes; None where this is not looked at, and no answer speaks of it.
    origins: Callable[[bytes], bool] | None = None
    # Whether a body of any type is read as JSON: where a header must bring a token, a browser asks first all the same.
    takes_any_type: bool = False

    def shown(self, sent: Sent, query: Mapping[str, str]) -> Shown:
        """Return the credentials of a request.

        The first place that is present decides, even if what stands there is wrong or empty: each token header in
        turn, then `Authorization`, then the query, then the cookie.
        """
        for name in self.token_headers:
            if name in sent:
                return Shown(sent[name].decode("latin-1").strip())
        if b"authorization" in sent:
            return Shown(bearer(sent))
        return Shown(
            "",
            query.get(_QUERY_TOKEN, ""),
            cookie(sent, self.cookie) if self.cookie and is_of_our_site(sent) else "",
        )

    def check_origin(self, method: str, sent: Sent) -> None:
        """Raise if a page of another origin asks for a change."""
        if self.origins is None or method in _READING:
            return
        origin = sent.get(b"origin")
        if not (is_of_our_site(sent) if origin is None else self.origins(origin)):
            raise OriginRefused("pages of this origin may change nothing here")

    def is_preflight(self, method: str, sent: Sent) -> bool:
        """Tell whether a browser asks what an origin may do that is allowed here."""
        return (
            method == "OPTIONS"
            and self.origins is not None
            and b"access-control-request-method" in sent
            and self.origins(sent.get(b"origin", b""))
        )

    def preflight(self) -> HeaderList:
        """Return what origins that are allowed may do: the same at every path, known or not."""
        return [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b", ".join((*_ASKED_BEFORE, *self.token_headers))),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
        ]

    def crossing(self, sent: Sent) -> HeaderList:
        """Return what lets a page of an origin that is allowed read an answer."""
        if self.origins is None:
            return []
        origin = sent.get(b"origin", b"")
        return [(b"access-control-allow-origin", origin)] if origin and self.origins(origin) else []
