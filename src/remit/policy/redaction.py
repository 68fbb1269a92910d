"""What is said about a call, without the secrets that may stand in it: receipts are kept for long, and shown to many.

Keeps this invariant: what belongs to a URL before its host or after its `?`, and what is assigned to a name that speaks
of a secret, is not said. That a secret is told from other text by where it stands has its limits: one that stands alone
looks like any other word.
"""

import re
from typing import Final

__all__ = ["redacted", "worded"]

_HIDDEN: Final = "…"
_NAME: Final = (
    r"(?:secret|passw(?:or)?d|passphrase|pwd|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|credential|signature"
    r"|auth(?:orization)?|cookie)"
)
_PATTERNS: Final = (
    # The user and password of a URL.
    (re.compile(r"(?<=://)[^\s/@'\"<>]{1,1024}@"), f"{_HIDDEN}@"),
    # The values of its query, and of forms.
    (re.compile(r"([?&][^\s=&?'\"#<>]{1,256}=)[^\s&'\"#<>]+"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{4,}"), rf"\1 {_HIDDEN}"),
    (re.compile(rf"(?i)({_NAME}[\w-]{{0,64}}['\"]?\s?[=:]\s?['\"]?)(?!{_HIDDEN})[^\s&'\",;)<>]+"), rf"\1{_HIDDEN}"),
)
_LONG: Final = 80


def redacted(text: str) -> str:
    """Return text for people, without what may be a secret in it."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def worded(word: str) -> str:
    """Return a word of a call, to be named in a sentence: of one that is a text or a program, only how it begins."""
    first, space, _ = word.strip().partition("\n")[0].partition(" ")
    shown = first[:_LONG]
    cut = bool(space) or len(shown) < len(word.strip())
    return repr(shown + (_HIDDEN if cut else ""))
