"""What people write for resources, as a passport must say it: absolute, real, and meaning something.

A passport is read elsewhere and later, so a relative path, a `~` or a link would come to mean another place. URLs, `**`
and the wildcards of a glob keep their text.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from remit.claims.mission import EVERYTHING, is_pattern
from remit.config import user_path
from remit.errors import FieldInvalid, InputError
from remit.policy.call import Effect
from remit.policy.scope import build_scope, covers

__all__ = ["real_path", "real_scope", "starting_directory"]

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WILDCARD: Final = re.compile(r"[*?\[]")
# A `[` alone does no harm: an entry also means the path that is written like it.
_WIDENING: Final = re.compile(r"[*?]")


def real_scope(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a resource scope as a passport says them, or raise for one that would mean nothing."""
    return tuple(_real_entry(text, f"$.resource_scope[{index}]") for index, text in enumerate(entries))


def real_path(text: str, place: str) -> str:
    """Return a path, absolute and without links; it need not exist."""
    if not text or "\0" in text:
        raise FieldInvalid("is not a path", place=place)
    try:
        return os.path.realpath(user_path(text))
    except InputError as error:
        raise FieldInvalid(error.problem, place=place) from None
    except OSError:
        raise FieldInvalid("is a path that cannot be followed", place=place) from None


def _real_entry(text: str, place: str) -> str:
    entry = _written(text, place)
    scope = build_scope((entry,), None)
    if not (scope.everything or scope.paths or scope.urls):
        raise FieldInvalid("means no resource: write a path, a glob, https://host/path or **", place=place)
    return entry


def _written(text: str, place: str) -> str:
    if text == EVERYTHING or _URL.match(text):
        return text
    if is_pattern(text) and not os.path.lexists(text):
        fixed = _WILDCARD.split(text, maxsplit=1)[0]
        folder = fixed[: fixed.rfind("/") + 1]
        real = _WILDCARD.sub(r"[\g<0>]", real_path(folder or ".", place)).removesuffix("/")
        return f"{real}/{text[len(folder) :]}"
    path = real_path(text, place)
    if _WIDENING.search(path):
        raise FieldInvalid("lies in a folder whose name reads as a wildcard: use another", place=place)
    return path


def starting_directory(preferred: str | None, scope: tuple[str, ...]) -> str | None:
    """Return where relative paths start: at `preferred` if the scope covers it, else at the scope's first directory."""
    entries = build_scope(scope, None)
    if preferred is not None and covers(entries, Effect("read", preferred, "")):
        return preferred
    roots = (entry.removesuffix("/**") for entry in scope)
    return next((root for root in roots if root.startswith("/") and Path(root).is_dir()), None)
