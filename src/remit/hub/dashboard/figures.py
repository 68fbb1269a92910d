"""Numbers, spans of time and moments, as people read them."""

from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

__all__ = ["Times", "When", "number", "plural", "span"]

_NARROW_SPACE: Final = "\u202f"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_JUST_NOW_S: Final = 3


class When(NamedTuple):
    """A moment: for programs, on the clock here, and how long ago."""

    iso: str
    clock: str
    ago: str


class Times(NamedTuple):
    """Tells moments as they are seen from now, in one zone; without one, in that of this machine."""

    now_s: int
    zone: tzinfo | None = None

    def when(self, wall_s: int) -> When:
        """Return a moment; one that no calendar has is shown as its number."""
        try:
            moment = datetime.fromtimestamp(wall_s, UTC)
            local = moment.astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return When("", str(wall_s), "")
        iso = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return When(iso, local.strftime(self._form(local)), self._ago(wall_s))

    def hand(self, wall_s: int, form: str) -> str:
        """Return a moment of these days, as an axis has it."""
        return datetime.fromtimestamp(wall_s, UTC).astimezone(self.zone).strftime(form)

    def _form(self, local: datetime) -> str:
        today = datetime.fromtimestamp(self.now_s, UTC).astimezone(self.zone)
        if local.date() == today.date():
            return "%H:%M:%S"
        return "%-d %b %H:%M" if local.year == today.year else "%-d %b %Y %H:%M"

    def _ago(self, wall_s: int) -> str:
        passed = self.now_s - wall_s
        if passed < 0:
            return f"in {span(-passed)}"
        return "just now" if passed <= _JUST_NOW_S else f"{span(passed, parts=1)} ago"


def number(value: int) -> str:
    """Return a whole number with narrow spaces between its thousands."""
    return f"{value:,}".replace(",", _NARROW_SPACE)


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with the word for it."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def span(seconds: int, *, parts: int = 2) -> str:
    """Return a span of time in its largest units; seconds only where it is short."""
    said: list[str] = []
    rest = max(0, seconds)
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if said and (not count or unit == "s"):
            break
        if count:
            said.append(f"{count} {unit}")
        if len(said) == parts:
            break
    return " ".join(said) or "0 s"
