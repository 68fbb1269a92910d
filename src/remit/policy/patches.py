"""Finds the files that a patch names, as coding assistants, git and patch read it.

The format of Codex, also used by opencode and Copilot, has headers such as `*** Add File: name`. Its parsers differ:
some require a blank after the colon, some accept white space before the stars, and a header counts anywhere, also after
`@@`. Lines of content start with `+`, `-` or a blank. A unified diff has `--- name` and `+++ name`.

Every line that one of these parsers reads as a header counts, with the name as each of them reads it. A line that
starts like a header, in a form that none of them is known to read, makes the patch doubtful.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

# White space at the ends of a line for some parser, and invisible characters.
_BLANKS: Final = "".join(map(chr, range(33))) + (
    "\x7f\x85\xa0\xad\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u200c\u200d\u200e"
    "\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
_OTHER_ENDS: Final = re.compile(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_STARS: Final = "***"
_HEADER: Final = re.compile(r"\*\*\* (?:(?:Add|Update|Delete) File|Move to):")
_FRAME: Final = ("*** Begin Patch", "*** End Patch", "*** End of File")
_ENVIRONMENT: Final = "*** Environment ID: "
# Some models write a patch as the here-document that they would give to a shell.
_HEREDOC: Final = re.compile(r"(?:cat\s+)?<<-?\s*(['\"]?)\w+\1\Z")
# The first characters of lines in a unified diff that may name a file.
_MARKS: Final = frozenset("*-+rcdIOB=@")
_SIDES: Final = ("--- ", "+++ ")
_MOVES: Final = ("rename from ", "rename to ", "copy from ", "copy to ")
_GIT: Final = "diff --git "
_OTHER_NAMES: Final = ("Index: ", "Only in ", "Binary files ", "diff ", "===")
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def patched_files(text: str, *, codex_only: bool = False) -> tuple[list[str], bool]:
    """Return the files that a patch names, and whether it may name others.

    With `codex_only`, a patch that starts with `*** Begin Patch` is read in the format of Codex only, for tools that
    know no other: what looks like a unified diff in it is content.
    """
    names: list[str] = []
    doubtful = False
    # Parsers differ on line ends, so every way to split the text is checked.
    text = text.replace("\r\n", "\n")
    readings = [text.split("\n")]
    if _OTHER_ENDS.search(text):
        readings.append(text.splitlines())
    for lines in readings:
        doubtful |= _read_headers(lines, names)
        if not (codex_only and _is_framed(lines)):
            doubtful |= _read_diff(lines, names)
    names = list(dict.fromkeys(names))
    return names, doubtful or not names


def _is_framed(lines: Sequence[str]) -> bool:
    """Return whether a patch starts with the first line of the Codex format, alone or in a here-document."""
    given = [line.strip(_BLANKS) for line in lines if line.strip(_BLANKS)][:2]
    if given and _HEREDOC.match(given[0]):
        del given[0]
    return given[:1] == [_FRAME[0]]


def _read_headers(lines: Sequence[str], names: list[str]) -> bool:
    """Add the files of Codex headers; return whether there are other lines that may be headers."""
    doubtful = False
    for raw in lines:
        line = raw.strip(_BLANKS)
        if not line.startswith(_STARS):
            continue
        header = _HEADER.match(line)
        if header is None:
            # After a blank it is content, and no parser is known to look for other headers there.
            doubtful |= not _is_frame(line) and not raw.startswith(" ")
            continue
        name = line[header.end() :].strip(_BLANKS)
        # The name as read by parsers that remove only the blank after the colon, or nothing at the end.
        whole = raw.partition(":")[2].removeprefix(" ")
        names.extend((name, whole) if name else ())
        doubtful |= not name or '"' in name or name.endswith(_STARS)
    return doubtful


def _is_frame(line: str) -> bool:
    return line in _FRAME or line.startswith(_ENVIRONMENT)


def _read_diff(lines: Sequence[str], names: list[str]) -> bool:
    """Add the files of a unified diff; return whether it names any in an unknown way."""
    doubtful = False
    # The remaining lines of the hunk in the old and the new file.
    old = new = 0
    for at, raw in enumerate(lines):
        line = raw.strip(_BLANKS)
        inside = (old > 0 or new > 0) and raw[:1] in ("", " ", "+", "-", "\\")
        if inside:
            old -= raw[:1] not in ("+", "\\")
            new -= raw[:1] not in ("-", "\\")
        else:
            hunk = _HUNK.match(line)
            old, new = (int(hunk[1] or 1), int(hunk[2] or 1)) if hunk else (0, 0)
        if line[:1] in _MARKS:
            names.extend(_named_files(line))
            # Some parsers do not count lines, and take anything that looks like the start of a diff for one.
            doubtful |= (not inside or _starts_diff(lines[at : at + 3])) and _is_odd(line)
    return doubtful


def _starts_diff(lines: Sequence[str]) -> bool:
    marks = (*_SIDES, "@@")
    return len(lines) == len(marks) and all(map(str.startswith, lines, marks))


def _named_files(line: str) -> Iterator[str]:
    for mark in (*_SIDES, *_MOVES):
        if line.startswith(mark):
            name = line.removeprefix(mark).partition("\t")[0].strip()
            if name != "/dev/null":
                yield name
                # Without the first component, as programs that apply patches do.
                yield name.partition("/")[2] if mark in _SIDES and not name.startswith("/") and "/" in name else name
    if line.startswith(_GIT):
        for name in line.removeprefix(_GIT).split(" "):
            yield name.partition("/")[2] if name[:2] in ("a/", "b/") else name


def _is_odd(line: str) -> bool:
    if line.startswith((_GIT, *_SIDES, *_MOVES)):
        return '"' in line
    if line.startswith(_STARS):
        # The old name of a context diff, unless it is in the Codex format.
        return not _HEADER.match(line) and not _is_frame(line)
    return line.startswith(_OTHER_NAMES)
