"""One request to a service of ours, as a value: what is sent, and which answers belong to it.

Keeps this invariant: what is sent was read back by the rules that the service will hold it to. Which requests there are
is for `calls.py` and `hub_calls.py`, how they travel for `wire.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from remit.claims.shapes import encode, shape
from remit.claims.strictjson import parse_object
from remit.client.beliefs import Grounds
from remit.schemas.shared import Answer, HealthAnswer, Request

__all__ = ["Call", "health", "read_back", "take_any"]

_Answer = TypeVar("_Answer", bound=Answer)
_Request = TypeVar("_Request", bound=Request)


@dataclass(frozen=True)
class Call(Generic[_Answer]):
    """One request. `check` raises for an answer of the right shape that does not belong to it.

    `may_repeat` says that asking twice comes to the same as asking once. `secret` is what no message may show.
    """

    method: str
    path: str
    kind: type[_Answer]
    check: Callable[[_Answer, Grounds], None] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    may_repeat: bool = True
    is_admin: bool = False
    secret: str = field(default="", repr=False)


def read_back(request: _Request) -> tuple[_Request, bytes]:
    """Return a request as the service will read it, and its JSON."""
    body = encode(request)
    return shape(type(request), parse_object(body, exact_integers=True)), body


def take_any(_answer: Answer, _grounds: Grounds) -> None:
    """Check nothing: the answer names nothing that was asked for."""


def health() -> Call[HealthAnswer]:
    """Ask whether the service is there, and which one it is."""
    return Call("GET", "/health", HealthAnswer, take_any)
