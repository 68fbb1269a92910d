"""Parses a profile: settings, limits, allowed and blocked phrases.

Keeps this invariant: a line that may be meant as a rule is a rule or an error, so no rule is lost silently. Other text,
quotes, comments and code are ignored. `compiling.py` turns a profile into a mission.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from remit.errors import FieldInvalid, quote
from remit.profiles.limits import parse_limit
from remit.profiles.lines import Line, parse_lines, plain_words
from remit.profiles.phrases import Phrase, parse_phrase
from remit.profiles.unmarked import refuse_unmarked
from remit.profiles.values import KINDS

__all__ = ["HEADINGS", "SETTINGS", "Mode", "Profile", "parse_profile"]

Mode: TypeAlias = Literal["ask", "allow"]

SETTINGS: Final = ("Mode", "Mission", "Folder")
HEADINGS: Final = ("Limits", "Allowed", "Blocked", "Notes")
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_MAX_MISSION: Final = 4096
_MAX_PHRASES: Final = 200
_LIKE: Final = 0.7
_SETTING: Final = re.compile(r"[*_]{0,2}([A-Za-z]{2,20})[*_]{0,2}[ \t]*:[*_]{0,2}(?:[ \t]+(.*)|)", re.DOTALL)


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
        current = _known_heading(name, line, seen)
    _refuse_hidden_headings(sections)
    return sections


def _heading(line: Line) -> str | None:
    return _HEADING_NAMES.get(plain_words(line.words).casefold())


_HEADING_NAMES: Final = {name.casefold(): name for name in HEADINGS}


def _known_heading(name: str | None, line: Line, seen: set[str]) -> str:
    if name is None:
        nearest = _nearest(line.words, HEADINGS, 0.4) or " or ".join(f"“{known}”" for known in HEADINGS)
        raise _refused(f"{quote(line.words)} is not a known heading: do you mean {nearest}?", line.number)
    if name in seen:
        raise _refused(f"the heading “{name}” is repeated: put its items together", line.number)
    seen.add(name)
    return name


def _refuse_hidden_headings(sections: Mapping[str, list[Line]]) -> None:
    """Raise for text that looks like a heading or a setting but would be ignored."""
    for name in ("", "Limits", "Allowed", "Blocked"):
        for line in (line for line in sections[name] if line.kind == "text"):
            for number, words in enumerate(line.words.split("\n"), line.number):
                if (meant := _HEADING_NAMES.get(plain_words(words).casefold())) is not None:
                    raise _refused(f"looks like a heading: write ## {meant}", number)
                if name and (setting := _SETTING.fullmatch(words)) and setting[1].capitalize() in SETTINGS:
                    raise _refused(f"“{setting[1]}” belongs above the first ## heading", number)


def _settings(lines: Sequence[Line]) -> Mapping[str, _Setting]:
    settings: dict[str, _Setting] = {}
    for setting in (setting for line in lines for setting in _settings_of(line)):
        if setting.name in settings:
            raise _refused(f"“{setting.name}” is repeated", setting.line)
        settings[setting.name] = setting
    return settings


def _settings_of(line: Line) -> Iterator[_Setting]:
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
            raise _refused(f"{quote(words)} is not a setting; there are {known}, and rules go under ## Allowed", number)
        elif current:
            current = current._replace(value=f"{current.value} {words}".strip())
    yield from (current,) if current else ()


def _mission(setting: _Setting) -> str:
    if not 0 < len(setting.value) <= _MAX_MISSION:
        raise _refused(f"“Mission” must have between 1 and {_MAX_MISSION} characters", setting.line)
    return " ".join(setting.value.split())


def _mode(setting: _Setting) -> Mode:
    mode = setting.value.strip('`"*_. ').casefold()
    if mode not in _MODES:
        raise _refused(f"“Mode” must be {' or '.join(_MODES)}, not {quote(setting.value)}", setting.line)
    return mode


def _folder(setting: _Setting) -> str:
    folder = KINDS["path"].read(setting.value)
    if folder is None or set("*?") & set(folder):
        raise _refused(f"“Folder” must be {KINDS['path'].wanted}, not {quote(setting.value)}", setting.line)
    if f"{posixpath.normpath(folder)}/".startswith(("/", "~", "../")):
        raise _refused(
            f"{quote(folder)} is outside of the folder of this file: put the file there, and allow further "
            "folders with “Use” under Allowed",
            setting.line,
        )
    return folder


def _items(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the items of a list of rules. Raises for other text that may be meant as a rule."""
    for line in lines:
        refuse_unmarked(line)
        if line.kind == "item":
            yield line


def _limits(lines: Sequence[Line]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for line in _items(lines):
        member, value = parse_limit(line.words, line.number)
        if member in limits:
            raise _refused("repeats a limit of this kind", line.number)
        limits[member] = value
    return limits


def _phrases(lines: Sequence[Line], barred: Literal["unallowable", "unblockable"]) -> tuple[Phrase, ...]:
    phrases: dict[tuple[str, str], Phrase] = {}
    for line in _items(lines):
        phrase = parse_phrase(line.words, line.number)
        why: str = getattr(phrase.known, barred)
        if why:
            raise _refused(f"“{phrase.words}” is not possible here: {why}", line.number)
        phrases.setdefault(phrase[:2], phrase)
        if len(phrases) > _MAX_PHRASES:
            raise _refused(f"is beyond the {_MAX_PHRASES} rules that a profile may have", line.number)
    return tuple(phrases.values())


def _nearest(words: str, known: Sequence[str], likeness: float) -> str:
    spoken = {name.casefold(): name for name in known}
    found = get_close_matches(words.casefold(), spoken, 1, likeness)
    return f"“{spoken[found[0]]}”" if found else ""


def _refused(problem: str, number: int) -> FieldInvalid:
    return FieldInvalid(problem, place=f"line {number}")
