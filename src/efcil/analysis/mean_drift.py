"""Figure 5: how far the class means of a task move along E_t while the task is learnt (Eqs. 18-20).

Its numbers say too how far they move along E_{t-1}, which holds the features back meanwhile, and how far across it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from efcil.analysis.kept import columns, features, memory_of, streams, tracked
from efcil.analysis.measured import average, spread
from efcil.analysis.runs import Run, fitting, has_efm, has_later_step, has_states, same_scenario
from efcil.analysis.style import Rows, looks, panels
from efcil.classifier import IncrementalClassifier
from efcil.engine.numerics import above_rounding
from efcil.paper.drift import mean_drift, task_drift
from efcil.paper.efm import spectrum
from efcil.paper.prototypes import class_means


def mean_drifts(runs: Sequence[Run], data_root: Path | None) -> Rows:
    """One row per run and task from the second on."""
    runs = fitting(runs, has_efm, has_later_step, has_states)
    same_scenario(runs)
    work = [(run, task) for run in runs for task in range(1, len(run.steps))]
    images = streams(runs, data_root)
    rows: Rows = []
    for run, task in tracked(work, "drift of class means"):
        (before, held), (after, memory) = memory_of(run.states[task - 1]), memory_of(run.states[task])
        old, new = means_of_task(before, after, images[run.folder].task(task))
        drift = float(task_drift(old, new, memory.efm.cpu().double()))
        along, across = split_by_range(mean_drift(old, new), held.efm.cpu())
        about = {"method": run.label, "seed": run.seed, "step": run.steps[task], "drift": drift}
        rows.append({**about, "along_previous": along, "across_previous": across})
    return rows


def means_of_task(before: IncrementalClassifier, after: IncrementalClassifier, task: Any) -> tuple[Tensor, Tensor]:
    """μ_{t-1} and μ_t of Eq. 18 from the training images of the task, as they are, each (classes, n)."""
    names = columns(after, task.train_labels)
    old, new = (class_means(features(model, task.train).double(), names) for model in (before, after))
    return old, new


def split_by_range(drift: Tensor, efm: Tensor) -> tuple[float, float]:
    """The mean squared length of drifts (classes, n) within the range of an EFM, and outside it."""
    values, vectors = spectrum(efm)
    along = drift @ vectors[:, above_rounding(values, efm.dtype)]
    within, whole = (float(part.square().sum(1).mean()) for part in (along, drift))
    return within, max(0.0, whole - within)


def draw(rows: Rows) -> Any:
    figure, (axes,) = panels(1, width=6.6, height=4.0)
    style = looks(row["method"] for row in rows)
    for label, look in style.items():
        own = [row for row in rows if row["method"] == label]
        steps = sorted({row["step"] for row in own})
        seeds = sorted({row["seed"] for row in own})
        lists = [
            [r["drift"] for step in steps for r in own if (r["step"], r["seed"]) == (step, seed)] for seed in seeds
        ]
        axes.errorbar(
            steps, average(lists), yerr=spread(lists) if len(lists) > 1 else None, capsize=3, label=label, **look
        )
    axes.set(xlabel="task", ylabel="drift of its class means along $E_t$", xticks=steps)
    axes.set_ylim(bottom=0)
    axes.set_title("Drift of the class means of a task while it is learnt")
    axes.legend()
    return figure
