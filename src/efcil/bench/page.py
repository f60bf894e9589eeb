"""The tables of a page such as REPRODUCIBILITY.md, each under the `efcil bench` commands that made it.

A line is made of the rows that count today or, where there are none yet, of those of the newest older numerics version;
the last column says which.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from efcil.bench.display import HEADINGS, formatted, paper_cell
from efcil.bench.results import Cell, Results, newest_rows, summary

COMMANDS_AND_TABLE = re.compile(r"((?:^    .*\n)*^    efcil bench.*\n(?:^    .*\n)*\n)((?:^\|.*\n)+)", re.MULTILINE)


def with_tables(page: str, results: Results, asked: Callable[[str], list[Cell]]) -> str:
    """The page with every table under `efcil bench` commands replaced by what the results say of the runs asked for."""

    def anew(match: re.Match[str]) -> str:
        commands = [line.strip() for line in match[1].replace("\\\n", " ").splitlines()]
        cells = [cell for line in commands if line.startswith("efcil bench") for cell in asked(line)]
        return match[1] + measured(cells, results)

    return COMMANDS_AND_TABLE.sub(anew, page)


def measured(asked: list[Cell], results: Results) -> str:
    """One line per method, in the order asked for, over the seeds that were run."""
    order = {cell.key[:3]: place for place, cell in reversed(list(enumerate(asked)))}
    lines = sorted(
        summary(newest_rows(results, asked)), key=lambda line: order[line["preset"], line["method"], line["changes"]]
    )
    several = len({line["preset"] for line in lines}) > 1
    headings = ["method", "seeds", *HEADINGS, "paper A_step / A_inc", "numerics"]
    rows = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for line in lines:
        name = f"`{line['label']}`" + (f" on `{line['preset']}`" if several else "")
        paper = paper_cell(line["preset"], line["label"])
        rows.append([name, str(line["seeds"]), *formatted(line), paper, str(line["numerics"])])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
