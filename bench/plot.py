"""Small line charts as SVG, written by hand: readable in light and dark, and without colours.

The text names everything: axes, lines, and a description for those who cannot see it. A line is told from the others by
its colour, by its marks and by its dashes.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

__all__ = ["Axis", "Chart", "Line", "draw"]

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 48, 56
# A circle, a square, a diamond and a triangle, around a point.
MARKS: Final = (
    "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
    "m-4 -4h8v8h-8z",
    "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    "m0 -5l5 9h-10z",
)
DASHES: Final = ("", "7 4", "2 4", "10 3 2 3")

# Paper, ink and grid, then one colour for each line. Plain classes, because not every viewer knows variables.
LIGHT: Final = ("#ffffff", "#24292f", "#d8dee4", "#0060a8", "#b34700", "#00735a", "#6b6f76")
DARK: Final = ("#0d1117", "#e6edf3", "#30363d", "#58b0ff", "#ff9a57", "#3fcf9f", "#a9b1ba")


def _colours(paper: str, ink: str, grid: str, *lines: str) -> str:
    rules = [f"text {{ fill: {ink} }} .axis {{ stroke: {ink} }} .paper {{ fill: {paper} }} .grid {{ stroke: {grid} }}"]
    rules += [
        f".l{number} {{ stroke: {colour} }} .m{number} {{ fill: {colour} }}" for number, colour in enumerate(lines)
    ]
    return "\n".join(rules)


STYLE: Final = f"""
text {{ font: 13px system-ui, sans-serif }} .title {{ font-size: 15px; font-weight: 600 }}
path {{ fill: none; stroke-width: 1 }} .line {{ stroke-width: 2 }}
{_colours(*LIGHT)}
@media (prefers-color-scheme: dark) {{
{_colours(*DARK)}
}}
"""


class Axis(NamedTuple):
    """What is on an axis, and where its ticks are; the first and the last tick are its ends."""

    label: str
    ticks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        first, last, here = (math.log(each) if self.log else each for each in (self.ticks[0], self.ticks[-1], value))
        return (here - first) / (last - first)


class Line(NamedTuple):
    """Points in order; without marks it is a level rather than something measured at each place."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = True


class Chart(NamedTuple):
    """A chart of up to four lines."""

    title: str
    description: str
    across: Axis
    up: Axis
    lines: Sequence[Line]


def draw(chart: Chart) -> str:
    """Return the chart as an SVG document."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(chart.title)}</title>',
        f'<desc id="description">{escape(chart.description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        _text(LEFT, 28, chart.title, "start", ' class="title"'),
        *_up(chart.up),
        *_across(chart.across),
    ]
    for number, line in enumerate(chart.lines):
        parts += _line(chart, number, line)
        parts += _legend(number, line)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def _across(axis: Axis) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>']
    parts += [_text(_x(axis, tick), bottom + 20, f"{tick:,.10g}", "middle") for tick in axis.ticks]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 44, axis.label, "middle"))
    return parts


def _up(axis: Axis) -> list[str]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts = [_text(20, middle, axis.label, "middle", f' transform="rotate(-90 20 {middle:.1f})"')]
    for tick in axis.ticks:
        height = _y(axis, tick)
        parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, height + 4, f"{tick:,.10g}", "end"))
    return parts


def _line(chart: Chart, number: int, line: Line) -> list[str]:
    places = [(_x(chart.across, x), _y(chart.up, y)) for x, y in line.points]
    parts = [_stroke(number, places)]
    if line.marks:
        parts += [_mark(number, x, y) for x, y in places]
    return parts


def _legend(number: int, line: Line) -> list[str]:
    left, height = WIDTH - RIGHT + 16, TOP + 12 + 26 * number
    parts = [_stroke(number, [(left, height), (left + 32, height)]), _text(left + 40, height + 4, line.name, "start")]
    return [*parts, _mark(number, left + 16, height)] if line.marks else parts


def _stroke(number: int, places: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dashes = f' stroke-dasharray="{DASHES[number]}"' if DASHES[number] else ""
    return f'<path class="line l{number}"{dashes} d="M{path}"/>'


def _mark(number: int, x: float, y: float) -> str:
    return f'<path class="m{number}" d="M{x:.1f} {y:.1f}{MARKS[number]}"/>'
