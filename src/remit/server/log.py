"""What the service says about itself: JSON lines for programs, short lines for people.

Keeps this invariant: a line holds no secret and is one line. Values under telling names, values that look like a token
and every registered secret are hidden; control characters are escaped; errors are named by type and by our own frames,
never by their messages, because those may carry input. Logging never raises, and never waits: lines are written by
`lines.py`. Before `configure` it says nothing. What was decided belongs into receipts, not here.
"""

import atexit
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import Any, Final, TextIO, TypeAlias

import orjson

from remit.errors import FieldInvalid, RemitError, quote
from remit.server.lines import Lines

__all__ = ["HIDDEN", "LEVELS", "MAX_VALUE", "Logger", "configure", "flush", "hide", "logger"]

HIDDEN: Final = "[hidden]"
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_VALUE: Final = 1_000
_MAX_NAME: Final = 100
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6
_TOO_DEEP: Final = "[too deep]"
_LARGE: Final = 1 << 53
_MAX_FRAMES: Final = 12
_MIN_SECRET: Final = 8
_SILENT: Final = 100
_FLUSH_S: Final = 1.0

_Members: TypeAlias = dict[str, Any]
_Line: TypeAlias = Callable[[_Members], str]


class _Secrets:
    """The service's own secrets, in memory only, and how anything that holds one is told."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self.longest = 0
        self.pattern = re.compile(_CREDENTIAL)

    def add(self, secret: str) -> None:
        self._known.add(secret)
        self.longest = max(map(len, self._known))
        self.pattern = re.compile("|".join((_CREDENTIAL, *map(re.escape, self._known))))


# The beginning of a token tells: what is cut off at its end may still be most of it.
_CREDENTIAL: Final = r"eyJ[A-Za-z0-9_-]{8,}|(?i:\bbearer(?:[\s:=+]|%20)+[^\s:=+])"
_SECRETS: Final = _Secrets()


def hide(secret: str) -> None:
    """Keep `secret` out of every line from now on, wherever it stands in a value."""
    if len(secret) < _MIN_SECRET:
        raise FieldInvalid(f"has at least {_MIN_SECRET} characters", place="$.secret")
    _SECRETS.add(secret)


_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_TELLING: Final = re.compile(
    r"token|authorization|cookie|secret|passw|passport|credential|bearer|(?:^|_)(?:[a-z]*api|private|signing)?keys?(?:_|$)"
)
_PLAIN_NAMES: Final = frozenset(("key_id", "kid", "passport_id"))


@lru_cache(maxsize=1_024)
def _tells(name: str) -> bool:
    """Tell whether values under this name are secret, by the name alone."""
    plain = _WORDS.sub("_", name).lower()
    return plain not in _PLAIN_NAMES and _TELLING.search(plain) is not None


# Controls, half characters, and what turns or hides text on a screen.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _clean(text: str, limit: int = MAX_VALUE) -> str:
    """Return text as it may stand in a line: hidden as a whole if any of it is secret, else escaped and clipped."""
    # A secret that begins inside of what is shown lies wholly inside of what is searched.
    if _SECRETS.pattern.search(text[: limit + _SECRETS.longest + len("bearer") * 4]):
        return HIDDEN
    shown = text if len(text) <= limit else text[:limit] + "..."
    return _UNPRINTABLE.sub(_escaped, shown)


def _shown(value: object, depth: int = 0) -> object:
    """Return any value as plain JSON without secrets. What is no plain value is named by its type alone."""
    for kinds, show in _SHOWN:
        if isinstance(value, kinds):
            return show(value, depth)
    return f"<{type(value).__name__}>"


def _shown_members(members: Mapping[Any, object], depth: int) -> object:
    """Return members with clean names; those under a telling name are hidden."""
    if depth > _MAX_DEPTH:
        return _TOO_DEEP
    shown: dict[str, object] = {}
    for name, value in islice(members.items(), _MAX_ITEMS):
        text = str(name) if isinstance(name, str | int) else type(name).__name__
        secret = len(text) > _MAX_NAME or _tells(text)
        shown[_clean(text, _MAX_NAME)] = HIDDEN if secret else _shown(value, depth + 1)
    return shown


def _shown_items(items: Iterable[object], depth: int) -> object:
    return _TOO_DEEP if depth > _MAX_DEPTH else [_shown(item, depth + 1) for item in islice(items, _MAX_ITEMS)]


def _shown_bytes(octets: bytes | bytearray, _depth: int) -> str:
    return _clean(octets[: 2 * MAX_VALUE + _SECRETS.longest].decode("utf-8", "backslashreplace"))


# The first that fits. Other values are not asked for a text of theirs: nobody knows what it would say.
_SHOWN: Final[Sequence[tuple[Any, Callable[[Any, int], object]]]] = (
    (str, lambda text, _: _clean(text)),
    (bool | float | None, lambda value, _: value),
    (int, lambda number, _: int(number) if abs(number) < _LARGE else "[large number]"),
    (bytes | bytearray, _shown_bytes),
    (BaseException, lambda error, _: _named(error)),
    (Mapping, _shown_members),
    (list | tuple | set | frozenset, _shown_items),
)


def _named(error: BaseException) -> str:
    """Return an error by its type, and by its code if it is one of ours."""
    return f"{type(error).__name__} ({error.code})" if isinstance(error, RemitError) else type(error).__name__


def _frames(trace: TracebackType | None) -> Iterator[str]:
    """Yield where in our code an error passed, as `module:line`. Paths of this machine stay out."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "remit":
            yield f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next


def _describe_error(event: _Members) -> None:
    """Replace `exc_info` by what may be said of the error."""
    given = event.pop("exc_info", None)
    if isinstance(given, tuple):
        given = given[1]
    error = given if isinstance(given, BaseException) else sys.exception() if given else None
    if error is not None:
        event["error"] = _named(error)
        event["frames"] = list(_frames(error.__traceback__))[-_MAX_FRAMES:]
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None:
            event["cause"] = _named(cause)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _redact(level: str, event: _Members) -> _Members:
    """Return the line's members in their order: our own first, and nobody can overwrite them."""
    own = {name: event.pop(name, None) for name in _OWN}
    first: _Members = {"timestamp": _now(), "level": level, "event": _shown(own["event"])}
    if own["request_id"] is not None:
        first["request_id"] = _shown(own["request_id"])
    rest = _shown(event)
    return {**first, "pid": os.getpid(), **(rest if isinstance(rest, dict) else {})}


_OWN: Final = frozenset(("timestamp", "level", "event", "request_id", "pid"))


def _as_json(event: _Members) -> str:
    return orjson.dumps(event).decode()


_BARE: Final = re.compile(r"[\w.:/+@-]+")


def _for_people(event: _Members) -> str:
    """Return a short line; a value that could pass for something else is quoted."""
    rest = [f"{name}={_word(value)}" for name, value in event.items() if name not in _UNTOLD]
    return " ".join((event["timestamp"][11:23], f"{event['level']:<7}", _plain(event["event"]), *rest))


_UNTOLD: Final = frozenset(("timestamp", "level", "event", "pid"))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _word(value: object) -> str:
    bare = isinstance(value, str) and _BARE.fullmatch(value)
    return str(value) if bare else orjson.dumps(value).decode()


class _Output:
    """Where lines go, and from which level on."""

    def __init__(self) -> None:
        self.threshold = _SILENT
        self._stream: TextIO | None = None
        self._line: _Line = _as_json
        self._lines = Lines(self._dropped)
        self.flush = self._lines.flush

    def point(self, threshold: int, line: _Line, stream: TextIO) -> None:
        self.threshold, self._line, self._stream = threshold, line, stream

    def write(self, event: _Members) -> None:
        if self._stream is not None:
            self._lines.put(self._stream, self._line(event) + "\n")

    def _dropped(self, count: int) -> str:
        said: _Members = {"timestamp": _now(), "level": "warning", "event": "lines_dropped", "pid": os.getpid()}
        return self._line({**said, "count": count}) + "\n"


_OUTPUT: Final = _Output()


class Logger:
    """Logs an event with named values: a value inside of the text could not be told apart from it."""

    def __init__(self, output: _Output) -> None:
        self._output = output

    @property
    def output(self) -> _Output:
        """Return where lines go, which has the lowest level that is written."""
        return self._output

    def debug(self, event: str, **fields: object) -> None:
        """Say what only helps to find a fault."""
        if self._output.threshold <= LEVELS["debug"]:
            self._say("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Say what happens when all is well."""
        if self._output.threshold <= LEVELS["info"]:
            self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Say what somebody should look at some time."""
        if self._output.threshold <= LEVELS["warning"]:
            self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Say what somebody should look at now; `exc_info=error` adds what may be said of an error."""
        if self._output.threshold <= LEVELS["error"]:
            self._say("error", event, fields)

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        with suppress(Exception):  # a line is not worth an error
            members = {**fields, "event": event}
            _describe_error(members)
            self._output.write(_redact(level, members))


_LOGGER: Final = Logger(_OUTPUT)


def logger() -> Logger:
    """Return the logger."""
    return _LOGGER


class _Forward(logging.Handler):
    """Takes what libraries say by `logging` down the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say the first line of a record; those that follow are reprs, with messages and paths in them."""
        with suppress(Exception):
            level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
            said = record.getMessage().partition("\n")[0]
            getattr(_LOGGER, level)(said, logger=record.name, exc_info=record.exc_info)


def configure(level: str, *, as_json: bool, stream: TextIO) -> None:
    """Send lines of `level` and above to `stream`, ours and those of libraries; may be called again."""
    if level not in LEVELS:
        raise FieldInvalid(f"must be one of {', '.join(LEVELS)}, not {quote(level)}", place="$.level")
    _OUTPUT.point(LEVELS[level], _as_json if as_json else _for_people, stream)
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(LEVELS[level])


def flush(timeout_s: float = _FLUSH_S) -> None:
    """Have all lines written; whoever does not read them is waited for a moment, and then no longer."""
    _OUTPUT.flush(timeout_s)


atexit.register(flush)
