"""Routes as data: which path and method asks for what, who may ask, and what comes back.

The table serves requests, describes them in the API page, and is walked by tests.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

from remit.claims.shapes import Claims
from remit.errors import FieldInvalid, MethodRefused, RouteNotFound
from remit.governor.evaluate import Answer
from remit.server.auth import Access
from remit.server.headers import Sent

__all__ = ["Choice", "Decision", "Failing", "Found", "Plain", "Request", "Route", "Router", "Streamed"]

_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_NO_HEADERS: Final[Sent] = {}


class Decision(NamedTuple):
    """What was decided on a call or an event of a session."""

    session_id: str
    answer: Answer


class Request(Struct):
    """A request as far as it was read, and what its handler reports for telemetry."""

    # An instance of the request type of its route; None without one, and until it is decoded.
    body: Any
    # Of the path.
    parameters: Mapping[str, str]
    # The thumbprint of the certificate that the client has shown; empty if none.
    holder: str
    request_id: str
    query: Mapping[str, str] = _NO_PARAMETERS
    # By their names in lower case.
    headers: Sent = _NO_HEADERS
    # The bytes of the body as they came.
    data: bytes = b""
    # Set by the handler.
    decision: Decision | None = None
    chain_is_broken: bool = False


class Plain(NamedTuple):
    """An answer that is bytes already."""

    content: bytes
    media_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Streamed(NamedTuple):
    """An answer that is made while it goes out. Its parts may wait for a disk; a generator is closed at last."""

    parts: Iterator[bytes]
    media_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_Answering: TypeAlias = Callable[[Request], Awaitable[Struct | Plain | Streamed]]
# Given the request, with its body as far as it was read, and what went wrong.
Failing: TypeAlias = Callable[[Request, Exception], Plain]


class Choice(NamedTuple):
    """A parameter of the query that has one of a few values; the first is meant where it is left out."""

    name: str
    values: tuple[str, ...]
    description: str

    def chosen(self, query: Mapping[str, str]) -> str:
        """Return the value that a query gives, or raise `FieldInvalid` naming those allowed."""
        value = query.get(self.name, self.values[0])
        if value not in self.values:
            raise FieldInvalid(f"must be one of {', '.join(self.values)}", place=f"query.{self.name}")
        return value


class Route(NamedTuple):
    """One thing that can be asked for."""

    method: str
    path: str
    answering: _Answering
    answer: type[Struct] | str
    summary: str
    # What its body must be; `dict` where any object will do.
    request: type[Claims] | type[dict[str, Any]] | None = None
    access: Access = "token"
    # What is taken for a body that was left out; None where there must be one.
    without_body: bytes | None = None
    # How a failure is told to clients that take nothing but 200 for an answer; None where they know statuses.
    failing: Failing | None = None
    # Parameters of the query that the description names.
    choices: tuple[Choice, ...] = ()
    # Further forms of the answer.
    also: tuple[type[Struct], ...] = ()
    # What the summary does not say.
    description: str = ""
    # The parameter of the path that the token must be for; empty where one token opens all.
    subject: str = ""


class Found(NamedTuple):
    """A route, and the parameters that its path has here."""

    route: Route
    parameters: Mapping[str, str]


_Methods: TypeAlias = dict[str, Route]


class Router:
    """Finds routes: whole paths by their text, others part by part."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._exact: dict[str, dict[str, Found]] = {}
        self._patterns: dict[tuple[str, ...], _Methods] = {}
        for route in routes:
            if "{" in route.path:
                self._patterns.setdefault(tuple(route.path.split("/")), {})[route.method] = route
            else:
                self._exact.setdefault(route.path, {})[route.method] = Found(route, _NO_PARAMETERS)

    def find(self, method: str, path: str) -> Found:
        """Return the route of a path as it was sent. What is asked for by GET is there for HEAD too."""
        wanted = "GET" if method == "HEAD" else method
        methods = self._exact.get(path)
        if methods is not None:
            found = methods.get(wanted)
            if found is None:
                raise MethodRefused(_allowed(methods))
            return found
        return self._find_by_parts(wanted, path.split("/"))

    def _find_by_parts(self, method: str, parts: list[str]) -> Found:
        for pattern, methods in self._patterns.items():
            parameters = _matched(pattern, parts)
            if parameters is not None:
                if method not in methods:
                    raise MethodRefused(_allowed(methods))
                return Found(methods[method], parameters)
        raise RouteNotFound("nothing is at this path")


def _matched(pattern: tuple[str, ...], parts: list[str]) -> Mapping[str, str] | None:
    """Return the parameters, if the parts fit. They are decoded after they were parted, so a slash can be in one."""
    if len(pattern) != len(parts):
        return None
    parameters = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            parameters[expected[1:-1]] = unquote(part, errors="replace")
        elif expected != part:
            return None
    return parameters


def _allowed(methods: Mapping[str, object]) -> str:
    return ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
