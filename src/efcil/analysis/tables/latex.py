"""A table for a paper: it needs no package, and uses booktabs and graphicx where the document has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from efcil.analysis.tables.comparison import Comparison, Shown, SourceColumn
from efcil.analysis.tables.layouts import Group

# Names that the packages have, so that a document without them compiles too; a \cline where booktabs has a \cmidrule.
FALLBACKS = r"""% Made by efcil, for \input in a document. It needs no package; booktabs and graphicx make it nicer.
\providecommand{\toprule}{\hline}
\providecommand{\midrule}{\hline}
\providecommand{\bottomrule}{\hline}
\providecommand{\cmidrule}[1]{\cline{#1}}
\providecommand{\resizebox}[3]{#3}
"""
WIDE = 80  # letters of a row, with the space between its columns, that fit the width of a page
SYMBOLS = {
    "A_step": r"$A_{\mathrm{step}}^K$",
    "A_inc": r"$A_{\mathrm{inc}}^K$",
    "✗": r"$\times$",
    "✓": r"$\surd$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "λ": r"$\lambda$",
    "η": r"$\eta$",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
SYMBOL = re.compile("|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True))))


def latex(comparison: Comparison, notes: Iterable[str]) -> str:
    """A float for each heading of columns, with the scale below the last."""
    panels = [_tabular(comparison, groups) for groups in comparison.panels()]
    floats = []
    for place, tabular in enumerate(panels):
        lines = [r"\begin{table}[tp]", r"\centering", rf"\caption{{Table {comparison.table} of the paper: "]
        lines[-1] += f"{escaped(comparison.layout.caption)}, in \\%{', continued' if place else ''}.}}"
        lines += [r"\par\smallskip\footnotesize", r"\setlength{\tabcolsep}{3pt}", tabular]
        if place == len(panels) - 1:
            lines += [r"\par\medskip", r"\begin{minipage}{\textwidth}\scriptsize"]
            lines += [rf"{escaped(note)}\par" for note in notes] + [r"\end{minipage}"]
        floats.append("\n".join([*lines, r"\end{table}", ""]))
    return "\n".join([FALLBACKS, *floats])


def _tabular(comparison: Comparison, groups: list[Group]) -> str:
    layout, columns = comparison.layout, comparison.columns(groups)
    stubs = len(layout.stubs)
    lines = [rf"\begin{{tabular}}{{{'l' * stubs}{'c' * len(columns)}}}", r"\toprule"]
    levels = (
        [_above(column) for column in columns],
        [(*_above(column), column.group.heading) for column in columns],
        [(*_above(column), column.group.heading, column.column.heading) for column in columns],
    )
    for level in levels:
        spans = [(heading[-1], len(list(same))) for heading, same in groupby(level)]
        if any(heading for heading, _ in spans):
            spanned = [rf"\multicolumn{{{length}}}{{c}}{{{escaped(heading)}}}" for heading, length in spans]
            lines += [rf"{' & ' * stubs}{' & '.join(spanned)} \\", _rules(stubs, [length for _, length in spans])]
    names = [rf"\textbf{{{escaped(stub)}}}" for stub in layout.stubs]
    lines += [" & ".join([*names, *(escaped(column.source) for column in columns)]) + r" \\"]
    for block in layout.blocks:
        lines.append(r"\midrule")
        if block.heading:
            lines.append(rf"\multicolumn{{{stubs + len(columns)}}}{{l}}{{\textit{{{escaped(block.heading)}}}}} \\")
        for row in block.rows:
            if row.rule:
                lines.append(rf"\cmidrule{{1-{stubs + len(columns)}}}")
            cells = [_cell(comparison.at(block, row, column)) for column in columns]
            lines.append(" & ".join([*map(escaped, row.names), *cells]) + r" \\")
    tabular = "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])
    return f"\\resizebox{{\\textwidth}}{{!}}{{%\n{tabular}}}" if letters(comparison, columns) > WIDE else tabular


def letters(comparison: Comparison, columns: list[SourceColumn]) -> int:
    """About how wide a table is; the space between two columns is that of one or two letters."""
    rows = [(block, row) for block in comparison.layout.blocks for row in block.rows]
    names = sum(max(len(row.names[at]) for _, row in rows) for at in range(len(comparison.layout.stubs)))
    numbers = 0
    for column in columns:
        cells = [cell for block, row in rows if (cell := comparison.at(block, row, column))]
        numbers += max([len(column.source), *(len(cell.mean) + len(cell.std) + 3 * bool(cell.std) for cell in cells)])
    return names + numbers + 3 * len(columns) // 2


def _above(column: SourceColumn) -> tuple[str, ...]:
    return (column.group.above,)


def _rules(stubs: int, lengths: list[int]) -> str:
    rules, first = [], stubs + 1
    for length in lengths:
        rules.append(rf"\cmidrule{{{first}-{first + length - 1}}}")
        first += length
    return " ".join(rules)


def _cell(cell: Shown | None) -> str:
    if cell is None:
        return ""
    mean = "--" if cell.mean == "-" else escaped(cell.mean) if cell.mean[0] not in "+-" else f"${cell.mean}$"
    marked = {0: mean, 1: rf"\textbf{{{mean}}}", 2: rf"\underline{{{mean}}}"}[cell.rank]
    return rf"{marked} $\pm$ {cell.std}" if cell.std else marked


def escaped(text: str) -> str:
    """Plain text as LaTeX."""
    return SYMBOL.sub(lambda match: SYMBOLS[match[0]], text)
