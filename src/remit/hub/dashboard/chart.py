"""A timeline of verdicts: from counts per minute to the geometry of stacked bars.

Everything is in the units of the drawing, which a browser stretches to the width it has. Whatever happened is at least
a line: one refusal among ten thousand receipts is still seen.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from remit.hub.dashboard.figures import Times, number, plural
from remit.ledger.records import MinuteCount
from remit.policy.engines import DENIALS

__all__ = ["HEIGHT", "RANGES", "WIDTH", "Bar", "Block", "Chart", "Range", "build_chart", "first_minute", "tone_of"]

WIDTH: Final = 720
HEIGHT: Final = 120
_LEAST: Final = 2.5
_GAP: Final = 0.28
_LABELS: Final = 4
_STEPS: Final = (1, 2, 5)


class Range(NamedTuple):
    """How far a timeline looks back: how many bars of how many minutes, and how its axis tells the time."""

    title: str
    bars: int
    minutes: int
    form: str


RANGES: Final[Mapping[str, Range]] = {
    "hour": Range("Last hour", 60, 1, "%H:%M"),
    "day": Range("Last 24 hours", 48, 30, "%H:%M"),
    "week": Range("Last 7 days", 56, 180, "%a %-d %b"),
}

_TONES: Final = {"violation": "deny", "insufficient_evidence": "unknown"}


class Block(NamedTuple):
    """One coloured part of a bar."""

    tone: str
    y: float
    height: float


class Bar(NamedTuple):
    """One bar: where it stands, what it is made of, and what it says."""

    x: float
    width: float
    blocks: tuple[Block, ...]
    since: str
    permit: int
    deny: int
    unknown: int

    @property
    def total(self) -> int:
        """Return how many receipts it stands for."""
        return self.permit + self.deny + self.unknown

    @property
    def told(self) -> str:
        """Return what it says, in one line."""
        return f"{self.since}: {_tally(self.permit, self.deny, self.unknown)}"


class Chart(NamedTuple):
    """A timeline, with the height that its axis goes up to and the labels along it."""

    title: str
    bars: tuple[Bar, ...]
    top: int
    labels: tuple[str, ...]
    told: str


def tone_of(code: str) -> str:
    """Return how a receipt with this denial code counts: as compliant, refused, or with evidence missing."""
    if not code:
        return "permit"
    return _TONES[DENIALS[code][1]] if code in DENIALS else "deny"


def build_chart(counts: Iterable[MinuteCount], chosen: Range, times: Times) -> Chart:
    """Return the timeline of a range that ends with the minute which is now."""
    first = first_minute(chosen, times.now_s)
    sums = [{"permit": 0, "deny": 0, "unknown": 0} for _ in range(chosen.bars)]
    for minute, code, count in counts:
        place = (minute - first) // chosen.minutes
        if 0 <= place < chosen.bars:
            sums[place][tone_of(code)] += count
    top = _top(max(sum(one.values()) for one in sums))
    width = WIDTH / chosen.bars

    def since(place: int) -> str:
        start = (first + place * chosen.minutes) * 60
        clock = "%H:%M" if chosen.minutes * chosen.bars <= 24 * 60 else "%a %H:%M"
        return f"{times.hand(start, clock)} to {times.hand(start + chosen.minutes * 60, '%H:%M')}"

    bars = tuple(_bar(place, one, top, width, since) for place, one in enumerate(sums))
    return Chart(chosen.title, bars, top, _labels(first, chosen, times), _told(bars))


def first_minute(chosen: Range, now_s: int) -> int:
    """Return the minute with which a range begins; its bars begin on round minutes."""
    now = now_s // 60
    return (now // chosen.minutes + 1 - chosen.bars) * chosen.minutes


def _bar(place: int, sums: Mapping[str, int], top: int, width: float, since: Callable[[int], str]) -> Bar:
    floor = float(HEIGHT)
    blocks: list[Block] = []
    for tone, count in sums.items():
        if count:
            height = max(_LEAST, count / top * HEIGHT)
            floor -= height
            blocks.append(Block(tone, round(max(floor, 0.0), 2), round(height, 2)))
    x = place * width + width * _GAP / 2
    return Bar(round(x, 2), round(width * (1 - _GAP), 2), tuple(blocks), since(place), **sums)


def _top(most: int) -> int:
    """Return the next round number, for the axis to end with."""
    size = 1
    while True:
        for step in _STEPS:
            if step * size >= most:
                return max(step * size, _STEPS[-1])
        size *= 10


def _labels(first: int, chosen: Range, times: Times) -> tuple[str, ...]:
    share = chosen.bars * chosen.minutes // _LABELS
    return (*(times.hand((first + place * share) * 60, chosen.form) for place in range(_LABELS)), "now")


def _told(bars: tuple[Bar, ...]) -> str:
    permit, deny, unknown = (sum(getattr(bar, tone) for bar in bars) for tone in ("permit", "deny", "unknown"))
    whole = permit + deny + unknown
    return f"{plural(whole, 'receipt')}: {_tally(permit, deny, unknown)}." if whole else "No receipts in this time."


def _tally(permit: int, deny: int, unknown: int) -> str:
    """Return counts of receipts in words. Not all of them decide on a call: an outcome is a receipt, too."""
    told = f"{number(permit)} compliant, {number(deny)} refused"
    return f"{told}, {number(unknown)} with evidence missing" if unknown else told
