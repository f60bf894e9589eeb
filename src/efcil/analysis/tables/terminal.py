"""A table for a window: columns that do not fit side by side follow below, with the names of the rows again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from rich.text import Text

from efcil.analysis.tables.comparison import Comparison, Shown, SourceColumn
from efcil.analysis.tables.layouts import Group

STYLES = {1: "bold", 2: "underline", 0: ""}
GAP = "  "


def terminal(comparison: Comparison, width: int) -> Text:
    """The whole table, the best bold and the second underlined, in lines of at most this width if it can be."""
    return Text("\n").join(_panel(comparison, groups) for groups in packed(comparison, width))


def packed(comparison: Comparison, width: int) -> list[list[Group]]:
    """As many groups side by side as fit; a group that is too wide by itself is split."""

    def fits(groups: list[Group]) -> bool:
        return max(len(line) for line in _panel(comparison, groups).plain.splitlines()) <= width

    panels: list[list[Group]] = []
    for group in comparison.layout.groups:
        whole = fits([group])
        for part in [group] if whole else [replace(group, columns=(column,)) for column in group.columns]:
            if panels and fits([*panels[-1], part]):
                panels[-1].append(part)
            else:
                panels.append([part])
    return [_joined(groups) for groups in panels]


def _joined(groups: list[Group]) -> list[Group]:
    """Parts of one group that ended up side by side, as one again."""
    found: list[Group] = []
    for group in groups:
        if found and (found[-1].above, found[-1].heading, found[-1].fixes) == (group.above, group.heading, group.fixes):
            found[-1] = replace(found[-1], columns=(*found[-1].columns, *group.columns))
        else:
            found.append(group)
    return found


def _panel(comparison: Comparison, groups: list[Group]) -> Text:
    layout, columns = comparison.layout, comparison.columns(groups)
    stubs = [
        max(len(heading), *(len(row.names[at]) for block in layout.blocks for row in block.rows))
        for at, heading in enumerate(layout.stubs)
    ]
    rows = [(block, row) for block in layout.blocks for row in block.rows]
    cells = [[_text(comparison.at(block, row, column)) for column in columns] for block, row in rows]
    widths = [max(len(line[at].plain) for line in cells) for at in range(len(columns))]
    spans = [_spans(columns, level) for level in LEVELS]
    for level, spanned in zip(LEVELS, spans, strict=True):
        for first, last in spanned:
            needed = len(level(columns[first])) - _width(widths, first, last)
            widths[last] += max(0, needed)
    lines = []
    for level, spanned in zip(LEVELS, spans, strict=True):
        headings = [level(columns[first]).center(_width(widths, first, last)) for first, last in spanned]
        if any(heading.strip() for heading in headings):
            names = layout.stubs if level is LEVELS[-1] else [""] * len(stubs)
            left = GAP.join(name.ljust(stub) for name, stub in zip(names, stubs, strict=True))
            lines.append(Text(GAP.join([left, *headings]).rstrip(), style="dim" if level is LEVELS[-1] else ""))
            if level is LEVELS[-2] and len(spanned) < len(columns):  # whose columns stand below which heading
                rules = ["─" * _width(widths, first, last) for first, last in spanned]
                lines.append(Text(GAP.join([" " * len(left), *rules])))
    length = sum(stubs) + sum(widths) + len(GAP) * (len(stubs) + len(widths) - 1)
    lines.append(Text("─" * length))
    filled = iter(cells)
    for block in layout.blocks:
        if block.heading:
            lines.append(Text(block.heading, style="italic"))
        for row in block.rows:
            line = Text(GAP.join(name.ljust(stub) for name, stub in zip(row.names, stubs, strict=True)))
            for text, space in zip(next(filled), widths, strict=True):
                text.pad_right(space - len(text.plain))
                line.append(GAP).append_text(text)
            line.rstrip()
            lines.append(line)
    return Text("\n").join([*lines, Text("")])


LEVELS: Sequence[Callable[[SourceColumn], str]] = (
    lambda column: column.group.above,
    lambda column: column.group.heading,
    lambda column: column.column.heading,
    lambda column: column.source,
)


def _spans(columns: list[SourceColumn], level: Callable[[SourceColumn], str]) -> list[tuple[int, int]]:
    """First and last column of each heading of this level; equal ones of different groups stay apart."""

    def belongs(at: int) -> tuple[object, ...]:
        column, depth = columns[at], LEVELS.index(level)
        return (level(column), *(upper(column) for upper in LEVELS[:depth]), at if depth == len(LEVELS) - 1 else 0)

    found = [list(members) for _, members in groupby(range(len(columns)), key=belongs)]
    return [(members[0], members[-1]) for members in found]


def _width(widths: list[int], first: int, last: int) -> int:
    return sum(widths[first : last + 1]) + len(GAP) * (last - first)


def _text(cell: Shown | None) -> Text:
    """Means with their points under each other, whether they have a standard deviation or not."""
    if cell is None:
        return Text("")
    mean = Text("–" if cell.mean == "-" else cell.mean, style=STYLES[cell.rank])
    whole = len(mean.plain.partition(".")[0])
    text = Text(" " * ((3 if mean.plain[0] in "+-" else 2) - whole)) + mean
    return text.append(f"±{cell.std}") if cell.std else text
