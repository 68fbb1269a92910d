"""One normaliser for paths, used for the check and for the record.

A text that another program could read as a different place is refused: what is compared with the scope must be what is
opened. Links are followed by the port in `files.py`.
"""

import re
from functools import lru_cache
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from remit.policy.files import Files, Look

__all__ = ["join", "locate", "refuse_text"]

_MAX_PATH: Final = 4096
# Controls, and characters that are not seen or turn the direction of what is.
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(]|%[A-Za-z_]+%")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|file:", re.IGNORECASE)
_DRIVE: Final = re.compile(r"[A-Za-z]:|\\\\|//")
_DOTS: Final = re.compile(r"(?:\A|[\\/])\.\.(?:[\\/]|\Z)")


@lru_cache(maxsize=4096)
def refuse_text(text: str) -> str:
    """Return why a path cannot be taken as it is written, or nothing where it can."""
    if text.isascii() and _ORDINARY.match(text):
        return ""
    for reason, refused in _REFUSALS:
        if refused(text):
            return reason
    return ""


_ORDINARY: Final = re.compile(r"(?!//)[A-Za-z0-9_./+@,=-]{1,1024}\Z")


def _hides_dots(decoded: str, text: str) -> bool:
    return _DOTS.search(decoded) is not None and _DOTS.search(text) is None


def _is_ambiguous(text: str) -> bool:
    if text.isascii():
        return False
    for name in text.split("/"):
        plain = normalize("NFKC", name)
        if plain != name and ("/" in plain or ("\\" in plain and "\\" not in name) or plain in (".", "..")):
            return True
    return False


_REFUSALS: Final = (
    ("it is longer than a path can be", lambda text: len(text) > _MAX_PATH),
    ("it holds characters that cannot be seen", lambda text: _HIDDEN.search(text) is not None),
    ("it starts or ends with white space", lambda text: text != text.strip()),
    ("it starts at a home directory, which is not known here", lambda text: text.startswith("~")),
    ("it holds a variable that somebody else would fill in", lambda text: _VARIABLE.search(text) is not None),
    ("it is a URL, not a path", lambda text: _SCHEME.match(text) is not None),
    ("it starts at a drive or a network share", lambda text: _DRIVE.match(text) is not None),
    ("it goes upwards with backslashes", lambda text: "\\" in text and _DOTS.search(text) is not None),
    ("it goes upwards in encoded form", lambda text: "%" in text and _hides_dots(unquote(unquote(text)), text)),
    ("it holds characters that can be read as separators or dots", _is_ambiguous),
)  # fmt: skip


def join(base: str, text: str) -> str:
    """Return `text` as seen from the directory `base`."""
    if text.startswith("/"):
        return text
    return f"{base}/{text}" if text else base


def locate(text: str, base: str | None, files: Files) -> Look:
    """Return the real place of the path `text`, seen from `base`, or why nobody can say."""
    refusal = refuse_text(text)
    if refusal:
        return Look(text, refusal=refusal)
    if not text.startswith("/") and base is None:
        return Look(text, refusal="it is relative, and no working directory is known")
    return files.look(join(base or "/", text))
