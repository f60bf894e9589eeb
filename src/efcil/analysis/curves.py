"""A_step after every step, one curve per method, from the results of campaigns: mean over seeds (Figs. 14, 16, 17).

The spread is drawn where there are few curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.bench.results import newest_rows, read_results
from efcil.errors import UserError

FRONT = {"efc++": ("#c1272d", 3.0), "efc": ("#e08214", 2.2), "joint": ("#222222", 1.6), "finetune": ("#7f7f7f", 1.6)}
OTHERS = ["#4575b4", "#1b9e77", "#7570b3", "#a6761d", "#66a61e", "#e7298a", "#17becf", "#8c564b", "#000080", "#bcbd22"]
LABEL_GAP = 0.037  # least distance of two labels, as a part of the height
FEW = 6  # more bands than these hide the curves


def curves(preset: str, methods: Sequence[str], results: Path) -> tuple[dict[str, npt.NDArray[np.float64]], str]:
    """For each method its accuracies by seed and step, and a line on where they are from."""
    rows = read_results(results)
    found, said = {}, []
    for cell in cells([preset], expanded(methods), [0]):
        seeds = sorted({int(key[3]) for key in rows if key[:3] == cell.key[:3]})
        own = newest_rows(rows, [replace(cell, seed=seed) for seed in seeds])
        if own:
            said.append(f"{cell.label}: {len(own)} seeds, numerics version {own[0]['numerics']}")
            found[cell.label] = np.array([row["accuracy_per_step"].split() for row in own], dtype=float)
    if not found:
        raise UserError(f"{results} has no run of these methods on {preset}; run them first: efcil bench.")
    return found, "\n".join(said)


def draw(curves: dict[str, npt.NDArray[np.float64]], out: Path, title: str) -> None:
    """The curves as a picture; its ending says which kind."""
    plt = pyplot()
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
    try:
        figure.savefig(out)
    except ValueError as error:
        raise UserError(f"{out} cannot be drawn ({error}); give a name such as curves.png or curves.svg.") from None
    finally:
        plt.close(figure)


def pyplot() -> Any:
    """matplotlib without a screen."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise UserError("Pictures need matplotlib; run: pip install 'efcil[report]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def apart(heights: list[float], gap: float) -> list[float]:
    """These rising heights at least a gap apart: neighbours that overlap become a block around their mean."""
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and mean(blocks[-1]) - mean(blocks[-2]) < gap * (len(blocks[-1]) + len(blocks[-2])) / 2:
            last = blocks.pop()
            blocks[-1] += last
    return [mean(block) + gap * (place - (len(block) - 1) / 2) for block in blocks for place in range(len(block))]
