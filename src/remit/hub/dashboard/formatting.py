"""Formats numbers, durations and times for people."""

from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

_NARROW_SPACE: Final = "\u202f"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_JUST_NOW_S: Final = 3


class FormattedTime(NamedTuple):
    """A time as ISO 8601 in UTC, as local time, and relative to now."""

    iso: str
    clock: str
    ago: str


class TimeFormatter(NamedTuple):
    """Formats times relative to `now_s`, in a time zone; without one, in that of this machine."""

    now_s: int
    zone: tzinfo | None = None

    def when(self, wall_s: int) -> FormattedTime:
        """Return a formatted time; only the number if it is out of range."""
        try:
            moment = datetime.fromtimestamp(wall_s, UTC)
            local = moment.astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return FormattedTime("", str(wall_s), "")
        iso = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return FormattedTime(iso, local.strftime(self._form(local)), self._ago(wall_s))

    def format_local(self, wall_s: int, form: str) -> str:
        """Return a time in local time, in the format of `strftime`."""
        return datetime.fromtimestamp(wall_s, UTC).astimezone(self.zone).strftime(form)

    def _form(self, local: datetime) -> str:
        today = datetime.fromtimestamp(self.now_s, UTC).astimezone(self.zone)
        if local.date() == today.date():
            return "%H:%M:%S"
        return "%-d %b %H:%M" if local.year == today.year else "%-d %b %Y %H:%M"

    def _ago(self, wall_s: int) -> str:
        passed = self.now_s - wall_s
        if passed < 0:
            return f"in {format_duration(-passed)}"
        return "just now" if passed <= _JUST_NOW_S else f"{format_duration(passed, parts=1)} ago"


def format_number(value: int) -> str:
    """Return a whole number with narrow spaces as thousands separators."""
    return f"{value:,}".replace(",", _NARROW_SPACE)


def pluralize(count: int, one: str, many: str = "") -> str:
    """Return a count with a noun in singular or plural."""
    return f"{format_number(count)} {one if count == 1 else many or one + 's'}"


def format_duration(seconds: int, *, parts: int = 2) -> str:
    """Return a duration in its largest units, with seconds only if it is shorter than a minute."""
    words: list[str] = []
    rest = max(0, seconds)
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if words and (not count or unit == "s"):
            break
        if count:
            words.append(f"{count} {unit}")
        if len(words) == parts:
            break
    return " ".join(words) or "0 s"
