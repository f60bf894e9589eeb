"""What is taken for what, of runs and of models."""

from __future__ import annotations

import math
from collections.abc import Sequence

from efcil.report.figure import Figure
from efcil.report.heatmap import Matrix
from efcil.report.table import Table, cell

CONFUSIONS = 20  # rows of a table in the place of a confusion matrix


def confusion_figure(
    name: str,
    classes: Sequence[str],
    counts: Sequence[Sequence[int]],
    title: str,
    what: str,
    borders: Sequence[int] = (),
) -> Figure:
    """Counts by true class and by answer, with tables of the classes and of what is taken for what most often."""
    totals = [sum(row) for row in counts]
    wrong = sorted(
        ((count, r, c) for r, row in enumerate(counts) for c, count in enumerate(row) if r != c and count),
        key=lambda found: -found[0],
    )
    most = (
        f"{classes[wrong[0][1]]} is taken for {classes[wrong[0][2]]} most often, {wrong[0][0]} times" if wrong else ""
    )
    right = sum(row[place] for place, row in enumerate(counts))
    summary = (
        f"{title}; {right} of {sum(totals)} {what} are named rightly. {most or 'Nothing is taken for anything else'}."
    )
    per_class = [
        [cell(label), cell(total), cell(100 * row[place] / total if total else None)]
        for place, (label, row, total) in enumerate(zip(classes, counts, totals, strict=True))
    ]
    pairs = [[cell(classes[r]), cell(classes[c]), cell(count)] for count, r, c in wrong[:CONFUSIONS]]
    shares = [
        [math.sqrt(count / total) if total else None for count in row]
        for row, total in zip(counts, totals, strict=True)
    ]
    text = [[str(count) if count else "" for count in row] for row in counts]
    drawn = Matrix(
        name,
        summary,
        "true class",
        "taken for",
        classes,
        classes,
        shares,
        text,
        "{row} taken for {column}: {value}",
        borders,
    )
    return drawn.figure(
        [
            Table(f"{title}: most often taken for another", ["class", "taken for", what], pairs),
            Table(f"{title}: named rightly", ["class", what, "percent"], per_class),
        ]
    )
