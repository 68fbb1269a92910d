"""One request as a value: what is sent, and how its response is checked.

Invariant: a request is validated by the rules of the service before it is sent. The requests are defined in
`calls.py` and `hub_calls.py`; `transport.py` sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from remit.claims.strictjson import parse_object
from remit.claims.types import convert, encode
from remit.client.response_checks import CheckContext
from remit.schemas.shared import Answer, HealthAnswer, RequestBody

__all__ = ["ServiceCall", "accept_any", "health", "read_back"]

_Answer = TypeVar("_Answer", bound=Answer)
_Request = TypeVar("_Request", bound=RequestBody)


@dataclass(frozen=True)
class ServiceCall(Generic[_Answer]):
    """One request. `check` raises if a decoded answer does not belong to it.

    `may_repeat`: whether the request is idempotent. `secret` is removed from error messages.
    """

    method: str
    path: str
    kind: type[_Answer]
    check: Callable[[_Answer, CheckContext], None] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    may_repeat: bool = True
    is_admin: bool = False
    secret: str = field(default="", repr=False)


def read_back(request: _Request) -> tuple[_Request, bytes]:
    """Return a request as the service will decode it, and its JSON."""
    body = encode(request)
    return convert(type(request), parse_object(body, exact_integers=True)), body


def accept_any(_answer: Answer, _context: CheckContext) -> None:
    """Check nothing, for answers that have nothing in common with the request."""


def health() -> ServiceCall[HealthAnswer]:
    """Ask whether the service is running, and for its versions."""
    return ServiceCall("GET", "/health", HealthAnswer, accept_any)
