"""Generates the OpenAPI 3.1 document of a service from its routes, and from the types that validate requests.

Invariant: the document is true; a test compares it with a running service. Constraints that JSON Schema cannot express
are checked all the same, and violations are answered with 400.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from remit.claims.types import DATE_TIME
from remit.schemas.shared import Answer, ErrorAnswer, RequestBody
from remit.server.auth import Access
from remit.server.routes import Route
from remit.server.statuses import STATUSES


class Security(NamedTuple):
    """The security schemes of a service."""

    # The OpenAPI objects by name.
    schemes: Mapping[str, Mapping[str, str]]
    # The schemes that give each kind of access, each sufficient alone; an empty name means that none is required.
    schemes_by_access: Mapping[Access, tuple[str, ...]]


BEARER_TOKENS: Final = Security(
    schemes={
        "token": {"type": "http", "scheme": "bearer", "description": "Required with --require-token"},
        "admin": {"type": "http", "scheme": "bearer", "description": "The admin token, always required"},
    },
    # Without --require-token, routes for the token are open.
    schemes_by_access={"token": ("", "token", "admin"), "admin": ("admin",)},
)
_TEMPLATE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_STATUS_DESCRIPTIONS: Final = {
    400: "The request is invalid",
    401: "A token or passport is missing, wrong or expired",
    403: "Forbidden for this client, or revoked",
    404: "Not found",
    405: "The method is not allowed",
    408: "The request did not arrive in time",
    409: "The request conflicts with an earlier one",
    413: "The body is too large",
    415: "The body is not plain JSON",
    429: "Too many wrong tokens, or too many calls in a session that has ended; these are not evaluated",
    431: "The headers are too large",
    500: "Internal error",
    503: "The ledger is not available, so nothing is decided; or the service is overloaded",
}
# Error statuses by kind of route: all routes, those that need a token, those with a body, those with a path parameter.
_ALWAYS: Final = (400, 403, 408, 431, 500, 503)
_WITH_A_TOKEN: Final = (401, 429)
_WITH_A_BODY: Final = (401, 404, 409, 413, 415, 429)
_WITH_A_PARAMETER: Final = (404,)

_REQUEST_ID: Final = {
    "description": "Identifies this answer, also in the log",
    "required": True,
    "schema": {"type": "string"},
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    429: {"Retry-After": "Seconds to wait"},
    503: {"Retry-After": "Seconds to wait"},
}


def describe(
    routes: Sequence[Route], *, title: str, summary: str, version: str, security: Security = BEARER_TOKENS
) -> dict[str, Any]:
    """Return the OpenAPI document of a service."""
    types = [ErrorAnswer, *(kind for route in routes for kind in _types(route))]
    references, schemas = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    by_type = dict(zip(types, references, strict=True))
    by_name = {kind.__name__: kind for kind in types}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type, security)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "summary": summary, "version": version},
        "paths": paths,
        "components": {
            "schemas": {name: _schema(by_name.get(name), schema) for name, schema in sorted(schemas.items())},
            "responses": {str(status): _error(status, by_type[ErrorAnswer]["$ref"]) for status in _STATUS_DESCRIPTIONS},
            "securitySchemes": {name: dict(scheme) for name, scheme in security.schemes.items()},
        },
    }


def _types(route: Route) -> list[Any]:
    kinds = (route.request, route.answer, *route.also)
    return [kind for kind in kinds if kind is not None and not isinstance(kind, str)]


def _operation(route: Route, by_type: Mapping[Any, Any], security: Security) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": "_".join(part for part in [route.method.lower(), *_id_parts(route.path)] if part),
        "responses": {"200": _answer(route, by_type)} | _errors(route),
    }
    if route.description:
        operation["description"] = route.description
    parameters = [*_path_parameters(route), *_query_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        required = route.without_body is None
        operation["requestBody"] = {"required": required, "content": {_JSON: {"schema": by_type[route.request]}}}
    if route.access != "open":
        operation["security"] = [{name: []} if name else {} for name in security.schemes_by_access[route.access]]
    return operation


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            schema = {"type": "string", "minLength": 1}
            yield {"name": part[1:-1], "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for choice in route.choices:
        schema = {"type": "string", "enum": list(choice.values), "default": choice.values[0]}
        yield {"name": choice.name, "in": "query", "description": choice.description, "schema": schema}


def _id_parts(path: str) -> list[str]:
    return ["".join(character if character.isalnum() else "_" for character in part) for part in path.split("/")]


def _answer(route: Route, by_type: Mapping[Any, Any]) -> dict[str, Any]:
    if isinstance(route.answer, str):
        description, media_type = route.summary, route.answer
        content: dict[str, Any] = {"schema": {"type": "object"}} if media_type == _JSON else {}
    else:
        description = (route.answer.__doc__ or route.summary).partition("\n")[0]
        forms = [by_type[kind] for kind in (route.answer, *route.also)]
        media_type, content = _JSON, {"schema": {"anyOf": forms} if route.also else forms[0]}
    return {"description": description, "headers": {"X-Request-Id": _REQUEST_ID}, "content": {media_type: content}}


def _errors(route: Route) -> dict[str, Any]:
    """Return the error statuses of a route; with `on_error`, only those from before its handler."""
    possible = {*_ALWAYS}
    if route.on_error is None and route.access != "open":
        possible |= {*_WITH_A_TOKEN}
    if route.on_error is None and route.request is not None:
        possible |= {*_WITH_A_BODY}
    if route.on_error is None and "{" in route.path:
        possible |= {*_WITH_A_PARAMETER}
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(possible)}


def _error(status: int, reference: str) -> dict[str, Any]:
    """Return the response of an error status, with its error codes."""
    codes = sorted({known.error_code for known in STATUSES.values() if known.status == status})
    schema = {"$ref": reference, "properties": {"error_code": {"enum": codes}}}
    described: dict[str, Any] = {"description": _STATUS_DESCRIPTIONS[status], "content": {_JSON: {"schema": schema}}}
    headers = _HEADERS.get(status, {})
    if headers:
        described["headers"] = {
            name: {"description": text, "required": True, "schema": {"type": "string"}}
            for name, text in headers.items()
        }
    return described


def _schema(kind: type | None, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type, with constraints that msgspec does not express."""
    described: dict[str, Any] = _plain(schema)
    if kind is not None and issubclass(kind, RequestBody):
        return described | kind.rules
    if kind is not None and issubclass(kind, Answer):
        # Members with a default are always written; only members that are UNSET are left out.
        always = {name for name, member in described["properties"].items() if "default" in member}
        described["required"] = sorted({*described["required"], *always}, key=list(described["properties"]).index)
    return described


def _plain(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema in a form that other tools support."""
    if isinstance(schema, Mapping):
        members = {name: _plain(value) for name, value in schema.items() if name != "pattern"}
        if "$ref" in members and members.keys() - {"$ref", "description"}:
            # Many tools ignore members beside a reference.
            members["allOf"] = [{"$ref": members.pop("$ref")}]
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            return members | _string_rule(pattern)
        return members if pattern is None else members | {"pattern": _plain(pattern)}
    return [_plain(value) for value in schema] if isinstance(schema, list | tuple) else schema


def _string_rule(pattern: str) -> dict[str, str]:
    r"""Return the constraint for a pattern: without `\A` and `\Z`, which are Python's, or as the format `date-time`."""
    inner = pattern.removeprefix(r"\A(?:").removesuffix(r")\Z")
    return {"format": "date-time"} if inner == DATE_TIME else {"pattern": f"^(?:{inner})$"}
