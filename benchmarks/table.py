"""Write the tables of REPRODUCIBILITY.md anew from the results; each stands under the commands that made it.

A line is made of the rows that count today or, where there are none yet, of those of the newest older numerics version;
the last column says which.

python benchmarks/table.py
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from efcil.bench.campaign import cells, seed_list
from efcil.bench.display import HEADINGS, formatted, paper_cell
from efcil.bench.grids import expanded
from efcil.bench.results import Cell, Results, newest_rows, read_results, summary
from efcil.cli import parser
from efcil.engine import numerics

ROOT = Path(__file__).parent.parent
COMMANDS_AND_TABLE = re.compile(r"((?:^    .*\n)*^    efcil bench.*\n(?:^    .*\n)*\n)((?:^\|.*\n)+)", re.MULTILINE)


def with_tables(page: str, results: Results) -> str:
    """The page with every table under `efcil bench` commands replaced by what the results say now."""
    return COMMANDS_AND_TABLE.sub(lambda match: match[1] + table(commanded(match[1]), results), page)


def commanded(commands: str) -> list[Cell]:
    """The runs that these commands ask for, in their order."""
    found = []
    for command in commands.replace("\\\n", " ").splitlines():
        if command.strip().startswith("efcil bench"):
            args = parser().parse_args(shlex.split(command)[1:])
            found += cells(args.presets.split(","), expanded(args.methods), seed_list(args.seeds))
    return found


def table(asked: list[Cell], results: Results) -> str:
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


if __name__ == "__main__":
    page = ROOT / "REPRODUCIBILITY.md"
    page.write_text(with_tables(page.read_text(), read_results(ROOT / "results" / "runs.csv")))
    print(f"{page} is written anew; today's results have numerics version {numerics.VERSION}.")
