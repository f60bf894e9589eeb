"""Figure 3: what noise on the features does along the range of E_t, and across it (Eq. 11).

After the first task the change of the probabilities, up to the third the accuracy on every task, at the end A_step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efcil.analysis.kept import columns, features, memory_of, tracked
from efcil.analysis.runs import Run, fitting, has_efm, has_states
from efcil.analysis.style import BLUE, OTHERS, VERMILLION, Rows, panels
from efcil.bench.metrics import per_step_accuracy
from efcil.classifier import IncrementalClassifier
from efcil.engine.model import IncrementalModel
from efcil.paper.perturbation import perturbed
from efcil.rng import generator

STRENGTHS = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0)  # σ in units of the features' own spread
REPEATS = 3
MIDDLE = 3  # tasks in the second panel


def perturbation(runs: Sequence[Run], data_root: Path | None) -> Rows:
    """The first two panels from the seeds of the first method, the last one from all runs."""
    runs = fitting(runs, has_efm, has_states)
    steps = []
    for run in runs:
        if (run.preset, run.label) == (runs[0].preset, runs[0].label):
            steps += [(run, "first task", 0), (run, "all tasks", min(MIDDLE, len(run.steps)) - 1)]
        steps.append((run, "end", len(run.steps) - 1))
    rows: Rows = []
    for run, panel, index in tracked(steps, "perturbing features"):
        about = {"panel": panel, "preset": run.preset, "run": run.folder.name, "method": run.label}
        rows += [{**about, "step": run.steps[index], **row} for row in _panel(run, index, data_root)]
    return rows


def _panel(run: Run, index: int, data_root: Path | None) -> Rows:
    classifier, memory = memory_of(run.states[index])
    stream = run.stream(data_root)
    seen = stream.past(index + 1)
    clean = features(classifier, seen.test).double()
    truth = columns(classifier, seen.test_labels)
    rows: Rows = []
    for along in (True, False):
        for strength in STRENGTHS:
            results = []
            for repeat in range(REPEATS if strength else 1):
                rng = generator(run.seed, "perturbation", index, repeat)
                moved = perturbed(clean, memory.efm.cpu(), strength * float(clean.std()), along, rng)
                results.append(_effect(classifier, clean, moved, truth))
            direction = "along" if along else "across"
            for name in results[0]:
                value = sum(result[name] for result in results) / len(results)
                rows.append({"direction": direction, "strength": strength, "measure": name, "value": value})
    return rows


@torch.no_grad()
def _effect(classifier: IncrementalClassifier, clean: Tensor, moved: Tensor, truth: Tensor) -> dict[str, float]:
    """Half the change of the probabilities (0: none, 1: all), the accuracy on each task, and A_step."""
    model, _ = classifier._fitted()
    before, after = probabilities(model, clean), probabilities(model, moved)
    correct = (after.argmax(1) == truth).double()
    ends = torch.tensor(classifier.tasks_).cumsum(0)
    task = torch.bucketize(truth, ends, right=True)
    per_task = [100 * float(correct[task == number].mean()) for number in range(len(ends))]
    found = {"change of probabilities": float((after - before).abs().sum(1).mean() / 2)}
    found |= {f"accuracy on task {number + 1}": value for number, value in enumerate(per_task)}
    import numpy as np

    matrix = np.array([per_task] * len(per_task))
    found["A_step"] = per_step_accuracy(matrix, np.array(classifier.tasks_, dtype=float), len(per_task) - 1)
    return found


def probabilities(model: IncrementalModel, features: Tensor) -> Tensor:
    """softmax(W f) in the type of the features."""
    return torch.softmax(features @ model.weight.detach().cpu().to(features).T, dim=1)


def draw(rows: Rows) -> Any:
    """Means over the runs of a preset and method; the first two panels are of those that come first."""
    figure, (left, middle, right) = panels(3)
    styles = {"along": "-", "across": "--"}
    groups: dict[tuple[str, str], Rows] = {}
    for row in rows:
        groups.setdefault((row["preset"], row["method"]), []).append(row)
    several = len({preset for preset, _ in groups}) > 1
    names = [" ".join([preset, method] if several else [method]) for preset, method in groups]
    of = f", {names[0]}" if len(groups) > 1 else ""
    first = next(iter(groups.values()))
    step_of = {row["panel"]: row["step"] for row in first}
    for direction, colour in (("along", BLUE), ("across", VERMILLION)):
        x, y = _line(first, "first task", direction, "change of probabilities")
        marker = "os"[direction == "across"]
        left.plot(
            x, y, styles[direction], color=colour, marker=marker, label=f"{direction} $E_{{{step_of['first task']}}}$"
        )
    left.set_ylabel("change of the probabilities")
    left.set_title(f"After the first task{of}")
    tasks = sorted({row["measure"] for row in first if row["panel"] == "all tasks" and "task" in row["measure"]})
    for place, name in enumerate(tasks):
        for direction in styles:
            x, y = _line(first, "all tasks", direction, name)
            label = name.removeprefix("accuracy on ") if direction == "along" else None
            middle.plot(x, y, styles[direction], color=OTHERS[place], marker="osD"[place % 3], label=label)
    middle.set(ylabel="accuracy, %", ylim=(-2, 102))
    middle.set_title(f"All tasks, after step {step_of['all tasks']}{of} (dashed: across)")
    for place, (name, own) in enumerate(zip(names, groups.values(), strict=True)):
        runs, steps = len({row["run"] for row in own}), max(row["step"] for row in own)
        for direction in styles:
            x, y = _line(own, "end", direction, "A_step")
            label = f"{name}, {direction}, {steps} steps" + (f", {runs} seeds" if runs > 1 else "")
            right.plot(x, y, styles[direction], color=OTHERS[place], marker="os"[direction == "across"], label=label)
    right.set(ylabel="A_step, %", ylim=(-2, 102))
    right.set_title("At the end")
    for axes in (left, middle, right):
        axes.set_xlabel("noise, in spreads of the features")
        axes.legend()
    return figure


def _line(rows: Rows, panel: str, direction: str, measure: str) -> tuple[list[float], list[float]]:
    """The mean over runs at every strength of the noise."""
    found: dict[float, list[float]] = {}
    for r in rows:
        if (r["panel"], r["direction"], r["measure"]) == (panel, direction, measure):
            found.setdefault(r["strength"], []).append(r["value"])
    return list(found), [sum(values) / len(values) for values in found.values()]
