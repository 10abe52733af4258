"""Line charts as inline SVG: nothing fetched, sharp at any size, readable in light and dark."""

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from regard.evaluation.records import thinned

WIDTH: Final = 520
HEIGHT: Final = 250
_LEFT: Final = 66
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 34
_MOST_POINTS: Final = 300
_MOST_DOTS: Final = 40


@dataclass(frozen=True)
class Series:
    """A line of a chart: (step, value) points, and its colour by number (1 or 2)."""

    label: str
    points: Sequence[tuple[int, float]]
    colour: int = 1
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart over steps.

    `show` writes a value, `from_zero` starts the axis there, and `marks` are steps with a
    vertical line, such as where training was resumed, each with its words.
    """

    title: str
    series: Sequence[Series]
    show: Callable[[float], str]
    note: str = ""
    from_zero: bool = False
    marks: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class _Frame:
    """Where values go on the page."""

    x: tuple[float, float]
    y_ticks: Sequence[float]

    def across(self, step: int | float) -> float:
        low, high = self.x
        share = (step - low) / (high - low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def down(self, value: int | float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        share = (value - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def draw(chart: Chart) -> str:
    """The chart as an HTML figure; an empty string if no series has a point.

    Long series are thinned to the mean of neighbouring points, and the note says so.
    """
    series = [line for line in chart.series if line.points]
    if not series:
        return ""
    drawn = [
        Series(line.label, thinned(line.points, _MOST_POINTS), line.colour, line.dots)
        for line in series
    ]
    frame = _frame(chart, drawn)
    note = chart.note
    longest = max(len(line.points) for line in series)
    if longest > _MOST_POINTS:
        note = f"{note} Each point is the mean of {math.ceil(longest / _MOST_POINTS)}.".strip()
    body = "".join(
        [
            _axes(chart, frame),
            *(_mark(frame, step, words) for step, words in chart.marks),
            *(_line(frame, line) for line in drawn),
            '<g class="cursor" hidden><line/></g>',
        ]
    )
    points = html.escape(json.dumps([_hover(chart, frame, line) for line in drawn]), quote=True)
    return (
        f'<figure class="chart" data-series="{points}"><figcaption><h3>{_text(chart.title)}</h3>'
        f'<span class="legend">{"".join(_key(chart, line) for line in series)}</span></figcaption>'
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{_text(_spoken(chart, series))}">{body}</svg>'
        f'<div class="tip" hidden></div></div>'
        + (f'<p class="note">{_text(note)}</p>' if note else "")
        + "</figure>"
    )


def ticks(low: int | float, high: int | float, about: int = 4) -> list[float]:
    """Round numbers (1, 2, 2.5 or 5 times a power of ten apart) that cover low to high."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * power for unit in (1, 2, 2.5, 5, 10) if unit * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    digits = max(12, 2 - math.floor(math.log10(step)))
    return [round(float(number * step), digits) for number in range(first, last + 1)]


def short_count(number: int | float) -> str:
    """A count in few characters: 950, 12k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def short_rate(number: int | float) -> str:
    """A small number in few characters: 0, 1.5e-3."""
    mantissa, _, exponent = f"{number:.2e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}" if number else "0"


def _frame(chart: Chart, series: Sequence[Series]) -> _Frame:
    steps = [step for line in series for step, _ in line.points]
    values = [value for line in series for _, value in line.points]
    low = min(0.0, *values) if chart.from_zero else min(values)
    y_ticks = ticks(low, max(values))
    left, right = min(steps), max(steps)
    if left <= 0.1 * right:
        left = 0
    return _Frame((float(left), float(right if right > left else left + 1)), y_ticks)


def _axes(chart: Chart, frame: _Frame) -> str:
    parts = []
    bottom = HEIGHT - _BOTTOM
    for value in frame.y_ticks:
        y = frame.down(value)
        kind = "axis" if y == bottom else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        label = _text(chart.show(value))
        parts.append(f'<text class="y" x="{_LEFT - 8}" y="{y + 4}">{label}</text>')
    for step in ticks(*frame.x, about=6):
        if frame.x[0] <= step <= frame.x[1] and step == int(step):
            anchor = "end" if frame.across(step) > WIDTH - _RIGHT - 20 else "middle"
            parts.append(
                f'<text class="x" x="{frame.across(step)}" y="{HEIGHT - 11}" '
                f'text-anchor="{anchor}">{short_count(step)}</text>'
            )
    return "".join(parts)


def _mark(frame: _Frame, step: int, words: str) -> str:
    if not frame.x[0] <= step <= frame.x[1]:
        return ""
    x = frame.across(step)
    return (
        f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}">'
        f"<title>{_text(words)}</title></line>"
    )


def _line(frame: _Frame, line: Series) -> str:
    places = [(frame.across(step), frame.down(value)) for step, value in line.points]
    path = "M" + "L".join(f"{x} {y}" for x, y in places)
    kind = f"c{line.colour}"
    drawn = f'<path class="line {kind}" d="{path}"/>'
    if len(places) == 1 or (line.dots and len(places) <= _MOST_DOTS):
        drawn += "".join(f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="3"/>' for x, y in places)
    return drawn


def _key(chart: Chart, line: Series) -> str:
    last = chart.show(line.points[-1][1])
    return (
        f'<span class="key"><i class="swatch c{line.colour}"></i>{_text(line.label)} '
        f"<b>{_text(last)}</b></span>"
    )


def _hover(chart: Chart, frame: _Frame, line: Series) -> dict[str, object]:
    return {
        "label": line.label,
        "colour": f"c{line.colour}",
        "points": [
            [frame.across(step), frame.down(value), f"step {step:,}", chart.show(value)]
            for step, value in line.points
        ],
    }


def _spoken(chart: Chart, series: Sequence[Series]) -> str:
    said = [
        f"{line.label} from {chart.show(line.points[0][1])} at step {line.points[0][0]:,} "
        f"to {chart.show(line.points[-1][1])} at step {line.points[-1][0]:,}"
        for line in series
    ]
    return f"{chart.title}: {'; '.join(said)}"


def _text(words: str) -> str:
    return html.escape(words, quote=True)
