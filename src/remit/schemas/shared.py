"""What the APIs of the proxy and the Hub have in common: base classes, health, errors and public keys.

A request with an unknown member is refused: it could be a limit that the client relies on. Answers may get new
members, so clients must ignore members that they do not know.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from remit.claims.types import Claims

__all__ = ["Answer", "ErrorAnswer", "HealthAnswer", "KeysAnswer", "RequestBody"]


class RequestBody(Claims, frozen=True, kw_only=True):
    """A JSON object with a fixed set of members; `rules` is JSON Schema for constraints across members."""

    rules: ClassVar[dict[str, Any]] = {}


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """A JSON object with at least these members. Members that are `UNSET` are omitted."""


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    """The body of every error response."""

    ok: Literal[False] = False
    error: Annotated[str, Meta(description="The error message, for people. One line.")]
    error_code: Annotated[str, Meta(description="The error code, for programs. Codes do not change.")]


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """That the service is running, and the versions of its API and program."""

    ok: Literal[True] = True
    schema_version: Annotated[str, Meta(description="The version of this API.")]
    version: Annotated[str, Meta(description="The version of the program.")]


class KeysAnswer(Answer, frozen=True, kw_only=True):
    """The public keys of the service, oldest first, as a JWK set (RFC 7517)."""

    keys: Annotated[list[dict[str, Any]], Meta(description="Each with kty, crv, x, y, alg, use and kid.")]
