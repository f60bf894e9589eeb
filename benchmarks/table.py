"""The table of REPRODUCIBILITY.md from the results of campaigns.

python benchmarks/table.py results/runs.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

from efcil.bench.display import HEADINGS, cells, paper_cell
from efcil.bench.results import read_results, summary

if __name__ == "__main__":
    preset = None
    for line in summary(read_results(Path(sys.argv[1])).values()):
        if line["preset"] != preset:
            preset = line["preset"]
            print(f"\n### {preset}\n")
            print("| method | seeds |", " | ".join(HEADINGS), "| paper A_step / A_inc |")
            print("|---|---:|" + "---:|" * len(HEADINGS) + "---:|")
        label = " ".join(filter(None, [line["method"], line["changes"]]))
        print("|", " | ".join([f"`{label}`", str(line["seeds"]), *cells(line), paper_cell(preset, label)]), "|")
