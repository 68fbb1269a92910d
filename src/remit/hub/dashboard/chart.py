"""The chart of the overview: stacked bars of receipts over time, by verdict.

Coordinates are in the units of the SVG, which browsers scale to the width of the page. Every count above zero has a
minimum height, so that one denial among ten thousand receipts is visible.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from remit.hub.dashboard.formatting import TimeFormatter, format_number, pluralize
from remit.ledger.records import MinuteCount
from remit.policy.engines import DENIALS

WIDTH: Final = 720
HEIGHT: Final = 120
_MIN_HEIGHT: Final = 2.5
_GAP: Final = 0.28
_LABELS: Final = 4
_STEPS: Final = (1, 2, 5)


class Range(NamedTuple):
    """The time range of a chart: the number of bars, the minutes of each, and the time format of the axis."""

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


class ChartBlock(NamedTuple):
    """One coloured part of a bar."""

    tone: str
    y: float
    height: float


class ChartBar(NamedTuple):
    """One bar: its position, its blocks, its time span, and its counts."""

    x: float
    width: float
    blocks: tuple[ChartBlock, ...]
    since: str
    permit: int
    deny: int
    unknown: int

    @property
    def total(self) -> int:
        """Return the number of receipts."""
        return self.permit + self.deny + self.unknown

    @property
    def text(self) -> str:
        """Return the tooltip."""
        return f"{self.since}: {_tally(self.permit, self.deny, self.unknown)}"


class Chart(NamedTuple):
    """A chart. `top` is the value at the upper end of the axis, `text` a summary in one sentence."""

    title: str
    bars: tuple[ChartBar, ...]
    top: int
    labels: tuple[str, ...]
    text: str


def get_tone(code: str) -> str:
    """Return the tone for a denial code: `permit` for none, else `deny`, or `unknown` if evidence is missing."""
    if not code:
        return "permit"
    return _TONES[DENIALS[code][1]] if code in DENIALS else "deny"


def build_chart(counts: Iterable[MinuteCount], chosen: Range, times: TimeFormatter) -> Chart:
    """Return the chart of a range that ends now."""
    first = first_minute(chosen, times.now_s)
    sums = [{"permit": 0, "deny": 0, "unknown": 0} for _ in range(chosen.bars)]
    for minute, code, count in counts:
        place = (minute - first) // chosen.minutes
        if 0 <= place < chosen.bars:
            sums[place][get_tone(code)] += count
    top = _axis_top(max(sum(one.values()) for one in sums))
    width = WIDTH / chosen.bars

    def since(place: int) -> str:
        start = (first + place * chosen.minutes) * 60
        clock = "%H:%M" if chosen.minutes * chosen.bars <= 24 * 60 else "%a %H:%M"
        return f"{times.format_local(start, clock)} to {times.format_local(start + chosen.minutes * 60, '%H:%M')}"

    bars = tuple(_bar(place, one, top, width, since) for place, one in enumerate(sums))
    return Chart(chosen.title, bars, top, _labels(first, chosen, times), _summarize(bars))


def first_minute(chosen: Range, now_s: int) -> int:
    """Return the first minute of a range. Bars begin at multiples of their length."""
    now = now_s // 60
    return (now // chosen.minutes + 1 - chosen.bars) * chosen.minutes


def _bar(place: int, sums: Mapping[str, int], top: int, width: float, since: Callable[[int], str]) -> ChartBar:
    floor = float(HEIGHT)
    blocks: list[ChartBlock] = []
    for tone, count in sums.items():
        if count:
            height = max(_MIN_HEIGHT, count / top * HEIGHT)
            floor -= height
            blocks.append(ChartBlock(tone, round(max(floor, 0.0), 2), round(height, 2)))
    x = place * width + width * _GAP / 2
    return ChartBar(round(x, 2), round(width * (1 - _GAP), 2), tuple(blocks), since(place), **sums)


def _axis_top(most: int) -> int:
    """Return the next round number (1, 2 or 5 times a power of ten) for the end of the axis."""
    size = 1
    while True:
        for step in _STEPS:
            if step * size >= most:
                return max(step * size, _STEPS[-1])
        size *= 10


def _labels(first: int, chosen: Range, times: TimeFormatter) -> tuple[str, ...]:
    share = chosen.bars * chosen.minutes // _LABELS
    return (*(times.format_local((first + place * share) * 60, chosen.form) for place in range(_LABELS)), "now")


def _summarize(bars: tuple[ChartBar, ...]) -> str:
    permit, deny, unknown = (sum(getattr(bar, tone) for bar in bars) for tone in ("permit", "deny", "unknown"))
    whole = permit + deny + unknown
    return f"{pluralize(whole, 'receipt')}: {_tally(permit, deny, unknown)}." if whole else "No receipts in this time."


def _tally(permit: int, deny: int, unknown: int) -> str:
    """Return counts of receipts in words. Compliant, not permitted: receipts of outcomes count too."""
    text = f"{format_number(permit)} compliant, {format_number(deny)} refused"
    return f"{text}, {format_number(unknown)} with evidence missing" if unknown else text
