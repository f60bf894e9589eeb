"""A_step after every step, one curve per method, from the results of campaigns: mean over seeds.

The spread is drawn where there are few curves.

python benchmarks/figure.py digits-cold5 efc++ efc freeze finetune joint --out docs/figures/digits-cold5.png
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.bench.results import newest_rows, read_results

FRONT = {"efc++": ("#c1272d", 3.0), "efc": ("#e08214", 2.2), "joint": ("#222222", 1.6), "finetune": ("#7f7f7f", 1.6)}
OTHERS = ["#4575b4", "#1b9e77", "#7570b3", "#a6761d", "#66a61e", "#e7298a", "#17becf", "#8c564b", "#000080", "#bcbd22"]
LABEL_GAP = 0.037  # least distance of two labels, as a part of the height
FEW = 6  # more bands than these hide the curves


def main(preset: str, methods: list[str], results: Path, out: Path, title: str) -> None:
    rows = read_results(results)
    curves = {}
    for cell in cells([preset], expanded(methods), [0]):
        seeds = sorted({int(key[3]) for key in rows if key[:3] == cell.key[:3]})
        every_seed = [replace(cell, seed=seed) for seed in seeds]
        found = newest_rows(rows, every_seed)
        if found:
            print(f"{cell.label}: {len(found)} seeds, numerics version {found[0]['numerics']}")
            curves[cell.label] = np.array([row["accuracy_per_step"].split() for row in found], dtype=float)
    figure, axes = plt.subplots(figsize=(7.5, 5), dpi=130, layout="constrained")
    colours = cycle(OTHERS)
    ends = []
    for label, runs in curves.items():
        colour, width = FRONT.get(label) or (next(colours), 1.4)
        middle, steps = runs.mean(0), np.arange(1, runs.shape[1] + 1)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else np.zeros_like(middle)
        axes.plot(steps, middle, color=colour, linewidth=width, marker="o", markersize=3)
        if len(curves) <= FEW:
            axes.fill_between(steps, middle - spread, middle + spread, color=colour, alpha=0.12, linewidth=0)
        ends.append((middle[-1], label, colour))
    top = axes.get_ylim()[1]
    ends.sort()
    for height, (end, label, colour) in zip(apart([end for end, *_ in ends], LABEL_GAP * top), ends, strict=True):
        place = (steps[-1] * 1.05, height)
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 2, "relpos": (0, 0.5)}
        axes.annotate(label, (steps[-1], end), place, color=colour, va="center", arrowprops=line)
    axes.set(xlabel="steps learnt", ylabel="accuracy on all classes seen, %", xticks=steps, ylim=(0, top))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11, loc="left")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def apart(heights: list[float], gap: float) -> list[float]:
    """These rising heights at least a gap apart: neighbours that overlap become a block around their mean."""
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and mean(blocks[-1]) - mean(blocks[-2]) < gap * (len(blocks[-1]) + len(blocks[-2])) / 2:
            last = blocks.pop()
            blocks[-1] += last
    return [mean(block) + gap * (place - (len(block) - 1) / 2) for block in blocks for place in range(len(block))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("methods", nargs="+", help="as for efcil bench")
    parser.add_argument("--results", type=Path, default=Path("results/runs.csv"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    main(arguments.preset, arguments.methods, arguments.results, arguments.out, arguments.title)
