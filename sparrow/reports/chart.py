"""`Chart`: lines and points as SVG inside HTML, drawn here, so that it shows without any script.

The numbers travel with the drawing, in a block of JSON that the page's script reads for hover values.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from sparrow.reports.axis import Axis
from sparrow.reports.thinning import MOST, thinned

WIDTH: Final = 440
HEIGHT: Final = 260
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40
COLORS: Final = 6
RADIUS: Final = 3.2


@dataclasses.dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
      name: for the legend.
      x, y: the points; NaN makes a gap.
      color: which color of the palette; past its end, colors come again with dashes.
      points: whether every point has a dot.
      faint: drawn thinner, behind the others.
      line: whether points are joined.
      about: for each point, more words for its hover text.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0
    points: bool = False
    faint: bool = False
    line: bool = True
    about: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Chart:
    """A titled drawing.

    Attributes:
      title: above it.
      series: the lines that it draws.
      x, y: its axes.
      note: a line below it.
      diagonal: whether to draw the line on which x equals y.
      bars: whether the series are bars that stand on the axis.
      legend: whether one line alone is named as well.
      value: a number that belongs to the title, such as an area.
      id: of the HTML element; its title unless given.
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

    def html(self) -> str:
        """Return the figure."""
        drawn = [_drawn(series) for series in self.series]
        left_out = [
            f"{len(new.x):,} of {len(old.x):,} points of “{old.name}” are drawn"
            for old, new in zip(self.series, drawn, strict=True)
            if len(new.x) < len(old.x)
        ]
        notes = [text for text in (self.note, *left_out[:1]) if text]
        if len(left_out) > 1:
            notes[-1] = f"lines of more than {MOST} points are thinned out; peaks are kept"
        parts = [
            f'<figure class="chart" id="{_slug(self.id or self.title)}">',
            f"<figcaption>{escape(self.title)}{f' <b>{escape(self.value)}</b>' if self.value else ''}</figcaption>",
            _legend(drawn) if self.legend or len(drawn) > 1 else "",
            self._svg(drawn),
            f'<p class="note">{escape("; ".join(notes))}</p>' if notes else "",
            f'<script type="application/json">{_json(self._data(drawn))}</script>',
            "</figure>",
        ]
        return "".join(parts)

    def _svg(self, drawn: Sequence[Series]) -> str:
        label = escape(f"{self.title}: {self.y.title} by {self.x.title}", quote=True)
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">', self._frame()]
        if self.diagonal:
            a, b = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
            x, y = self._place(a, a), self._place(b, b)
            parts.append(f'<path class="diagonal" d="M{_xy(*x)}L{_xy(*y)}"/>')
        order = sorted(range(len(drawn)), key=lambda index: not drawn[index].faint)
        parts += [self._bars(drawn, index) if self.bars else self._line(drawn[index], index) for index in order]
        return "".join([*parts, "</svg>"])

    def _frame(self) -> str:
        right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = ['<g class="axis">']
        for tick in self.y.ticks:
            y = self._place(self.x.low, tick)[1]
            parts.append(f'<path d="M{LEFT} {y:.1f}H{right}"/>')
            parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{escape(self.y.text(tick))}</text>')
        for tick in self.x.ticks:
            x = self._place(tick, self.y.low)[0]
            anchor = "end" if x > right - 12 else "middle"
            parts.append(f'<path d="M{x:.1f} {floor}v4"/>')
            parts.append(
                f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="{anchor}">{escape(self.x.text(tick))}</text>'
            )
        parts.append(f'<path class="floor" d="M{LEFT} {floor}H{right}"/>')
        middle = (LEFT + right) / 2
        title = escape(self.x.title)
        parts.append(f'<text class="title" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{title}</text></g>')
        return "".join(parts)

    def _line(self, series: Series, index: int) -> str:
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
        faint = " faint" if series.faint else ""
        look = f"c{series.color % COLORS} d{series.color // COLORS}{faint}"
        return f'<g class="series {look}" data-series="{index}">{line}{dots}</g>'

    def _bars(self, drawn: Sequence[Series], index: int) -> str:
        """Bars side by side at each x."""
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


def _legend(drawn: Sequence[Series]) -> str:
    keys = []
    for index, series in enumerate(drawn):
        look = f"c{series.color % COLORS} d{series.color // COLORS}{' faint' if series.faint else ''}"
        keys.append(
            f'<button type="button" class="key {look}" data-series="{index}" aria-pressed="true">'
            f'<svg viewBox="0 0 18 8" aria-hidden="true"><path d="M1 4H17"/></svg>{escape(series.name)}</button>'
        )
    return f'<div class="legend">{"".join(keys)}</div>'


def _slug(text: str) -> str:
    """Letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)


def _xy(x: float, y: float) -> str:
    return f"{x:.2f} {y:.2f}"


def _json(data: Any) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
