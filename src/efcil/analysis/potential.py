"""Figure 1: plasticity potential, how much a network that learns on could gain over one frozen after its first task.

Networks that learnt only C_0 classes are frozen, and a linear probe on their features learns all classes; the gap to
the probe on a jointly trained network is Δ. The runs are those of the grid @figure1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.analysis.kept import everything, features, tracked
from efcil.analysis.runs import Run, fitting, has_state
from efcil.analysis.style import BLUE, VERMILLION, Rows, panels
from efcil.classifier import IncrementalClassifier
from efcil.engine.numerics import TINY
from efcil.errors import UserError

DECAY = 1e-3  # of the probe's weights, which act on features of spread one
ITERATIONS = 200
GRID = "efcil bench --presets PRESET --methods @figure1"


def linear_probe(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """The affine classifier (classes, n + 1) of least mean cross-entropy plus ½ · 1e-3 ‖W‖² on features (N, n).

    The bias, its last column, is not decayed. The problem is convex: there is one answer, whatever the start.
    """
    ones = x.new_ones(len(x), 1)
    inputs = torch.cat([x, ones], dim=1)
    weight = torch.zeros(classes, inputs.shape[1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight],
        max_iter=ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(inputs @ weight.T, y) + 0.5 * DECAY * weight[:, :-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weight.detach()


def probe_accuracy(classifier: IncrementalClassifier, task: Any) -> float:
    """Percent of the test images that a linear probe on the frozen features gets right, over all classes."""
    names = sorted(set(task.classes))
    place = {name: index for index, name in enumerate(names)}
    y, y_test = (torch.tensor([place[name] for name in labels]) for labels in (task.train_labels, task.test_labels))
    x, x_test = (features(classifier, images) for images in (task.train, task.test))
    mean, std = x.mean(0), x.std(0).clamp_min(TINY)
    weight = linear_probe((x - mean) / std, y, len(names))
    scores = (x_test - mean) / std @ weight[:, :-1].T + weight[:, -1]
    return 100 * float((scores.argmax(1) == y_test).double().mean())


def potential(runs: Sequence[Run], data_root: Path | None) -> Rows:
    """The probe's accuracy on every network, and its gap to joint training, per seed."""
    runs = comparable(fitting(runs, has_part, has_state))
    rows: Rows = []
    for run in tracked(runs, "linear probes"):
        classifier, task = IncrementalClassifier.load(run.folder / "state.efcil"), everything(run.stream(data_root))
        rows.append(
            {
                "run": run.folder.name,
                "network": "joint" if is_joint(run) else "frozen",
                "first_classes": run.metrics["classes_per_task"][0],
                "seed": run.seed,
                "probe_accuracy": probe_accuracy(classifier, task),
                "own_accuracy": run.metrics["per_step_accuracy"],
            }
        )
    best = {row["seed"]: row["probe_accuracy"] for row in rows if row["network"] == "joint"}
    for row in rows:
        row["plasticity_potential"] = best[row["seed"]] - row["probe_accuracy"]
    return sorted(rows, key=lambda row: (row["network"], row["seed"], row["first_classes"]))


def is_joint(run: Run) -> bool:
    """Whether it has learnt everything at once; a stream that was cut off after one task has not."""
    return len(run.metrics["classes_per_task"]) == 1 and run.config.stream.tasks is None


def has_part(run: Run) -> None:
    if run.method != "freeze" and not is_joint(run):
        raise UserError(f"The run in {run.folder} is neither frozen nor joint in one step; make the runs: {GRID}")


def learnt(run: Run) -> tuple[Any, ...]:
    """What a frozen network and the joint training that it is compared with have in common, the seed aside."""
    images = [setting for setting in run.settings.items() if setting[0].startswith("data.")]
    return run.preset, *images, sum(run.metrics["classes_per_task"]), run.metrics.get("numerics", 1)


def comparable(runs: Sequence[Run]) -> list[Run]:
    """Those of which there is both a frozen network and joint training, all of the same but for the seed."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((learnt(run), run.seed), []).append(run)
    whole = {key: group for key, group in groups.items() if len({is_joint(run) for run in group}) == 2}
    if not whole:
        raise UserError(
            "Figure 1 compares networks frozen after a first task with joint training in one step, of the same preset, "
            f"images, classes, numerics and seed; make them: {GRID}"
        )
    one, *others = (group[0] for group in whole.values())
    for other in others:
        if learnt(other) != learnt(one):
            raise UserError(
                f"{one.folder} and {other.folder} are not of the same preset, images, classes and numerics; "
                "give runs of one kind."
            )
    for group in whole.values():
        joint, *more = filter(is_joint, group)
        if more:
            raise UserError(f"{joint.folder} and {more[0].folder} are both joint training of one seed; give one.")

    def has_other(run: Run) -> None:
        if (learnt(run), run.seed) not in whole:
            what = "frozen network" if is_joint(run) else "joint training"
            raise UserError(
                f"There is no {what} of the preset, images, classes, numerics and seed of {run.folder}; make it: {GRID}"
            )

    return fitting(runs, has_other)


def draw(rows: Rows) -> Any:
    figure, (axes,) = panels(1, width=6.2, height=4.2)
    frozen = [row for row in rows if row["network"] == "frozen"]
    sizes = sorted({row["first_classes"] for row in frozen})
    middle = [_mean([row["probe_accuracy"] for row in frozen if row["first_classes"] == size]) for size in sizes]
    top = _mean([row["probe_accuracy"] for row in rows if row["network"] == "joint"])
    axes.plot(sizes, middle, color=BLUE, marker="o", label="frozen after C₀ classes")
    for row in frozen:
        axes.plot(row["first_classes"], row["probe_accuracy"], ".", color=BLUE, alpha=0.35)
    axes.axhline(top, color="#222222", linestyle="--", label="joint training")
    for size, value, name in ((sizes[0], middle[0], "cold"), (sizes[-1], middle[-1], "warm")):
        axes.annotate("", (size, value), (size, top), arrowprops={"arrowstyle": "<->", "color": VERMILLION, "lw": 1.6})
        side, shift = ("left", 8) if size == sizes[0] else ("right", -8)
        axes.annotate(
            f"Δ {name} = {top - value:.1f}",
            (size, (value + top) / 2),
            (shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=VERMILLION,
        )
    axes.set(xlabel="classes of the first task, C₀", ylabel="linear probe on all classes, %", xticks=sizes)
    axes.set_title("Plasticity potential")
    axes.legend(loc="best")
    return figure


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
