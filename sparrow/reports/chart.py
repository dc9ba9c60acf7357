"""`Chart`: lines and points as SVG inside HTML, drawn here, so that it shows without any script.

The numbers travel with the drawing, in a block of JSON that the page's script reads for hover values.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np

from sparrow.reports.axis import Axis, round_ticks
from sparrow.reports.formatting import compact

NEAR: Final = 1.5
"""Lines that are nowhere further apart than this, in pixels, look like one."""

SHARED: Final = 0.9
"""The share of the width that two lines must have in common."""

Line = Sequence[tuple[float, float]]


def coinciding(lines: Sequence[Line]) -> dict[int, int]:
    """Return, for each line that lies on a line before it, the first such line.

    >>> coinciding([[(0, 5), (9, 8)], [(0, 5), (9, 2)], [(0, 5.5), (3, 6), (9, 8)]])
    {2: 0}
    """
    kept = [sorted(place for place in line if math.isfinite(place[0] + place[1])) for line in lines]
    found: dict[int, int] = {}
    for later, line in enumerate(kept):
        for earlier in range(later):
            if earlier not in found and _lies_on(line, kept[earlier]):
                found[later] = earlier
                break
    return found


def _lies_on(line: Line, other: Line) -> bool:
    """Return whether two lines share nearly all of their width and stay near each other there."""
    if len(line) < 2 or len(other) < 2:
        return False
    (x, y), (across, up) = (np.array(places).T for places in (line, other))
    low, high = max(x[0], across[0]), min(x[-1], across[-1])
    if high - low < SHARED * max(x[-1] - x[0], across[-1] - across[0]):
        return False
    places = np.unique(np.clip(np.concatenate([x, across]), low, high))
    return bool(np.abs(np.interp(places, across, up) - np.interp(places, x, y)).max() <= NEAR)


WIDTH: Final = 440
HEIGHT: Final = 276
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 28, 40
COLORS: Final = 6
RADIUS: Final = 3.2


class Mark(NamedTuple):
    """A vertical line at ``x``, with a word beside it."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
      name: for the legend.
      x, y: the points; NaN makes a gap.
      color: the number of the color; after the last one, colors repeat with dashes.
      points: whether every point has a dot.
      faint: drawn thinner, behind the others.
      line: whether points are joined.
      about: further words of hover texts, by point.
      ring: the x of a point with a ring around it, if any.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0
    points: bool = False
    faint: bool = False
    line: bool = True
    about: Sequence[str] = ()
    ring: float | None = None


@dataclasses.dataclass(frozen=True)
class Chart:
    """A titled drawing.

    Attributes:
      title: the words above it.
      series: the lines that it draws.
      x, y: its axes.
      note: the words below it.
      diagonal: whether to draw the line on which x equals y.
      bars: whether the series are bars that stand on the axis.
      legend: whether the legend names a single line too.
      value: a number that belongs to the title, such as an area.
      id: of the HTML element; its title unless given.
      marks: vertical lines.
      epochs: the x at which each epoch ends, for a second axis above the drawing.
    """

    title: str
    series: Sequence[Series]
    x: Axis
    y: Axis
    note: str = ""
    diagonal: bool = False
    bars: bool = False
    legend: bool = False
    value: str = ""
    id: str = ""
    marks: Sequence[Mark] = ()
    epochs: Sequence[float] = ()

    def html(self, *, static: bool = False) -> str:
        """Return the figure; ``static``: without the data and the buttons of the page's script."""
        drawn = [_drawn(series) for series in self.series]
        left_out = [
            f"{len(new.x):,} of {len(old.x):,} points of “{old.name}” are drawn"
            for old, new in zip(self.series, drawn, strict=True)
            if len(new.x) < len(old.x)
        ]
        places = [[self._place(x, y) for x, y in zip(line.x, line.y, strict=True)] for line in drawn]
        hidden = {} if self.bars else coinciding(places)
        hiding = [f"“{drawn[i].name}” lies on “{drawn[j].name}”" for i, j in hidden.items()]
        notes = [text for text in (self.note, *hiding[:3], *left_out[:1]) if text]
        if len(left_out) > 1:
            notes[-1] = f"lines of more than {MOST} points are thinned out; peaks are kept"
        parts = [
            f'<figure class="chart" id="{re.sub("[^A-Za-z0-9_-]+", "-", self.id or self.title)}">',
            f"<figcaption>{escape(self.title)}{f' <b>{escape(self.value)}</b>' if self.value else ''}</figcaption>",
            _legend(drawn, hidden, static) if self.legend or len(drawn) > 1 else "",
            self._svg(drawn, hidden),
            f'<p class="note">{escape("; ".join(notes))}</p>' if notes else "",
            "" if static else f'<script type="application/json">{_json(self._data(drawn))}</script>',
            "</figure>",
        ]
        return "".join(parts)

    def _svg(self, drawn: Sequence[Series], hidden: Mapping[int, int]) -> str:
        label = escape(f"{self.title}: {self.y.title} by {self.x.title}", quote=True)
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">', self._frame()]
        if self.diagonal:
            a, b = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
            x, y = self._place(a, a), self._place(b, b)
            parts.append(f'<path class="diagonal" d="M{_xy(*x)}L{_xy(*y)}"/>')
        order = sorted(range(len(drawn)), key=lambda index: not drawn[index].faint)
        parts += [
            self._bars(drawn, index) if self.bars else self._line(drawn[index], index, index in hidden)
            for index in order
        ]
        return "".join([*parts, *(self._mark(mark, drawn) for mark in self.marks), self._epochs(), "</svg>"])

    def _mark(self, mark: Mark, drawn: Sequence[Series]) -> str:
        x = self._place(mark.x, self.y.low)[0]
        heights = [self.y.at(y) for line in drawn for at, y in zip(line.x, line.y, strict=True) if at == mark.x]
        heights = [height for height in heights if math.isfinite(height)]
        is_high = sum(heights) > 0.5 * len(heights)  # the word stands where the lines are not
        level = HEIGHT - BOTTOM - 7 if is_high else TOP + 11
        side, anchor = (-5, "end") if x > (LEFT + WIDTH) / 2 else (5, "start")
        text = f'<text x="{x + side:.1f}" y="{level}" text-anchor="{anchor}">{escape(mark.text)}</text>'
        return f'<g class="mark"><path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>{text}</g>'

    def _epochs(self) -> str:
        """Return the axis of epochs: a few of their ends, by number."""
        count = len(self.epochs)
        if not count:
            return ""
        numbers = range(1, count + 1) if count <= 6 else [int(tick) for tick in round_ticks(1, count, 5) if tick >= 1]
        parts = [f'<g class="axis epochs"><text x="{LEFT - 7}" y="{TOP - 12}" text-anchor="end">epoch</text>']
        for number in numbers:
            x = self._place(self.epochs[number - 1], self.y.low)[0]
            parts.append(f'<path d="M{x:.1f} {TOP}v-6"/><text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">')
            parts.append(f"{number}</text>")
        return "".join([*parts, "</g>"])

    def _frame(self) -> str:
        right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = ['<g class="axis">']
        for tick in self.y.ticks:
            y = self._place(self.x.low, tick)[1]
            parts.append(f'<path d="M{LEFT} {y:.1f}H{right}"/>')
            parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{escape(compact(tick))}</text>')
        for tick in self.x.ticks:
            x = self._place(tick, self.y.low)[0]
            anchor = "end" if x > right - 12 else "middle"
            parts.append(f'<path d="M{x:.1f} {floor}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="{anchor}">{escape(compact(tick))}</text>')
        parts.append(f'<path class="floor" d="M{LEFT} {floor}H{right}"/>')
        middle = (LEFT + right) / 2
        title = escape(self.x.title)
        parts.append(f'<text class="title" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{title}</text></g>')
        return "".join(parts)

    def _line(self, series: Series, index: int, is_over: bool) -> str:
        places = [self._place(x, y) for x, y in zip(series.x, series.y, strict=True)]
        is_drawn = [math.isfinite(x + y) for x, y in places]
        before, after = [False, *is_drawn], [*is_drawn[1:], False]
        path = [
            f"{'L' if before[index] else 'M'}{_xy(*place)}" for index, place in enumerate(places) if is_drawn[index]
        ]
        # A point with gaps on both sides is no line, and shows as a dot.
        every = series.points or not series.line
        shown = [
            place
            for index, place in enumerate(places)
            if is_drawn[index] and (every or not (before[index] or after[index]))
        ]
        dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{RADIUS}"/>' for x, y in shown)
        line = f'<path d="{"".join(path)}"/>' if series.line else ""
        ringed = [
            place for place, x in zip(places, series.x, strict=True) if x == series.ring and math.isfinite(place[1])
        ]
        rings = "".join(f'<circle class="ring" cx="{x:.2f}" cy="{y:.2f}" r="{2 * RADIUS}"/>' for x, y in ringed[:1])
        return f'<g class="series {_look(series, is_over)}" data-series="{index}">{line}{dots}{rings}</g>'

    def _bars(self, drawn: Sequence[Series], index: int) -> str:
        series = drawn[index]
        steps = [b - a for a, b in zip(series.x, series.x[1:], strict=False)]
        step = min(steps, default=(self.x.high - self.x.low) or 1.0)
        width = step / len(drawn)
        parts = []
        for x, y in zip(series.x, series.y, strict=True):
            left, top = self._place(x - step / 2 + index * width, y)
            right, floor = self._place(x - step / 2 + (index + 0.9) * width, self.y.low)
            parts.append(f'<rect x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" height="{floor - top:.2f}"/>')
        return f'<g class="series c{series.color % COLORS}" data-series="{index}">{"".join(parts)}</g>'

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across, up = self.x.at(x), self.y.at(y)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def _data(self, drawn: Sequence[Series]) -> dict[str, Any]:
        return {
            "title": self.title,
            "x": {"title": self.x.title, "low": self.x.low, "high": self.x.high, "log": self.x.log},
            "y": {"title": self.y.title, "low": self.y.low, "high": self.y.high, "log": self.y.log},
            "box": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM],
            "epochs": list(self.epochs),
            "marks": [list(mark) for mark in self.marks],
            "series": [
                {
                    "name": series.name,
                    "color": series.color % COLORS,
                    "x": list(series.x),
                    "y": [y if math.isfinite(y) else None for y in series.y],
                    "about": list(series.about),
                }
                for series in drawn
            ],
        }


def _drawn(series: Series) -> Series:
    kept = thinned(series.y)
    if len(kept) == len(series.y):
        return series
    return dataclasses.replace(
        series,
        x=[series.x[index] for index in kept],
        y=[series.y[index] for index in kept],
        about=[series.about[index] for index in kept] if series.about else (),
    )


def _look(series: Series, is_over: bool) -> str:
    """Return the classes of a line: one that lies on another has gaps, through which the other shows."""
    kinds = ("faint" if series.faint else "", "over" if is_over else "")
    return " ".join([f"c{series.color % COLORS} d{series.color // COLORS}", *filter(None, kinds)])


def _legend(drawn: Sequence[Series], hidden: Mapping[int, int], static: bool) -> str:
    keys = []
    for index, series in enumerate(drawn):
        look = _look(series, index in hidden)
        if static:
            keys.append(f'<span class="key {look}">{escape(series.name)}</span>')
            continue
        keys.append(
            f'<button type="button" class="key {look}" data-series="{index}" aria-pressed="true">'
            f'<svg viewBox="0 0 18 8" aria-hidden="true"><path d="M1 4H17"/></svg>{escape(series.name)}</button>'
        )
    return f'<div class="legend">{"".join(keys)}</div>'


def _xy(x: float, y: float) -> str:
    return f"{x:.2f} {y:.2f}"


def _json(data: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


MOST: Final = 1024
"""Points of a line that are drawn: about two for each pixel of a chart."""


def thinned(values: Sequence[float], most: int = MOST) -> list[int]:
    """Return the points to keep: the first, the last, and the lowest and highest of each stretch.

    >>> thinned([0.0, 1.0, 9.0, 1.0, 0.0, 1.0, 1.0, 2.0], most=4)
    [0, 2, 4, 7]
    >>> thinned([1.0, 2.0])
    [0, 1]
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = most // 2 - 1
    kept = {0, count - 1}
    for stretch in range(stretches):
        inside = range(1 + stretch * (count - 2) // stretches, 1 + (stretch + 1) * (count - 2) // stretches)
        finite = [index for index in inside if math.isfinite(values[index])] or list(inside[:1])
        kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    return sorted(kept)
