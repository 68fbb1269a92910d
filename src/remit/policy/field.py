"""A word of a command line after expansion, with what is known of it."""

from typing import Literal, NamedTuple


class Field(NamedTuple):
    """One word after expansion.

    The kind says what `text` is: `exact`, the text itself; `pattern`, a glob; `below`, a directory that contains the
    path; `unknown`, a prefix of the word, which may also be several words.
    """

    text: str
    kind: Literal["exact", "pattern", "below", "unknown"]
    source: str
    # It starts with a quote, so a tilde is an ordinary character.
    quoted: bool = False
    # It may expand to several words.
    splits: bool = False
    # The directory that a relative path starts at.
    cwd: str | None = None
    # It may be a symbolic link.
    linked: bool = False
    # Which paths below a directory, as in `Effect.picks`.
    picks: str = "**"
    # It is a file name without a directory, so it may look like an option.
    bare: bool = False
    # A star in it stands for a number or a plain word, and not for file names.
    numbered: bool = False
    # A path below a directory is not empty.
    filled: bool = False
