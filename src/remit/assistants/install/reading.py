"""Reads settings files of assistants, to find out what they do to hooks.

Invariant: a file is parsed strictly or refused. Assistants accept duplicate members, numbers of any size and more, and
what they make of such a file is unknown.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from remit.assistants.install.files import shorten_path
from remit.assistants.install.jsontext import BOM
from remit.claims.strictjson import JSON, MAX_BYTES, parse_json
from remit.errors import FieldInvalid, InputError

# JSON strings do not span lines, so a line that starts with two slashes is always a comment.
_COMMENT_LINE: Final = re.compile(rb"^[ \t]*//[^\r\n]*\r?$", re.MULTILINE)


def read_settings(path: Path, *, with_comments: bool = False) -> Mapping[str, JSON]:
    """Return the members of a settings file: none if it does not exist or is no object.

    Raises `InputError` if it cannot be read or parsed.

    `with_comments` is for assistants that accept comments: lines with nothing but a comment are ignored.
    """
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1).removeprefix(BOM.encode("utf-8"))
        plain = _COMMENT_LINE.sub(b"", data) if with_comments and len(data) <= MAX_BYTES else data
        value = parse_json(plain) if plain.strip(b" \t\r\n") else {}
    except OSError:
        raise FieldInvalid(
            "cannot be read, so it may turn hooks off: check its owner and mode", place=shorten_path(path)
        ) from None
    except InputError as error:
        where = "" if error.place == "$" else f" at {error.place}"
        problem = (
            "cannot be parsed as strict JSON, so Remit cannot tell whether it turns hooks off: correct it first "
            f"({error.problem}{where})"
        )
        raise type(error)(problem, place=shorten_path(path)) from None
    return value if isinstance(value, dict) else {}
