"""Turns the paths and patterns that a user writes into entries of a resource scope.

A passport is used elsewhere and later, so entries are absolute and links are resolved; URLs, `**` and wildcards keep
their text. Invariants: a note shows where a link leads; a pattern is refused if a file of that very name
exists; and wildcard characters in the name of a file or folder are escaped.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from remit.claims.mission import EVERYTHING, escape_path, literal_path
from remit.cli.render import note
from remit.config import expand_user_path
from remit.errors import FieldInvalid, InputError, quote
from remit.policy.call import Effect
from remit.policy.scope import build_scope, covers, literal_entry

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WILDCARD: Final = re.compile(r"[*?\[]")
_WIDENING: Final = re.compile(r"[*?]")


def resolve_scope(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a resource scope. Raises for an entry that covers nothing."""
    given = enumerate(entries)
    return tuple(entry for index, text in given for entry in _resolve_entry(text, f"$.resource_scope[{index}]"))


def resolve_path(text: str, place: str) -> str:
    """Return a path, absolute and without links; print a note if it contained a link. It need not exist."""
    if not text or "\0" in text:
        raise FieldInvalid("is not a path", place=place)
    try:
        path = expand_user_path(text)
        real = os.path.realpath(path)
    except InputError as error:
        raise FieldInvalid(error.problem, place=place) from None
    except OSError:
        raise FieldInvalid("is a path that cannot be resolved", place=place) from None
    if real != os.path.abspath(path):  # noqa: PTH100 - links stay
        note(f"{quote(text)} resolves to {real}")
    return real


def _resolve_entry(text: str, place: str) -> tuple[str, ...]:
    entries = _resolve_text(text, place)
    scope = build_scope(entries, None)
    if not (scope.everything or scope.paths or scope.urls or scope.machine):
        forms = "a path, a glob, https://host/path, a resource of the machine such as db://name, or **"
        raise FieldInvalid(f"is not a resource: write {forms}", place=place)
    return entries


def _resolve_text(text: str, place: str) -> tuple[str, ...]:
    if text == EVERYTHING or _URL.match(text):
        return (text,)
    literal = literal_path(text)
    if literal is not None and (literal == text or not os.path.lexists(text)):
        return (literal_entry(resolve_path(literal, place), place),)
    fixed = _WILDCARD.split(text, maxsplit=1)[0]
    folder = fixed[: fixed.rfind("/") + 1]
    real, rest = resolve_path(folder or ".", place).removesuffix("/"), text[len(folder) :]
    path = f"{real}/{rest}"
    if not os.path.lexists(path):
        return (f"{escape_path(real)}/{rest}",)
    # Anyone who can create a file here, or commit one to a repository, could change the meaning of the pattern.
    if _WIDENING.search(rest) or os.path.realpath(path) != os.path.normpath(path):
        advice = "for the file, put its wildcards in brackets, as in [*]; for the pattern, remove the file"
        raise FieldInvalid(f"is a pattern, and a file of this very name exists: {advice}", place=place)
    return (literal_entry(os.path.normpath(path), place),)


def starting_directory(preferred: str | None, scope: tuple[str, ...]) -> str | None:
    """Return the directory for relative paths: `preferred` if the scope covers it, else the first one of the scope."""
    entries = build_scope(scope, None)
    if preferred is not None and covers(entries, Effect("read", preferred, "")):
        return preferred
    roots = (literal_path(entry.removesuffix("/**")) for entry in scope)
    return next((root for root in roots if root is not None and root.startswith("/") and Path(root).is_dir()), None)
