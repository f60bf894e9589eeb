"""A_step after every step, one curve per method, from the results of campaigns: mean over seeds, with their spread.

python benchmarks/figure.py digits-cold5 efc++ efc freeze finetune joint --out docs/figures/digits-cold5.png
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from efcil.bench.grids import expanded
from efcil.bench.results import read_results, rows_of
from efcil.bench.runner import cells

FRONT = {"efc++": ("#c1272d", 3.0), "efc": ("#e08214", 2.2), "joint": ("#222222", 1.6), "finetune": ("#7f7f7f", 1.6)}
OTHERS = ["#4575b4", "#1b9e77", "#7570b3", "#a6761d", "#66a61e", "#e7298a", "#17becf", "#8c564b", "#000080", "#bcbd22"]
LABEL_GAP = 0.035  # least distance of two labels, as a part of the height


def main(preset: str, methods: list[str], results: Path, out: Path, title: str) -> None:
    rows = read_results(results)
    curves = {}
    for cell in cells([preset], expanded(methods), [0]):
        every_seed = [replace(cell, seed=int(key[3])) for key in rows if key[:3] == cell.key[:3]]
        found = rows_of(rows, every_seed)
        if found:
            curves[cell.label] = np.array([row["accuracy_per_step"].split() for row in found], dtype=float)
    figure, axes = plt.subplots(figsize=(7.5, 4.5), dpi=130, layout="constrained")
    colours = cycle(OTHERS)
    ends = []
    for label, runs in curves.items():
        colour, width = FRONT.get(label) or (next(colours), 1.4)
        mean, steps = runs.mean(0), np.arange(1, runs.shape[1] + 1)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else np.zeros_like(mean)
        axes.plot(steps, mean, color=colour, linewidth=width, marker="o", markersize=3)
        axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
        ends.append((mean[-1], label, colour))
    top = axes.get_ylim()[1]
    height = -1.0
    for end, label, colour in sorted(ends):  # labels at the ends of the curves, pushed apart where they would overlap
        height = max(end, height + LABEL_GAP * top)
        axes.annotate(label, (steps[-1], height), (8, 0), textcoords="offset points", color=colour, va="center")
    axes.set(xlabel="steps learnt", ylabel="accuracy on all classes seen, %", xticks=steps, ylim=(0, top))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11, loc="left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("methods", nargs="+", help="as for efcil bench")
    parser.add_argument("--results", type=Path, default=Path("results/runs.csv"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    main(arguments.preset, arguments.methods, arguments.results, arguments.out, arguments.title)
