"""Figure 9: how far prototypes are from the true class means, kept fixed or updated, in warm and cold starts (§8.2).

For each set of classes the mean over all later steps and its classes of ‖μ − p‖. Fixed prototypes are the means as
they were learnt, in the same run, so that both see the same network. True means are taken from the training images
in the view that the method takes its own statistics from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from efcil.analysis.readers import Run, columns, features, memory_of, streams, task_columns, tracked
from efcil.analysis.style import OTHERS, VERMILLION, Rows, panels
from efcil.errors import UserError
from efcil.paper.prototypes import class_means


def prototype_distances(runs: Sequence[Run], data_root: Path | None) -> Rows:
    """One row per run and set of classes that has a later step."""
    if any(len(run.steps) < 2 for run in runs):
        raise UserError("Prototypes have only moved away in runs of at least two steps.")
    work = [(run, step) for run in runs if run.states for step in range(len(run.steps))]
    images = streams(runs, data_root)
    fixed: dict[int, list[Any]] = {}
    sums: dict[tuple[int, int], dict[str, float]] = {}
    for run, step in tracked(work, "distances of prototypes"):
        classifier, memory = memory_of(run.states[step])
        means = memory.prototypes.means.cpu().double()
        fixed.setdefault(id(run), []).append(means[task_columns(classifier, step)])
        if step == 0:
            continue
        past = images[run.folder].past(step)
        view = 0 if memory.augmented else None
        true = class_means(features(classifier, past.train, view).double(), columns(classifier, past.train_labels))
        for task in range(step):
            places = task_columns(classifier, task)
            found = sums.setdefault((id(run), task), {"fixed": 0.0, "updated": 0.0})
            for name, prototypes in (("fixed", fixed[id(run)][task]), ("updated", means[places])):
                found[name] += float(torch.linalg.vector_norm(true[places] - prototypes, dim=1).mean())
    rows: Rows = []
    for run in runs:
        for task in range(len(run.steps) - 1):
            later = len(run.steps) - 1 - task
            distances = {name: value / later for name, value in sums[id(run), task].items()}
            start = {"start": run.config.stream.kind, "run": run.folder.name, "seed": run.seed}
            rows.append({**start, "classes_of_step": run.steps[task], **distances})
    return rows


def draw(rows: Rows) -> Any:
    figure, (axes,) = panels(1, width=6.8, height=4.2)
    colours = {"cold": VERMILLION, "warm": OTHERS[0], "domain": OTHERS[1]}
    for start in dict.fromkeys(row["start"] for row in rows):
        own = [row for row in rows if row["start"] == start]
        steps = sorted({row["classes_of_step"] for row in own})
        for name, dash, marker in (("fixed", "-", "o"), ("updated", "--", "s")):
            found = [[row[name] for row in own if row["classes_of_step"] == step] for step in steps]
            y = [sum(values) / len(values) for values in found]
            axes.plot(steps, y, dash, color=colours[start], marker=marker, label=f"{start} start, {name}")
    axes.set(
        xlabel="classes of step", ylabel="mean distance ‖μ − p‖", xticks=sorted({r["classes_of_step"] for r in rows})
    )
    axes.set_ylim(bottom=0)
    axes.set_title("Distance of prototypes from the true class means")
    axes.legend()
    return figure
