"""Parses the Markdown of a profile into headings, list items and text.

Markdown is read as it is rendered: comments and code are ignored, and a continued line belongs to the item before it.
Invariant: what a reader could see differently is refused, such as invisible characters, and headings in a
form that would leave their items under the previous heading.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from remit.errors import FieldInvalid

MAX_BYTES: Final = 65_536
_MAX_LINE: Final = 4096
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_UNDERLINE: Final = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(.*)")
# Inline code may begin with three backticks too, but then has more backticks after it on the line.
_FENCE: Final = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_RULE: Final = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
_DECORATION: Final = re.compile(r"<[^<>]*>|[*_:#>`\s]+")

_COMMENT: Final = "<!--"
_COMMENT_END: Final = "-->"

LineKind: TypeAlias = Literal["heading", "item", "text"]


class Line(NamedTuple):
    """One heading, item or paragraph: its words, and the number of its first line."""

    kind: LineKind
    words: str
    number: int
    # Of a heading: its level.
    level: int = 0
    # Of an item or text: the number of its second line; 0 if it has only one.
    goes_on_at: int = 0


def decode_profile(data: bytes) -> str:
    """Decode a profile. Raises if it is too long or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise FieldInvalid(f"is longer than {MAX_BYTES} bytes, the limit for a profile", place="profile")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise FieldInvalid("is not UTF-8", place=f"line {number}") from None


def parse_lines(text: str) -> list[Line]:
    """Return the headings, items and paragraphs of a profile, in order."""
    found: list[Line] = []
    goes_on = False
    for number, line in _number_lines(_split_lines(text)):
        if not line.strip() or _RULE.fullmatch(line):
            _refuse_underline(line, number, goes_on=goes_on)
            goes_on = False
        elif heading := _HEADING.fullmatch(line):
            found.append(Line("heading", (heading[2] or "").strip(), number, len(heading[1])))
            goes_on = False
        elif item := _ITEM.fullmatch(line):
            found.append(Line("item", item[1].strip(), number))
            goes_on = True
        else:
            _refuse_underline(line, number, goes_on=goes_on)
            _take(found, line.strip(), number, goes_on=goes_on)
            goes_on = True
    return found


def _take(found: list[Line], words: str, number: int, *, goes_on: bool) -> None:
    """Add a line of text: as a new paragraph, or as the continuation of the line before."""
    if not goes_on:
        found.append(Line("text", words, number))
        return
    last = found[-1]
    between = "\n" if last.kind == "text" else " "
    found[-1] = last._replace(words=f"{last.words}{between}{words}", goes_on_at=last.goes_on_at or number)


def _refuse_underline(line: str, number: int, *, goes_on: bool) -> None:
    if goes_on and _UNDERLINE.fullmatch(line):
        raise _line_error("makes the line before it a heading: write headings with ## instead", number)


def plain_words(words: str) -> str:
    """Return words without Markdown emphasis and HTML tags."""
    return _DECORATION.sub(" ", words).strip()


def _split_lines(text: str) -> list[str]:
    if len(text) > MAX_BYTES:
        raise FieldInvalid(f"is longer than {MAX_BYTES} bytes, the limit for a profile", place="profile")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if _UNSEEN.search(line):
            raise _line_error("has a character that is invisible, or that controls or reorders text", number)
        if len(line) > _MAX_LINE:
            raise _line_error(f"is longer than {_MAX_LINE} characters", number)
    return lines


def _line_error(problem: str, number: int) -> FieldInvalid:
    return FieldInvalid(problem, place=f"line {number}")


def _number_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; comments and code blocks become empty lines."""
    # What ends the current comment or code block, and the line where it began.
    until, began = "", 0
    for number, line in enumerate(lines, 1):
        if until == _COMMENT_END:
            until = _after_comment(line, number)
            yield number, ""
        elif until:
            until = "" if _closes(until, line) else until
            yield number, ""
        elif mark := _FENCE.fullmatch(line):
            until, began = mark[1], number
            yield number, ""
        else:
            rest, open_comment = _without_comments(line, number)
            until, began = (_COMMENT_END, number) if open_comment else ("", 0)
            yield number, rest
    if until:
        raise _line_error(f"begins a block that does not end: write {until} after it", began)


def _closes(fence: str, line: str) -> bool:
    mark = _FENCE.fullmatch(line)
    return mark is not None and mark[1].startswith(fence) and not mark[2].strip()


def _after_comment(line: str, number: int) -> str:
    """Return what ends the comment; empty if it has ended. Markdown renders no text after a multi-line comment."""
    _, end, rest = line.partition(_COMMENT_END)
    if rest.strip():
        raise _line_error("continues after the end of a comment: begin a new line there", number)
    return "" if end else _COMMENT_END


def _without_comments(line: str, number: int) -> tuple[str, bool]:
    """Return a line without its comments, and whether the last one is still open."""
    kept = ""
    while _COMMENT in line:
        before, _, after = line.partition(_COMMENT)
        # Markdown parsers disagree on comments in code, after a backslash, and in these short forms.
        if "`" in before or before.endswith("\\") or after.startswith((">", "->")):
            raise _line_error("has a comment that can be read in two ways: put it on a line of its own", number)
        kept += before
        _, end, line = after.partition(_COMMENT_END)
        if not end:
            return kept, True
    return kept + line, False
