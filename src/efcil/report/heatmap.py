"""Matrices as coloured squares, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from efcil.report.figure import Figure
from efcil.report.svg import LETTER, Element, add, drawing, markup, number, shortened
from efcil.report.table import Table

WIDTH = 360.0
WRITTEN = 11  # matrices with more columns have no numbers in their squares
NAMED = 24  # and with more than this no name at every row
LEVELS = 20  # of colour: one path each
LONGEST_NAME = 92.0  # pixels


@dataclass(frozen=True)
class Matrix:
    """Numbers by row and column; ``shares`` from 0 to 1 say how strong the colour is, None leaves a square empty."""

    title: str
    summary: str
    row_name: str
    column_name: str
    rows: Sequence[str]
    columns: Sequence[str]
    shares: Sequence[Sequence[float | None]]
    text: Sequence[Sequence[str]]
    phrase: str  # of {row}, {column} and {value}, under the pointer
    borders: Sequence[int] = ()  # lines before these rows and columns
    empty: str = "–"  # said of a square without a number

    def figure(self, tables: Sequence[Table]) -> Figure:
        hover = {
            "kind": "heat",
            "rows": list(self.rows),
            "columns": list(self.columns),
            "text": [list(row) for row in self.text],
            "phrase": self.phrase,
            "empty": self.empty,
        }
        return Figure(self.title, self.summary, {"only": self.drawn()}, hover, tables)

    def drawn(self) -> Markup:
        named = len(self.columns) <= NAMED
        shown = self.columns if named else ["000"]
        longest = max(len(name) for name in (*shown, *(self.rows if named else ["000"]))) * LETTER * 11
        margin = min(longest, LONGEST_NAME) + 10
        turned = named and longest > (WIDTH - margin - 30) / len(self.columns)
        left, top = margin + 16, 22.0 + (margin if turned else 16)
        side = (WIDTH - left - 6) / len(self.columns)
        height = top + side * len(self.rows) + 8
        svg = drawing(WIDTH, height, self.title, self.summary, data_left=left, data_top=top, data_side=side)
        add(svg, "text", self.column_name, x=left + side * len(self.columns) / 2, y=12.0, class_="axis middle")
        middle = top + side * len(self.rows) / 2
        about = f"rotate(-90 11 {number(middle)})"
        add(svg, "text", self.row_name, x=11.0, y=middle, class_="axis middle", transform=about)
        across, down = side * len(self.columns), side * len(self.rows)
        add(svg, "rect", x=left, y=top, width=across, height=down, class_="ground")
        for level, path in sorted(self._paths(left, top, side).items()):
            add(svg, "path", d="".join(path), class_="heat", fill_opacity=level / LEVELS)
        if named and len(self.columns) <= WRITTEN:
            self._write(svg, left, top, side)
        for place in self.borders:
            x, y = left + side * place, top + side * place
            add(svg, "line", x1=x, x2=x, y1=top, y2=top + side * len(self.rows), class_="border")
            add(svg, "line", x1=left, x2=left + side * len(self.columns), y1=y, y2=y, class_="border")
        every = 1 if named else max(1, len(self.columns) // 10)
        for place in range(0, len(self.rows), every):
            text = shortened(self.rows[place] if named else str(place + 1), margin - 6)
            add(svg, "text", text, x=left - 5, y=top + side * (place + 0.5) + 4, class_="tick end")
        for place in range(0, len(self.columns), every):
            x, text = left + side * (place + 0.5), self.columns[place] if named else str(place + 1)
            if turned:
                upright = f"rotate(-90 {number(x + 4)} {number(top - 5)})"
                add(svg, "text", shortened(text, margin), x=x + 4, y=top - 5, class_="tick", transform=upright)
            else:
                add(svg, "text", text, x=x, y=top - 6, class_="tick middle")
        add(svg, "rect", x=left, y=top, width=side, height=side, class_="cursor")
        return markup(svg)

    def _paths(self, left: float, top: float, side: float) -> dict[int, list[str]]:
        """The squares of each level of colour; one path for all of them keeps a page of large matrices small."""
        paths: dict[int, list[str]] = {}
        for r, row in enumerate(self.shares):
            for c, share in enumerate(row):
                if share is not None and share > 0:
                    level = max(1, round(LEVELS * min(share, 1.0)))
                    corner, edge = f"M{number(left + side * c)} {number(top + side * r)}", number(side)
                    paths.setdefault(level, []).append(f"{corner}h{edge}v{edge}h-{edge}z")
        return paths

    def _write(self, svg: Element, left: float, top: float, side: float) -> None:
        for r, row in enumerate(self.text):
            for c, text in enumerate(row):
                share = self.shares[r][c]
                if share is not None and text:
                    x, y = left + side * (c + 0.5), top + side * (r + 0.5) + 3.5
                    add(svg, "text", text, x=x, y=y, class_=value_class(share))


def value_class(share: float) -> str:
    """How a number is written on its colour; in the middle light and dark pages need different ink."""
    return "value strong" if share > 0.75 else "value half" if share > 0.55 else "value"
