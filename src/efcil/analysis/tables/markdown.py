"""A table for a page such as REPRODUCIBILITY.md, as GitHub shows it."""

from __future__ import annotations

from collections.abc import Iterable

from efcil.analysis.tables.comparison import Comparison, Shown, SourceColumn


def markdown(comparison: Comparison, notes: Iterable[str]) -> str:
    """One table for each heading of columns, the best bold and the second underlined, and the scale below."""
    layout = comparison.layout
    parts = [f"**Table {comparison.table}.** {layout.caption}, in %.\n"]
    for groups in comparison.panels():
        columns = comparison.columns(groups)
        parts += [f"{groups[0].above}:\n"] if groups[0].above else []
        lines = [
            [*layout.stubs, *map(_heading, columns)],
            ["---"] * len(layout.stubs) + ["---:"] * len(columns),
        ]
        for block in layout.blocks:
            if block.heading:
                lines.append([f"**{block.heading}**"] + [""] * (len(lines[0]) - 1))
            for row in block.rows:
                lines.append([*row.names, *(_cell(comparison.at(block, row, column)) for column in columns)])
        parts.append("".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join([*parts, "".join(f"- {note}\n" for note in notes)])


def _heading(column: SourceColumn) -> str:
    return "<br>".join(filter(None, (column.group.heading, column.column.heading, column.source)))


def _cell(cell: Shown | None) -> str:
    if cell is None:
        return ""
    mean = "–" if cell.mean == "-" else cell.mean
    marked = {0: mean, 1: f"**{mean}**", 2: f"<ins>{mean}</ins>"}[cell.rank]
    return f"{marked} ± {cell.std}" if cell.std else marked
