"""Curves over steps, thresholds or places, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from efcil.report.figure import Figure
from efcil.report.svg import (
    LETTER,
    TICK,
    Element,
    add,
    decades,
    drawing,
    markup,
    number,
    power,
    shortened,
    thinned,
    ticks,
)
from efcil.report.table import Cell, Table, cell

COLOURS = 12  # of page.css; what comes after them is dashed
MARKERS: tuple[tuple[tuple[float, float], ...], ...] = (  # the corners of each shape, in radii from its middle
    (),  # a circle
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    ((0, -1.25), (1.25, 1.25), (-1.25, 1.25)),
    ((-0.6, -1.6), (0.6, -1.6), (0.6, 1.6), (-0.6, 1.6)),
    ((0, 1.25), (1.25, -1.25), (-1.25, -1.25)),
)
NARROW, WIDE = (360.0, 250.0), (1060.0, 400.0)
FEW_POINTS = 30  # more have no markers
LEGEND = 12  # a legend longer than this would be larger than the chart


@dataclass(frozen=True)
class Series:
    """One curve; values that are missing interrupt it."""

    name: str
    values: Sequence[float | None]
    style: int = 0
    spread: Sequence[float | None] = ()  # a band of so much above and below
    shade: float = 1.0  # opacity, for curves that are one after the other
    dashed: bool = False


@dataclass(frozen=True)
class Curves:
    """Curves over the same places, and what is written beside them."""

    title: str
    summary: str
    x_name: str
    y_name: str
    x: Sequence[str]
    series: Sequence[Series]
    low: float | None = None
    high: float | None = None
    most: float | None = None  # that a value can have; bands end there
    logarithmic: bool = False
    joined: bool = True
    level: tuple[float, str] | None = None  # a horizontal line and what it means
    marked: tuple[int, str] | None = None  # an upright line at a place, and what it means
    decimals: int = 1
    unit: str = ""
    told: Callable[[float], str] | None = None  # how a value is written, on the axis too

    def text(self, value: float | None) -> str:
        if value is None:
            return "–"
        if self.logarithmic:
            return f"{value:.2g}"
        return self.told(value) if self.told else f"{value:.{self.decimals}f}{self.unit}"

    def figure(self, wide: bool = False, table: Table | None = None) -> Figure:
        sizes = {"wide": WIDE, "narrow": NARROW} if wide else {"only": NARROW}
        return Figure(
            self.title,
            self.summary,
            {name: self.drawn(width, height) for name, (width, height) in sizes.items()},
            self.hover(),
            [table or self.table()],
            self.legend(),
        )

    def legend(self) -> list[tuple[int, str]]:
        """What is one after the other has one colour, and needs none."""
        named = 1 < len(self.series) <= LEGEND and all(series.shade == 1 for series in self.series)
        return [(series.style, series.name) for series in self.series] if named else []

    def shape(self, place: int) -> int:
        """By the place in the chart, so that they differ whatever the colours; of what is one after the other one."""
        return place if all(series.shade == 1 for series in self.series) else 0

    def hover(self) -> dict[str, object]:
        return {
            "kind": "lines",
            "name": self.x_name,
            "x": list(self.x),
            "series": [{"name": s.name, "text": [self.text(value) for value in s.values]} for s in self.series],
        }

    def table(self) -> Table:
        """A row per curve, a column per place."""
        rows = [
            [
                Cell(s.name, s.name, s.style, self.shape(place)),
                *(cell(None) if v is None else Cell(self.text(v), v) for v in s.values),
            ]
            for place, s in enumerate(self.series)
        ]
        return Table(f"{self.title}, {self.y_name}", [self.x_name, *self.x], rows)

    def heights(self) -> list[float]:
        """The ticks of the upright axis."""
        found = [v for s in self.series for v in s.values if v is not None and not (self.logarithmic and v <= 0)]
        for s in self.series:
            pairs = [(v, d) for v, d in zip(s.values, s.spread, strict=False) if v is not None and d is not None]
            found += [] if self.logarithmic else [value + sign * off for value, off in pairs for sign in (-1, 1)]
        if self.level is not None and (not self.logarithmic or self.level[0] > 0):
            found.append(self.level[0])
        low, high = min(found, default=0.0), max(found, default=1.0)
        if self.logarithmic:
            return decades(low, high * 1.0001) if found else [0.1, 1.0]
        low, high = (given if given is not None else own for given, own in ((self.low, low), (self.high, high)))
        return ticks(low, high if self.most is None else min(high, self.most))

    def drawn(self, width: float, height: float) -> Markup:
        marks = self.heights()
        shown = marks if len(marks) <= 9 else marks[:: math.ceil(len(marks) / 8)]
        told = [self.told(mark) if self.told else power(mark) if self.logarithmic else f"{mark:g}" for mark in shown]
        left = 26 + LETTER * TICK * max(map(len, told)) * (1.15 if width > NARROW[0] else 1)
        right, top, bottom = width - 12, 12.0, height - 40
        inset = 10.0 if len(self.x) > 1 else (right - left) / 2
        first, last = left + inset, right - inset

        def across(place: int) -> float:
            return first + (last - first) * place / max(len(self.x) - 1, 1)

        def up(value: float) -> float:
            a, b, v = (math.log10(n) if self.logarithmic else n for n in (marks[0], marks[-1], value))
            return bottom - (bottom - top) * min(max((v - a) / (b - a), 0), 1)

        many = {"class_": "many"} if len(self.series) > LEGEND or len(self.x) > FEW_POINTS else {}
        svg = drawing(width, height, self.title, self.summary, data_first=first, data_last=last, **many)
        for mark, label in zip(shown, told, strict=True):
            add(svg, "line", x1=left, x2=right, y1=up(mark), y2=up(mark), class_="grid")
            add(svg, "text", label, x=left - 6, y=up(mark) + 4, class_="tick end")
        for place in thinned(self.x, last - first):
            add(svg, "text", self.x[place], x=across(place), y=bottom + 16, class_="tick middle")
        add(svg, "text", self.x_name, x=(left + right) / 2, y=height - 6, class_="axis middle")
        turned = f"rotate(-90 11 {number((top + bottom) / 2)})"
        name = shortened(self.y_name, bottom - top + 20)
        add(svg, "text", name, x=11.0, y=(top + bottom) / 2, class_="axis middle", transform=turned)
        if self.level is not None and marks[0] <= self.level[0] <= marks[-1]:
            add(svg, "line", x1=left, x2=right, y1=up(self.level[0]), y2=up(self.level[0]), class_="level")
            add(svg, "text", self.level[1], x=right, y=up(self.level[0]) - 4, class_="tick end")
        if self.marked is not None:
            x = across(self.marked[0])
            add(svg, "line", x1=x, x2=x, y1=top, y2=bottom, class_="level")
            add(svg, "text", self.marked[1], x=x + 5, y=top + 10, class_="tick")
        add(svg, "line", x1=first, x2=first, y1=top, y2=bottom, class_="cursor")
        for place, series in enumerate(self.series):
            self._draw_series(svg, series, self.shape(place), across, up)
        return markup(svg)

    def _draw_series(
        self, svg: Element, series: Series, shape: int, across: Callable[[int], float], up: Callable[[float], float]
    ) -> None:
        group = add(svg, "g", class_=style_class(series.style), opacity=series.shade)
        points = [
            (place, value)
            for place, value in enumerate(series.values)
            if value is not None and (not self.logarithmic or value > 0)
        ]
        spread = dict(enumerate(series.spread))
        band = [(place, value, off) for place, value in points if (off := spread.get(place))]
        if len(band) > 1:
            edge = [(across(place), up(value + off)) for place, value, off in band]
            edge += [(across(place), up(value - off)) for place, value, off in reversed(band)]
            add(group, "polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in edge), class_="band")
        if self.joined:
            for part in runs_of(points):
                path = "M" + "L".join(f"{number(across(place))} {number(up(value))}" for place, value in part)
                add(group, "path", d=path, class_="curve dashed" if series.dashed else "curve")
        if len(points) <= FEW_POINTS:
            for place, value in points:
                add(group, "path", d=marker(shape, across(place), up(value)), class_="dot", data_i=place)


def runs_of(points: Sequence[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    """Points at neighbouring places together."""
    parts: list[list[tuple[int, float]]] = []
    for point in points:
        if parts and parts[-1][-1][0] == point[0] - 1:
            parts[-1].append(point)
        else:
            parts.append([point])
    return parts


def style_class(style: int) -> str:
    """The classes of page.css for this style: a colour, and dashes once all colours are taken."""
    if style < COLOURS:
        return f"s{style}"
    return f"s{4 + (style - COLOURS) % (COLOURS - 4)} again"


def marker(shape: int, x: float, y: float, r: float = 3.4) -> str:
    """The path of a marker; curves of one chart have different shapes, so that colour is not all that tells them."""
    corners = MARKERS[shape % len(MARKERS)]
    if not corners:
        return f"M{number(x - r)} {number(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    return "M" + "L".join(f"{number(x + r * right)} {number(y + r * down)}" for right, down in corners) + "z"
