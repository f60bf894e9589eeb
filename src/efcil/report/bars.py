"""Bars that lie, each of one or more parts, with the name above: they fit a telephone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from efcil.report.figure import Figure
from efcil.report.lines import style_class
from efcil.report.svg import add, drawing, markup, shortened
from efcil.report.table import Cell, Table, cell

WIDTH = 360.0
ROW = 38.0


@dataclass(frozen=True)
class Bar:
    name: str
    parts: dict[str, float]
    style: int = 0  # of a bar of one part; parts of several have their own


@dataclass(frozen=True)
class Bars:
    """Bars to one scale, which begins at 0."""

    title: str
    summary: str
    bars: Sequence[Bar]
    parts: dict[str, int]  # the style of each part, in order
    told: Callable[[float], str]

    def figure(self) -> Figure:
        legend = [(style, name) for name, style in self.parts.items()] if len(self.parts) > 1 else []
        return Figure(self.title, self.summary, {"only": self.drawn()}, self.hover(), [self.table()], legend)

    def style(self, bar: Bar, part: str) -> int:
        return self.parts[part] if len(self.parts) > 1 else bar.style

    def hover(self) -> dict[str, object]:
        rows = [
            {
                "name": f"{bar.name}: {self.told(sum(bar.parts.values()))}",
                "parts": [
                    {"name": part, "legend": place, "text": self.told(bar.parts[part])}
                    for place, part in enumerate(self.parts)
                    if part in bar.parts and len(self.parts) > 1
                ],
            }
            for bar in self.bars
        ]
        return {"kind": "bars", "rows": rows, "height": ROW}

    def table(self) -> Table:
        rows = []
        for bar in self.bars:
            parts = [bar.parts.get(part) for part in self.parts] if len(self.parts) > 1 else []
            whole = sum(bar.parts.values())
            found = [cell(None) if value is None else Cell(self.told(value), value) for value in parts]
            rows.append([cell(bar.name), *found, Cell(self.told(whole), whole)])
        return Table(self.title, ["run", *(self.parts if len(self.parts) > 1 else []), "in all"], rows)

    def drawn(self) -> Markup:
        most = max((sum(bar.parts.values()) for bar in self.bars), default=0) or 1
        svg = drawing(WIDTH, ROW * len(self.bars) + 4, self.title, self.summary)
        for place, bar in enumerate(self.bars):
            y, whole = ROW * place, self.told(sum(bar.parts.values()))
            add(svg, "text", shortened(bar.name, WIDTH - 70, 12), x=0.0, y=y + 13, class_="name")
            add(svg, "text", whole, x=WIDTH, y=y + 13, class_="name end")
            add(svg, "rect", x=0.0, y=y + 18, width=WIDTH, height=13.0, rx=2.0, class_="ground")
            x = 0.0
            for part in self.parts:
                width = WIDTH * bar.parts.get(part, 0.0) / most
                if width > 0:
                    group = add(svg, "g", class_=style_class(self.style(bar, part)))
                    add(group, "rect", x=x, y=y + 18, width=width, height=13.0, class_="bar")
                    x += width
        return markup(svg)
