"""Figure 12: how long a step takes and on what, one bar per method, mean over the steps after the first and seeds.

The first task is the same for most methods, and runs share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efcil.analysis.runs import Run, by_label, same_scenario
from efcil.analysis.style import OTHERS, VERMILLION, Rows, panels
from efcil.errors import UserError

SHOWN = {  # what belongs to training, in the order of the bars
    "preparation": ("before training, such as a generator", OTHERS[5], "xx"),
    "training": ("training the backbone", OTHERS[0], ""),
    "drift": ("prototype update", OTHERS[1], ".."),
    "re-balancing": ("prototype re-balancing", VERMILLION, "//"),
    "statistics": ("EFM, prototypes, classifiers", "#E69F00", "\\\\"),
}


def training_times(runs: Sequence[Run]) -> Rows:
    """One row per run, step and phase, as the trainer measured them."""
    same_scenario(runs)
    if any(len(run.steps) < 2 for run in runs):
        raise UserError("The time of the steps after the first needs runs of at least two steps.")
    rows: Rows = []
    for label, group in by_label(runs).items():
        for run in group:
            for step, phases in zip(run.steps, run.recorded("phase_seconds"), strict=True):
                about = {"method": label, "seed": run.seed, "step": step}
                rows += [{**about, "phase": name, "seconds": seconds} for name, seconds in phases.items()]
    return rows


def mean_seconds(rows: Rows) -> dict[str, dict[str, float]]:
    """For each method the mean seconds of every phase over its later steps and seeds."""
    found: dict[str, dict[str, float]] = {}
    for label in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == label]
        first = min(row["step"] for row in own)
        steps = {(row["seed"], row["step"]) for row in own if row["step"] != first}
        totals = dict.fromkeys(SHOWN, 0.0)
        for row in own:
            if row["step"] != first and row["phase"] in SHOWN:
                totals[row["phase"]] += row["seconds"] / len(steps)
        found[label] = totals
    return found


def draw(rows: Rows) -> Any:
    means = dict(sorted(mean_seconds(rows).items(), key=lambda item: -sum(item[1].values())))
    figure, (axes,) = panels(1, width=7.4, height=2.0 + 0.42 * len(means))
    starts = dict.fromkeys(means, 0.0)
    for phase, (what, colour, hatch) in SHOWN.items():
        values = [means[label][phase] for label in means]
        if max(values) > 0:
            axes.barh(
                list(means),
                values,
                left=list(starts.values()),
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=what,
            )
            starts = {label: start + value for (label, start), value in zip(starts.items(), values, strict=True)}
    longest = max(starts.values())
    for place, total in enumerate(starts.values()):
        axes.text(total + 0.01 * longest, place, f"{total:.1f} s", va="center")
    axes.set(xlabel="seconds per step, without the first", xlim=(0, 1.14 * longest))
    axes.grid(axis="y", visible=False)
    axes.set_title("Training time")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure
