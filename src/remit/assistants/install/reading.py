"""Settings files of assistants, read to learn what they do to hooks.

Keeps this invariant: a file that is there is understood, or refused. Assistants read what we do not, a member that is
there twice or a number of any size, and then nobody can tell what the file says to them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.install.jsontext import BOM
from remit.claims.strictjson import JSON, MAX_BYTES, parse_json
from remit.errors import FieldInvalid, InputError

__all__ = ["read_settings", "shown_path"]

# No string of JSON goes over a line, so what begins one with two slashes is a comment to everyone who knows comments.
_COMMENTED_LINE: Final = re.compile(rb"^[ \t]*//[^\r\n]*\r?$", re.MULTILINE)


def read_settings(path: Path, *, with_comments: bool = False) -> Mapping[str, JSON]:
    """Return what a settings file says: nothing where there is none; an `InputError` names one not understood.

    `with_comments` is for assistants that know comments: lines of nothing else are left out.
    """
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1).removeprefix(BOM.encode("utf-8"))
        plain = _COMMENTED_LINE.sub(b"", data) if with_comments and len(data) <= MAX_BYTES else data
        value = parse_json(plain) if plain.strip(b" \t\r\n") else {}
    except OSError:
        raise FieldInvalid(
            "cannot be read, so it may turn hooks off: see who owns it", place=shown_path(path)
        ) from None
    except InputError as error:
        where = "" if error.place == "$" else f" at {error.place}"
        problem = (
            "is not plain JSON, which has no comments, so it may turn hooks off unseen: put it right first "
            f"({error.problem}{where})"
        )
        raise type(error)(problem, place=shown_path(path)) from None
    return value if isinstance(value, dict) else {}


def shown_path(path: str | Path) -> str:
    """Return enough of a path to know the file by, without where it lies."""
    return "/".join(Path(path).parts[-2:])
