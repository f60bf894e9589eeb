"""Figure 9: how far prototypes are from the true class means, kept fixed or updated, in warm and cold starts (§8.2).

For each set of classes the mean over all later steps and its classes of ‖μ − p‖. Fixed prototypes are the means as
they were learnt, in the same run, so that both see the same network. True means are taken from the training images
in the view that the method takes its own statistics from. Any method that shows its class means can be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from efcil.analysis.kept import columns, features, streams, task_columns, tracked
from efcil.analysis.runs import Run, fitting, has_class_means, has_later_step, has_states
from efcil.analysis.style import OTHERS, VERMILLION, Rows, panels
from efcil.classifier import IncrementalClassifier
from efcil.paper.prototypes import class_means


def prototype_distances(runs: Sequence[Run], data_root: Path | None) -> Rows:
    """One row per run and set of classes that has a later step."""
    runs = fitting(runs, has_class_means, has_later_step, has_states)
    work = [(run, step) for run in runs for step in range(len(run.steps))]
    images = streams(runs, data_root)
    fixed: dict[int, list[Any]] = {}
    sums: dict[tuple[int, int], dict[str, float]] = {}
    for run, step in tracked(work, "distances of prototypes"):
        classifier = IncrementalClassifier.load(run.states[step])
        shown = classifier._method.class_means()
        assert shown is not None  # as has_class_means has asked
        means, augmented = shown[0].cpu().double(), shown[1]
        fixed.setdefault(id(run), []).append(means[task_columns(classifier, step)])
        if step == 0:
            continue
        past = images[run.folder].past(step)
        view = 0 if augmented else None
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
            start = {"start": run.config.stream.kind, "method": run.label, "run": run.folder.name, "seed": run.seed}
            rows.append({**start, "classes_of_step": run.steps[task], **distances})
    return rows


def draw(rows: Rows) -> Any:
    figure, (axes,) = panels(1, width=8.6, height=4.2)  # room for names beside it
    curves = list(dict.fromkeys((row["start"], row["method"]) for row in rows))
    several = len(curves) > len({start for start, _ in curves})
    for colour, (start, method) in zip(cycle((VERMILLION, *OTHERS)), curves, strict=False):
        own = [row for row in rows if (row["start"], row["method"]) == (start, method)]
        steps = sorted({row["classes_of_step"] for row in own})
        of = f" of {method}" if several else ""
        for name, dash, marker in (("fixed", "-", "o"), ("updated", "--", "s")):
            found = [[row[name] for row in own if row["classes_of_step"] == step] for step in steps]
            y = [sum(values) / len(values) for values in found]
            axes.plot(steps, y, dash, color=colour, marker=marker, label=f"{start} start{of}, {name}")
    axes.set(
        xlabel="classes of step", ylabel="mean distance ‖μ − p‖", xticks=sorted({r["classes_of_step"] for r in rows})
    )
    axes.set_ylim(bottom=0)
    axes.set_title("Distance of prototypes from the true class means")
    figure.legend(loc="outside right upper")
    return figure
