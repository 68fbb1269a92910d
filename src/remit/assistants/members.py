"""Members of a payload, as a dialect needs them: each is what it must be, or named in an error."""

from collections.abc import Mapping
from typing import Final

from remit.claims.strictjson import JSON
from remit.errors import FieldInvalid

__all__ = ["member", "opt_text", "said", "text"]

_MAX_TEXT: Final = 4096


def text(payload: Mapping[str, JSON], name: str) -> str:
    """Return a text that must be there."""
    value = payload.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEXT:
        raise FieldInvalid(f"must be a text of 1 to {_MAX_TEXT} characters", place=f"$.{name}")
    return value


def said(payload: Mapping[str, JSON], name: str) -> str:
    """Return a text, or nothing where there is none: for those who must not fail."""
    value = payload.get(name)
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT else ""


def opt_text(payload: Mapping[str, JSON], name: str) -> str:
    """Return a text, or nothing where it is missing; what is there and no text could name anyone."""
    value = payload.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise FieldInvalid(f"must be a text of at most {_MAX_TEXT} characters", place=f"$.{name}")
    return value


def member(payload: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    """Return an object that must be there."""
    value = payload.get(name)
    if not isinstance(value, dict):
        raise FieldInvalid("must be an object", place=f"$.{name}")
    return value
