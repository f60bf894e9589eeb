"""Tables as a page shows them: every cell has its text and the value that it is sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A text, what to sort it by, and style and shape of the curve that it belongs to."""

    text: str
    value: float | str
    style: int | None = None
    shape: int = 0

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, str)


@dataclass(frozen=True)
class Table:
    """Rows under headings; a caption says what it is a table of."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: dict[str, str] = field(default_factory=dict)  # what a heading means, where it is no plain word

    def filled(self) -> Table:
        """The table without columns in which no row has anything."""
        kept = [place for place in range(len(self.headings)) if any(row[place].text for row in self.rows)]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, headings=[self.headings[place] for place in kept], rows=rows)

    def is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column].text]
        return bool(cells) and all(cell.is_number for cell in cells)


def cell(value: Any, decimals: int = 1) -> Cell:
    """Any value as a cell; nothing is an empty one."""
    if value is None or value == "":
        return Cell("", "")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", str(value))
    if isinstance(value, int):
        return Cell(f"{value:,}", value)
    if isinstance(value, float):
        return Cell(f"{value:.{decimals}f}", value)
    return Cell(str(value), str(value))


def size_cell(count: int) -> Cell:
    """Bytes as people say them."""
    return Cell(size(count), count)


def size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} bytes"
