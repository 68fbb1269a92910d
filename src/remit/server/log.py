"""The log of a service: JSON lines for programs, or short lines for people.

Invariant: a record is one line and has no secret in it. Values are hidden if their name suggests a secret, if they look
like a token, or if they contain a registered secret. Control characters are escaped. Errors are logged by type and by
the frames in this package; not by message, because messages can contain input. Logging never raises and never blocks:
`lines.py` writes the lines. Nothing is logged before `configure`. Decisions are recorded in receipts, not in the log.
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
from remit.server.lines import LineWriter

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
_Format: TypeAlias = Callable[[_Members], str]


class _Secrets:
    """The registered secrets, and the pattern that finds them and other credentials in a text."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self.longest = 0
        self.pattern = re.compile(_CREDENTIAL)

    def add(self, secret: str) -> None:
        self._known.add(secret)
        self.longest = max(map(len, self._known))
        self.pattern = re.compile("|".join((_CREDENTIAL, *map(re.escape, self._known))))


# The beginning of a token is enough: a truncated token may still be most of it.
_CREDENTIAL: Final = r"eyJ[A-Za-z0-9_-]{8,}|(?i:\bbearer(?:[\s:=+]|%20)+[^\s:=+])"
_SECRETS: Final = _Secrets()


def hide(secret: str) -> None:
    """Hide every value that contains `secret` from now on."""
    if len(secret) < _MIN_SECRET:
        raise FieldInvalid(f"must have at least {_MIN_SECRET} characters", place="$.secret")
    _SECRETS.add(secret)


_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET_NAME: Final = re.compile(
    r"token|authorization|cookie|secret|passw|passport|credential|bearer|(?:^|_)(?:[a-z]*api|private|signing)?keys?(?:_|$)"
)
_PLAIN_NAMES: Final = frozenset(("key_id", "kid", "passport_id"))


@lru_cache(maxsize=1_024)
def _names_secret(name: str) -> bool:
    """Return whether values under this name are secret, by the name alone."""
    plain = _WORDS.sub("_", name).lower()
    return plain not in _PLAIN_NAMES and _SECRET_NAME.search(plain) is not None


# Control characters, surrogates, and characters that reorder or hide text.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _clean(text: str, limit: int = MAX_VALUE) -> str:
    """Return text for a line: `HIDDEN` if any part of it is secret, else escaped and clipped."""
    # The searched part is longer than the shown part, so that a secret across the limit is found.
    if _SECRETS.pattern.search(text[: limit + _SECRETS.longest + len("bearer") * 4]):
        return HIDDEN
    shown = text if len(text) <= limit else text[:limit] + "..."
    return _UNPRINTABLE.sub(_escape, shown)


def _sanitize(value: object, depth: int = 0) -> object:
    """Return a value as JSON without secrets. Values of other types are replaced by the name of their type."""
    for kinds, sanitize in _SANITIZERS:
        if isinstance(value, kinds):
            return sanitize(value, depth)
    return f"<{type(value).__name__}>"


def _sanitize_members(members: Mapping[Any, object], depth: int) -> object:
    """Return members with sanitized names and values; values are hidden if their name suggests a secret."""
    if depth > _MAX_DEPTH:
        return _TOO_DEEP
    sanitized: dict[str, object] = {}
    for name, value in islice(members.items(), _MAX_ITEMS):
        text = str(name) if isinstance(name, str | int) else type(name).__name__
        secret = len(text) > _MAX_NAME or _names_secret(text)
        sanitized[_clean(text, _MAX_NAME)] = HIDDEN if secret else _sanitize(value, depth + 1)
    return sanitized


def _sanitize_items(items: Iterable[object], depth: int) -> object:
    return _TOO_DEEP if depth > _MAX_DEPTH else [_sanitize(item, depth + 1) for item in islice(items, _MAX_ITEMS)]


def _sanitize_bytes(octets: bytes | bytearray, _depth: int) -> str:
    return _clean(octets[: 2 * MAX_VALUE + _SECRETS.longest].decode("utf-8", "backslashreplace"))


# The first that matches is used. `str` is not called on other values, because the result could contain anything.
_SANITIZERS: Final[Sequence[tuple[Any, Callable[[Any, int], object]]]] = (
    (str, lambda text, _: _clean(text)),
    (bool | float | None, lambda value, _: value),
    (int, lambda number, _: int(number) if abs(number) < _LARGE else "[large number]"),
    (bytes | bytearray, _sanitize_bytes),
    (BaseException, lambda error, _: _error_name(error)),
    (Mapping, _sanitize_members),
    (list | tuple | set | frozenset, _sanitize_items),
)


def _error_name(error: BaseException) -> str:
    """Return the type of an error, with its code if it is a `RemitError`."""
    return f"{type(error).__name__} ({error.code})" if isinstance(error, RemitError) else type(error).__name__


def _frames(trace: TracebackType | None) -> Iterator[str]:
    """Yield the frames of a traceback that are in this package, as `module:line`, without file paths."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "remit":
            yield f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next


def _describe_error(event: _Members) -> None:
    """Replace `exc_info` by the name, the frames and the cause of the error."""
    given = event.pop("exc_info", None)
    if isinstance(given, tuple):
        given = given[1]
    error = given if isinstance(given, BaseException) else sys.exception() if given else None
    if error is not None:
        event["error"] = _error_name(error)
        event["frames"] = list(_frames(error.__traceback__))[-_MAX_FRAMES:]
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None:
            event["cause"] = _error_name(cause)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _redact(level: str, event: _Members) -> _Members:
    """Return the members of a line in order. The standard ones come first and cannot be overwritten."""
    standard = {name: event.pop(name, None) for name in _STANDARD}
    first: _Members = {"timestamp": _now(), "level": level, "event": _sanitize(standard["event"])}
    if standard["request_id"] is not None:
        first["request_id"] = _sanitize(standard["request_id"])
    rest = _sanitize(event)
    return {**first, "pid": os.getpid(), **(rest if isinstance(rest, dict) else {})}


_STANDARD: Final = frozenset(("timestamp", "level", "event", "request_id", "pid"))


def _as_json(event: _Members) -> str:
    return orjson.dumps(event).decode()


_BARE: Final = re.compile(r"[\w.:/+@-]+")


def _as_text(event: _Members) -> str:
    """Return a short line; values that could be ambiguous are quoted."""
    rest = [f"{name}={_quote_if_needed(value)}" for name, value in event.items() if name not in _NOT_IN_TEXT]
    return " ".join((event["timestamp"][11:23], f"{event['level']:<7}", _plain(event["event"]), *rest))


_NOT_IN_TEXT: Final = frozenset(("timestamp", "level", "event", "pid"))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _quote_if_needed(value: object) -> str:
    bare = isinstance(value, str) and _BARE.fullmatch(value)
    return str(value) if bare else orjson.dumps(value).decode()


class _Output:
    """The stream, the format and the lowest level of the log."""

    def __init__(self) -> None:
        self.threshold = _SILENT
        self._stream: TextIO | None = None
        self._format: _Format = _as_json
        self._writer = LineWriter(self._format_dropped)
        self.flush = self._writer.flush

    def configure(self, threshold: int, format_line: _Format, stream: TextIO) -> None:
        self.threshold, self._format, self._stream = threshold, format_line, stream

    def write(self, event: _Members) -> None:
        if self._stream is not None:
            self._writer.put(self._stream, self._format(event) + "\n")

    def _format_dropped(self, count: int) -> str:
        members: _Members = {"timestamp": _now(), "level": "warning", "event": "lines_dropped", "pid": os.getpid()}
        return self._format({**members, "count": count}) + "\n"


_OUTPUT: Final = _Output()


class Logger:
    """Logs events with named fields. The event is a fixed text, and values are in fields only."""

    def __init__(self, output: _Output) -> None:
        self._output = output

    @property
    def output(self) -> _Output:
        """Return the output, whose `threshold` is the lowest level that is written."""
        return self._output

    def debug(self, event: str, **fields: object) -> None:
        """Log an event for debugging."""
        if self._output.threshold <= LEVELS["debug"]:
            self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an event of normal operation."""
        if self._output.threshold <= LEVELS["info"]:
            self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log an event that an operator should look at some time."""
        if self._output.threshold <= LEVELS["warning"]:
            self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log an event that an operator should look at now; `exc_info=error` adds the type and frames of an error."""
        if self._output.threshold <= LEVELS["error"]:
            self._log("error", event, fields)

    def _log(self, level: str, event: str, fields: dict[str, object]) -> None:
        with suppress(Exception):  # logging never raises
            members = {**fields, "event": event}
            _describe_error(members)
            self._output.write(_redact(level, members))


_LOGGER: Final = Logger(_OUTPUT)


def logger() -> Logger:
    """Return the logger."""
    return _LOGGER


class _Forward(logging.Handler):
    """Forwards records of the standard `logging` module to this log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first line of a record. Further lines are reprs, which can contain messages and paths."""
        with suppress(Exception):
            level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
            message = record.getMessage().partition("\n")[0]
            getattr(_LOGGER, level)(message, logger=record.name, exc_info=record.exc_info)


def configure(level: str, *, as_json: bool, stream: TextIO) -> None:
    """Write lines of `level` and above to `stream`, including those of libraries. Can be called again."""
    if level not in LEVELS:
        raise FieldInvalid(f"must be one of {', '.join(LEVELS)}, not {quote(level)}", place="$.level")
    _OUTPUT.configure(LEVELS[level], _as_json if as_json else _as_text, stream)
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(LEVELS[level])


def flush(timeout_s: float = _FLUSH_S) -> None:
    """Wait until all lines are written, for `timeout_s` at most."""
    _OUTPUT.flush(timeout_s)


atexit.register(flush)
