"""What figures are made from: finished runs, the classifiers they kept, their images, and tables of results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from efcil import data
from efcil.bench.campaign import cells
from efcil.bench.folders import finished_runs
from efcil.bench.grids import expanded
from efcil.bench.results import Cell, Row, newest_rows, read_results
from efcil.bench.run_folder import check_same_stream, read_metrics, read_settings
from efcil.bench.runs import stored_image_size
from efcil.bench.scenarios import flat, number_settings
from efcil.bench.states import kept_states
from efcil.classifier import IncrementalClassifier
from efcil.config import RunConfig, from_dict
from efcil.data.augment import augmentation, chosen
from efcil.data.images import ImageSet
from efcil.data.stream import Stream, Task
from efcil.errors import Notice, UserError
from efcil.parts.consolidation import Consolidating, Consolidation
from efcil.rng import generator

RESULTS = Path("results/runs.csv")


@dataclass(frozen=True)
class Run:
    """A finished run in its folder; ``label`` tells it from the others of a figure, seeds aside."""

    folder: Path
    metrics: dict[str, Any]
    config: RunConfig
    label: str = ""

    @property
    def seed(self) -> int:
        return self.config.classifier.seed

    @property
    def steps(self) -> list[int]:
        """The numbers of its steps."""
        return [step["step"] for step in self.metrics["steps"]]

    @property
    def scenario(self) -> str:
        """What must be equal for two runs to be compared: images and split."""
        return f"{self.metrics['preset']} with tasks of {self.metrics['classes_per_task']} classes"

    @cached_property
    def states(self) -> list[Path]:
        """The classifier after every step."""
        return kept_states(self.folder, self.metrics["first_step"], len(self.steps))

    def recorded(self, name: str) -> list[Any]:
        """What every step says under this name."""
        if any(name not in step for step in self.metrics["steps"]):
            raise UserError(f"The run in {self.folder} does not tell {name} of its steps; run it anew.")
        return [step[name] for step in self.metrics["steps"]]

    def stream(self, data_root: Path | None) -> Stream:
        """Its images, as it saw them."""
        c = self.config.classifier
        images = data.load(self.config.data, data_root, stored_image_size(self.config), c.cache_mb, c.workers)
        stream = Stream(images, self.config.stream, c.seed)
        check_same_stream(self.folder, stream)
        return stream


# Runs


def read_runs(given: Sequence[Path]) -> list[Run]:
    """The finished runs in these folders, or folders of such folders, each with a label."""
    return labelled(found_runs(given))


def found_runs(given: Sequence[Path]) -> list[Run]:
    """The same without labels; says which runs were left out."""
    runs, left_out = finished_runs(given, _read_run)
    for sentence in left_out:
        warnings.warn(f"left out: {sentence}", Notice, stacklevel=2)
    return runs


def _read_run(folder: Path) -> Run:
    metrics = read_metrics(folder / "metrics.json")
    if not metrics["finished"]:
        raise UserError(f"The run in {folder} is not finished; go on with the same `efcil run` and --resume.")
    return Run(folder, metrics, from_dict(RunConfig, read_settings(folder / "config.yaml")))


def labelled(runs: Sequence[Run]) -> list[Run]:
    """The method of each run, and the settings in which runs of the same method and preset differ."""
    settings = [
        {**flat(number_settings(run.config)), "numerics": run.metrics.get("numerics", 1)} for run in runs
    ]  # what older numerics made is never in one mean with what today's do
    labels = []
    for run, own in zip(runs, settings, strict=True):
        alike = [other for peer, other in zip(runs, settings, strict=True) if _kind(peer) == _kind(run)]
        differing = [name for name, value in own.items() if any(other.get(name) != value for other in alike)]
        words = [f"{name.split('.')[-1]}={own[name]}" for name in differing]
        labels.append(" ".join([run.config.classifier.method, *words]))
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _kind(run: Run) -> tuple[str, str]:
    return run.config.classifier.method, run.metrics["preset"]


def same_scenario(runs: Sequence[Run]) -> None:
    """Runs in one panel must have seen the same."""
    for run in runs[1:]:
        if run.scenario != runs[0].scenario:
            raise UserError(
                f"{runs[0].folder} and {run.folder} are of different scenarios, {runs[0].scenario} and {run.scenario}; "
                "give runs of one."
            )


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The seeds of each kind of run."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


# Classifiers and images


def streams(runs: Sequence[Run], data_root: Path | None) -> dict[Path, Stream]:
    """The images of each run by its folder; runs that saw the same share them."""
    loaded: dict[Any, Stream] = {}
    found = {}
    for run in runs:
        seen = (run.config.data, run.config.stream, run.seed, stored_image_size(run.config))
        if seen not in loaded:
            loaded[seen] = run.stream(data_root)
        check_same_stream(run.folder, loaded[seen])
        found[run.folder] = loaded[seen]
    return found


def memory_of(path: Path) -> tuple[IncrementalClassifier, Consolidation]:
    """A saved classifier and what it remembers, E_t and P_{1:t}."""
    classifier = IncrementalClassifier.load(path)
    method = classifier._method
    if not isinstance(method, Consolidating):
        raise UserError(
            f"{path} is of {method.name}, which has no Empirical Feature Matrix; give runs of efc++ or efc."
        )
    return classifier, method.memory


@torch.no_grad()
def features(classifier: IncrementalClassifier, images: ImageSet, view: int | None = None) -> Tensor:
    """f(x; θ_t) of all images, (N, n): as they are, or in the random view of this number."""
    model, preprocessing = classifier._fitted()
    device, change = (
        classifier._device(),
        augmentation(chosen(classifier.config.augmentation, images.size), preprocessing.size),
    )
    rng = generator(classifier.config.seed, "analysis", view or 0)
    parts = []
    for rows in torch.arange(len(images)).split(preprocessing.batch):
        pixels = images.batch(rows)
        pixels = preprocessing.centred(pixels) if view is None else change(pixels, rng)
        parts.append(model.features(preprocessing.normalised(pixels, device)))
    return torch.cat(parts).cpu()


def columns(classifier: IncrementalClassifier, labels: Any) -> Tensor:
    """The column of each label among the classes of the classifier."""
    order = classifier.classes_.argsort()
    return torch.from_numpy(order[np.searchsorted(classifier.classes_, labels, sorter=order)])


def task_columns(classifier: IncrementalClassifier, task: int) -> slice:
    """The columns of the classes of one task."""
    start = sum(classifier.tasks_[:task])
    return slice(start, start + classifier.tasks_[task])


def everything(stream: Stream) -> Task:
    """All tasks as one."""
    return stream.past(len(stream))


def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
    """The items in turn, with a bar where there is a terminal."""
    console = Console(stderr=True)
    return track(items, what, console=console, transient=True, disable=not console.is_terminal)


# Results


@dataclass(frozen=True)
class Measured:
    """What a table of results or a run says of one run."""

    preset: str
    label: str
    seed: int
    numbers: dict[str, float]  # A_step, A_inc, F and PL after the last step
    per_step: list[float]  # A_step after every step
    per_task: list[float]  # accuracy on every task after the last step
    options: dict[str, Any]
    first_step: int
    numerics: str


def measured_runs(runs: Sequence[Run]) -> list[Measured]:
    from efcil.bench.metrics import NAMES

    return [
        Measured(
            Path(run.metrics["preset"]).stem,
            run.label,
            run.seed,
            {name: run.metrics[name] for name in NAMES},
            [step["per_step_accuracy"] for step in run.metrics["steps"]],
            run.metrics["accuracy_matrix"][-1],
            dict(run.config.classifier.options),
            run.metrics["first_step"],
            str(run.metrics.get("numerics", 1)),
        )
        for run in runs
    ]


def measured_results(presets: Sequence[str], methods: Sequence[str], results: Path) -> list[Measured]:
    """The rows of these methods, all seeds; of older numerics where there are no newer."""
    from efcil.bench.metrics import NAMES

    rows = read_results(results)
    found = []
    for cell in cells(presets, expanded(methods), [0]):
        seeds = sorted({int(key[3]) for key in rows if key[:3] == cell.key[:3]})
        for row in newest_rows(rows, [replace(cell, seed=seed) for seed in seeds]):
            found.append(_measured_row(cell, row, NAMES))
    if not found:
        raise UserError(
            f"{results} has no run of these methods on {', '.join(presets)}; run them first: "
            f"efcil bench --presets {','.join(presets)} --methods {' '.join(methods)} --results {results}"
        )
    return found


def _measured_row(cell: Cell, row: Row, names: Iterable[str]) -> Measured:
    per_step, per_task = ([float(value) for value in row[f"accuracy_per_{kind}"].split()] for kind in ("step", "task"))
    numbers = {name: float(row[name]) for name in names}
    options = dict(cell.config.classifier.options)
    preset, seed, first_step = Path(cell.preset).stem, int(row["seed"]), int(cell.config.stream.kind != "warm")
    return Measured(preset, cell.label, seed, numbers, per_step, per_task, options, first_step, row["numerics"])


def said_of(found: Sequence[Measured]) -> str:
    """A line on where the numbers of each curve are from."""
    groups: dict[tuple[str, str, str], int] = {}
    for one in found:
        key = one.preset, one.label, one.numerics
        groups[key] = groups.get(key, 0) + 1
    lines = []
    for (preset, label, numerics), seeds in groups.items():
        lines.append(f"{label} on {preset}: {seeds} seed{'s' if seeds > 1 else ''}, numerics version {numerics}")
    return "\n".join(lines)


def average(lists: Sequence[Sequence[float]]) -> list[float]:
    """Entry by entry, over seeds."""
    return [mean(values) for values in zip(*lists, strict=True)]


def spread(lists: Sequence[Sequence[float]]) -> list[float]:
    """Standard deviation entry by entry; 0 of a single seed."""
    values = np.array(lists, dtype=float)
    return [float(value) for value in (values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1]))]
