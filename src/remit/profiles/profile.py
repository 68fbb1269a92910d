"""Parses a profile: settings, limits, allowed and blocked phrases.

Invariant: a line that may be meant as a rule is a rule or an error, so no rule is lost silently. Other text,
quotes, comments and code are ignored. `compiling.py` turns a profile into a mission.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from html import unescape
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from remit.errors import FieldInvalid, quote
from remit.profiles.limits import parse_limit, resembles_limit
from remit.profiles.lines import Line, parse_lines, plain_words
from remit.profiles.phrases import Phrase, parse_phrase, resembles_phrase
from remit.profiles.values import KINDS

Mode: TypeAlias = Literal["ask", "allow"]

# The name of the file in the folder that the profile is for.
PROFILE_FILE: Final = "REMIT.md"
SETTINGS: Final = ("Mode", "Mission", "Folder")
HEADINGS: Final = ("Limits", "Allowed", "Blocked", "Notes")
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_MAX_MISSION: Final = 4096
_MAX_PHRASES: Final = 200
_LIKE: Final = 0.7
_SETTING: Final = re.compile(r"[*_]{0,2}([A-Za-z]{2,20})[*_]{0,2}[ \t]*:[*_]{0,2}(?:[ \t]+(.*)|)", re.DOTALL)
# Bullets that people and programs use, but that are not Markdown list items.
_BULLET: Final = re.compile(r"[\u00b7\u2010-\u2015\u2022\u2023\u2043\u2212\u2219\u25a0-\u25ff]|[-+](?![-+\s])|[-+*]\s")
_LEADING: Final = re.compile(
    r"[\W_]*(?:(?:[0-9]{1,9}|[A-Za-z])[.)\]]|(?:allowed|blocked|limits)\s*:)?[\W_]*", re.IGNORECASE
)
_TRAILING: Final = re.compile(r"[\s*_~|<>“”\u2018\u2019'\"!?;:,]+\Z")
_TAG: Final = re.compile(r"<[^<>]*>")
_FIRST: Final = re.compile(r"[,;:(]|\s(?:and|or|because)\s", re.IGNORECASE)


class Profile(NamedTuple):
    """The content of a profile."""

    mission: str
    # With "ask", the assistant asks as usual before permitted calls; with "allow" it need not.
    mode: Mode = "ask"
    folder: str = "."
    max_tool_calls: int = 500
    max_duration_s: int = 8 * 3600
    allowed: tuple[Phrase, ...] = ()
    blocked: tuple[Phrase, ...] = ()


class ChosenProfile(NamedTuple):
    """A profile, its source and its digest. `path` is absolute; None for a template."""

    profile: Profile
    source: str
    path: str | None
    digest: str


class _Setting(NamedTuple):
    name: str
    value: str
    line: int


def parse_profile(text: str) -> Profile:
    """Parse the text of a profile. Raises `FieldInvalid` with the line number."""
    sections = _sections(parse_lines(text))
    settings = _settings(sections[""])
    if "Mission" not in settings:
        raise FieldInvalid("is missing: write it on its own line, above the first ## heading", place="Mission")
    limits = _limits(sections["Limits"])
    return Profile(
        mission=_mission(settings["Mission"]),
        mode=_mode(settings["Mode"]) if "Mode" in settings else "ask",
        folder=_folder(settings["Folder"]) if "Folder" in settings else ".",
        allowed=_phrases(sections["Allowed"], "unallowable"),
        blocked=_phrases(sections["Blocked"], "unblockable"),
        **limits,
    )


def _sections(lines: Sequence[Line]) -> Mapping[str, list[Line]]:
    """Return the lines by heading. Lines before the first heading, and the title, are under the empty string."""
    sections: dict[str, list[Line]] = {name: [] for name in ("", *HEADINGS)}
    current, titled, seen = "", False, set[str]()
    for line in lines:
        if line.kind != "heading":
            sections[current].append(line)
            continue
        name = _heading(line)
        if name is None and line.level == 1 and not titled and not seen:
            titled = True
            continue
        current = _check_heading(name, line, seen)
    _refuse_hidden_headings(sections)
    return sections


def _heading(line: Line) -> str | None:
    return _HEADING_NAMES.get(plain_words(line.words).casefold())


_HEADING_NAMES: Final = {name.casefold(): name for name in HEADINGS}


def _check_heading(name: str | None, line: Line, seen: set[str]) -> str:
    if name is None:
        nearest = _nearest(line.words, HEADINGS, 0.4) or " or ".join(f"“{known}”" for known in HEADINGS)
        raise _line_error(f"{quote(line.words)} is not a known heading: do you mean {nearest}?", line.number)
    if name in seen:
        raise _line_error(f"the heading “{name}” is repeated: put its items together", line.number)
    seen.add(name)
    return name


def _refuse_hidden_headings(sections: Mapping[str, list[Line]]) -> None:
    """Raise for text that looks like a heading or a setting but would be ignored."""
    for name in ("", "Limits", "Allowed", "Blocked"):
        for line in (line for line in sections[name] if line.kind == "text"):
            for number, words in enumerate(line.words.split("\n"), line.number):
                if (meant := _HEADING_NAMES.get(plain_words(words).casefold())) is not None:
                    raise _line_error(f"looks like a heading: write ## {meant}", number)
                if name and (setting := _SETTING.fullmatch(words)) and setting[1].capitalize() in SETTINGS:
                    raise _line_error(f"“{setting[1]}” belongs above the first ## heading", number)


def _settings(lines: Sequence[Line]) -> Mapping[str, _Setting]:
    settings: dict[str, _Setting] = {}
    for setting in (setting for line in lines for setting in _parse_settings(line)):
        if setting.name in settings:
            raise _line_error(f"“{setting.name}” is repeated", setting.line)
        settings[setting.name] = setting
    return settings


def _parse_settings(line: Line) -> Iterator[_Setting]:
    """Yield the settings of an item or a paragraph; each continues until the next one begins."""
    current: _Setting | None = None
    for number, words in enumerate(line.words.split("\n"), line.number):
        said = _SETTING.fullmatch(words)
        name = said[1].capitalize() if said else ""
        if said and name in SETTINGS:
            yield from (current,) if current else ()
            current = _Setting(name, (said[2] or "").strip(), number)
        elif line.kind == "item" or (said and _nearest(name, SETTINGS, _LIKE)):
            known = ", ".join(f"“{known}:”" for known in SETTINGS)
            raise _line_error(
                f"{quote(words)} is not a setting; there are {known}, and rules go under ## Allowed", number
            )
        elif current:
            current = current._replace(value=f"{current.value} {words}".strip())
    yield from (current,) if current else ()


def _mission(setting: _Setting) -> str:
    if not 0 < len(setting.value) <= _MAX_MISSION:
        raise _line_error(f"“Mission” must have between 1 and {_MAX_MISSION} characters", setting.line)
    return " ".join(setting.value.split())


def _mode(setting: _Setting) -> Mode:
    mode = setting.value.strip('`"*_. ').casefold()
    if mode not in _MODES:
        raise _line_error(f"“Mode” must be {' or '.join(_MODES)}, not {quote(setting.value)}", setting.line)
    return mode


def _folder(setting: _Setting) -> str:
    folder = KINDS["path"].read(setting.value)
    if folder is None or set("*?") & set(folder):
        raise _line_error(f"“Folder” must be {KINDS['path'].wanted}, not {quote(setting.value)}", setting.line)
    if f"{posixpath.normpath(folder)}/".startswith(("/", "~", "../")):
        raise _line_error(
            f"{quote(folder)} is outside of the folder of this file: put the file there, and allow further "
            "folders with “Use” under Allowed",
            setting.line,
        )
    return folder


def _items(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the items of a list of rules. Raises for other text that may be meant as a rule."""
    for line in lines:
        _refuse_unmarked(line)
        if line.kind == "item":
            yield line


def _limits(lines: Sequence[Line]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for line in _items(lines):
        member, value = parse_limit(line.words, line.number)
        if member in limits:
            raise _line_error("repeats a limit of this kind", line.number)
        limits[member] = value
    return limits


def _phrases(lines: Sequence[Line], barred: Literal["unallowable", "unblockable"]) -> tuple[Phrase, ...]:
    phrases: dict[tuple[str, str], Phrase] = {}
    for line in _items(lines):
        phrase = parse_phrase(line.words, line.number)
        why: str = getattr(phrase.known, barred)
        if why:
            raise _line_error(f"“{phrase.words}” is not possible here: {why}", line.number)
        phrases.setdefault(phrase[:2], phrase)
        if len(phrases) > _MAX_PHRASES:
            raise _line_error(f"is beyond the {_MAX_PHRASES} rules that a profile may have", line.number)
    return tuple(phrases.values())


def _nearest(words: str, known: Sequence[str], likeness: float) -> str:
    spoken = {name.casefold(): name for name in known}
    found = get_close_matches(words.casefold(), spoken, 1, likeness)
    return f"“{spoken[found[0]]}”" if found else ""


def _line_error(problem: str, number: int) -> FieldInvalid:
    return FieldInvalid(problem, place=f"line {number}")


def _refuse_unmarked(line: Line) -> None:
    """Raise for an item that continues on a second line, and for text that looks like a rule."""
    if line.kind == "item" and line.goes_on_at:
        raise FieldInvalid(
            "would continue the item above it: write an item on one line, and leave an empty line after it",
            place=f"line {line.goes_on_at}",
        )
    if line.kind == "text":
        for number, words in enumerate(line.words.split("\n"), line.number):
            if _BULLET.match(words) or any(map(_resembles_rule, _readings(words))):
                raise FieldInvalid(
                    f"{quote(words)} looks like a rule but is text: begin the line with “- ”, with one rule per line; "
                    "text like this belongs under ## Notes",
                    place=f"line {number}",
                )


def _readings(words: str) -> Iterator[str]:
    """Yield what a line may be meant as: each cell of a table, with and without marks, whole and up to a comma."""
    for cell in _TAG.sub(" ", unescape(words)).split("|"):
        bare = _LEADING.sub("", cell, count=1)
        for reading in dict.fromkeys((bare, _TRAILING.sub("", bare), _TRAILING.sub("", plain_words(bare)))):
            yield reading
            yield _FIRST.split(reading, maxsplit=1)[0]


def _resembles_rule(text: str) -> bool:
    return resembles_limit(text) or resembles_phrase(text)
