"""What every service of ours answers with: health, errors, and lists of public keys.

A request with a member that we do not know is refused: it could be a limit that somebody relies on. An answer may grow
members, so whoever reads one must not mind those it does not know.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from remit.claims.shapes import Claims

__all__ = ["Answer", "ErrorAnswer", "HealthAnswer", "KeysAnswer", "Request"]


class Request(Claims, frozen=True, kw_only=True):
    """A JSON object with a fixed set of members; `rules` is what the API page says beyond each of them."""

    rules: ClassVar[dict[str, Any]] = {}


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """A JSON object with at least these members. Those that are not given are `UNSET` and not written."""


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    """Every answer that is not a success."""

    ok: Literal[False] = False
    error: Annotated[str, Meta(description="What is wrong, for people. One line.")]
    error_code: Annotated[str, Meta(description="What is wrong, for programs. Codes do not change.")]


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """That the service is there, and which one it is; nothing else."""

    ok: Literal[True] = True
    schema_version: Annotated[str, Meta(description="Of this API.")]
    version: Annotated[str, Meta(description="Of the program.")]


class KeysAnswer(Answer, frozen=True, kw_only=True):
    """The public keys that have signed here, oldest first, as a key set of RFC 7517."""

    keys: Annotated[list[dict[str, Any]], Meta(description="Each with kty, crv, x, y, alg, use and kid.")]
