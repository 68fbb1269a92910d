"""Routes as data: method, path, handler, required access, and the types of request and answer.

The same table is used for routing, for the OpenAPI document, and by tests.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

from remit.claims.types import Claims
from remit.errors import FieldInvalid, MethodRefused, RouteNotFound
from remit.governor.evaluate import Evaluation
from remit.server.auth import Access
from remit.server.headers import Headers

_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_NO_HEADERS: Final[Headers] = {}


class SessionDecision(NamedTuple):
    """The decision on a call or an event of a session."""

    session_id: str
    answer: Evaluation


class Request(Struct):
    """A request as far as it was read, and members that its handler sets for telemetry."""

    # An instance of the request type of the route. None if the route has none, and until the body is decoded.
    body: Any
    # The parameters in the path.
    parameters: Mapping[str, str]
    # The thumbprint of the client's certificate; empty without one.
    holder: str
    request_id: str
    query: Mapping[str, str] = _NO_PARAMETERS
    # By their names in lower case.
    headers: Headers = _NO_HEADERS
    # The body, not decoded.
    data: bytes = b""
    # Set by the handler.
    decision: SessionDecision | None = None
    chain_is_broken: bool = False


class BytesResponse(NamedTuple):
    """An answer that is encoded already."""

    content: bytes
    media_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class StreamedResponse(NamedTuple):
    """An answer that is produced while it is sent. Its parts may read from disk; a generator is closed at the end."""

    parts: Iterator[bytes]
    media_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_Handler: TypeAlias = Callable[[Request], Awaitable[Struct | BytesResponse | StreamedResponse]]
# Called with the request, whose body may not be decoded, and the error.
ErrorHandler: TypeAlias = Callable[[Request, Exception], BytesResponse]


class Choice(NamedTuple):
    """A query parameter with a fixed set of values, of which the first is the default."""

    name: str
    values: tuple[str, ...]
    description: str

    def parse(self, query: Mapping[str, str]) -> str:
        """Return the value in a query, or raise `FieldInvalid`."""
        value = query.get(self.name, self.values[0])
        if value not in self.values:
            raise FieldInvalid(f"must be one of {', '.join(self.values)}", place=f"query.{self.name}")
        return value


class Route(NamedTuple):
    """A method and a path, and how they are handled."""

    method: str
    path: str
    handler: _Handler
    # The type of the answer, or its media type.
    answer: type[Struct] | str
    summary: str
    # The type of the body; `dict` for any JSON object.
    request: type[Claims] | type[dict[str, Any]] | None = None
    access: Access = "token"
    # The body if the client sends none; None if a body is required.
    without_body: bytes | None = None
    # Builds the answer to an error, for clients that only accept status 200; None to answer with an error status.
    on_error: ErrorHandler | None = None
    # Query parameters, for the OpenAPI document.
    choices: tuple[Choice, ...] = ()
    # Further types of the answer.
    also: tuple[type[Struct], ...] = ()
    # The description in the OpenAPI document.
    description: str = ""
    # The path parameter that a scoped token must be for; empty if tokens are not scoped.
    subject: str = ""


class Found(NamedTuple):
    """A route, and the values of its path parameters."""

    route: Route
    parameters: Mapping[str, str]


_Methods: TypeAlias = dict[str, Route]


class Router:
    """Finds the route of a path: those without parameters in a dictionary, others by comparing the parts."""

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
        """Return the route of a path that is not decoded. HEAD has the routes of GET."""
        wanted = "GET" if method == "HEAD" else method
        methods = self._exact.get(path)
        if methods is not None:
            found = methods.get(wanted)
            if found is None:
                raise MethodRefused(_format_allowed(methods))
            return found
        return self._find_by_parts(wanted, path.split("/"))

    def _find_by_parts(self, method: str, parts: list[str]) -> Found:
        for pattern, methods in self._patterns.items():
            parameters = _match(pattern, parts)
            if parameters is not None:
                if method not in methods:
                    raise MethodRefused(_format_allowed(methods))
                return Found(methods[method], parameters)
        raise RouteNotFound("there is nothing at this path")


def _match(pattern: tuple[str, ...], parts: list[str]) -> Mapping[str, str] | None:
    """Return the path parameters, or None if the path does not match. An escaped slash does not separate parts."""
    if len(pattern) != len(parts):
        return None
    parameters = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            parameters[expected[1:-1]] = unquote(part, errors="replace")
        elif expected != part:
            return None
    return parameters


def _format_allowed(methods: Mapping[str, object]) -> str:
    return ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
