"""One benchmark run: a stream through an IncrementalClassifier, and a folder that tells everything about it.

config.yaml      every setting, resolved
run.json         preset, method, seed, class order of each step, versions
metrics.json     accuracy matrix and the paper's numbers, rewritten after every step (metrics.csv: one row per step)
state.efcil      the classifier after the last finished step
log.txt          one line per epoch and step
checkpoint.efcil the last finished epoch of the step being learnt, while there is one
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from efcil import __version__, data
from efcil.bench.evaluate import accuracy_per_task
from efcil.bench.metrics import NAMES, summarize
from efcil.bench.scenarios import flat
from efcil.classifier import IncrementalClassifier
from efcil.config import RunConfig, deciding, to_dict
from efcil.data.stream import Stream
from efcil.engine.progress import Watcher
from efcil.engine.state import write_bytes, write_text
from efcil.errors import UserError

LONGEST_NAME = 150  # characters of a folder name; file systems take 255 bytes


class RunWatcher(Watcher, Protocol):
    """Watches a whole run."""

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        """Before the first step; ``work`` is how many images each task will process."""

    def finished_step(self, metrics: dict[str, Any]) -> None:
        """After every step, with everything measured so far."""


def run_name(preset: str, config: RunConfig, changes: Sequence[str] = ()) -> str:
    """A readable folder name that says what was run."""
    parts = [Path(preset).stem, config.classifier.method, f"seed{config.classifier.seed}", *changes]
    name = "_".join(part.replace("/", "-").replace(" ", "") for part in parts)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def run(
    config: RunConfig,
    preset: str,
    folder: Path,
    watcher: RunWatcher,
    data_root: Path | None = None,
    resume: bool = False,
    first_tasks: Path | None = None,
) -> dict[str, Any]:
    """Learn and evaluate every step; returns the metrics. A run that was cut off goes on with ``resume``.

    ``first_tasks`` is a folder where runs leave the trained first task for others that would train the same.
    """
    metrics = existing_metrics(folder, config, resume)
    if metrics.get("finished"):
        return metrics
    stream = Stream(data.load(config.data, data_root, stored_image_size(config)), config.stream, config.classifier.seed)
    state, checkpoint = folder / "state.efcil", folder / "checkpoint.efcil"
    if metrics:
        check_same_stream(folder, stream)
    else:
        metrics = describe(config, preset, folder, stream)
    classifier = (
        IncrementalClassifier.load(state) if state.exists() else IncrementalClassifier.from_config(config.classifier)
    )
    classifier.watcher, classifier.config = watcher, config.classifier  # what moves no number may be new
    watcher.begin(metrics, classifier.work([len(task.train) for task in stream]))
    check_in_step(folder, len(classifier.tasks_), len(metrics["steps"]))
    for index in range(len(metrics["accuracy_matrix"]), len(stream)):
        started = time.monotonic()
        if len(classifier.tasks_) == index:  # otherwise it was learnt and saved, but cut off before it was evaluated
            task = stream.task(index)
            shared = None
            if first_tasks and index == 0:
                shared = first_tasks / f"{classifier.fingerprint(task.train, task.train_labels)}.efcil"
                copy(shared, checkpoint)
            past = stream.past(index) if classifier.needs_past else None
            classifier.partial_fit(
                task.train,
                task.train_labels,
                past=(past.train, past.train_labels) if past else None,
                checkpoint=checkpoint,
            )
            started -= classifier.saved_seconds_
            if shared:
                copy(checkpoint, shared)
            classifier.save(state)
        accuracies = accuracy_per_task(classifier, stream, index + 1)
        metrics = with_step(metrics, accuracies, time.monotonic() - started, finished=index + 1 == len(stream))
        metrics["kept_bytes"] = classifier.kept_bytes
        write_metrics(folder, metrics)
        checkpoint.unlink(missing_ok=True)
        watcher.finished_step(metrics)
    return metrics


def copy(source: Path, target: Path) -> None:
    """Copy a file that is there to a place where there is none."""
    if source.exists() and not target.exists():
        write_bytes(target, source.read_bytes())


def existing_metrics(folder: Path, config: RunConfig, resume: bool) -> dict[str, Any]:
    """What an earlier run left in the folder; refuses to mix two runs or to write over a finished one."""
    path = folder / "metrics.json"
    if not path.exists():
        if (folder / "state.efcil").exists():
            raise UserError(
                f"{folder} holds a classifier but no metrics.json; remove the folder or choose another --out."
            )
        return {}
    metrics: dict[str, Any] = json.loads(path.read_text())
    if not resume:
        how = "is already finished" if metrics["finished"] else "was begun before; add --resume to go on"
        raise UserError(f"The run in {folder} {how}. To run it anew, remove the folder or choose another --out.")
    before, now = flat(yaml.safe_load((folder / "config.yaml").read_text())), flat(to_dict(config))
    free = now.keys() - flat(deciding(config)).keys()  # such as workers, which may change on the way
    for name in sorted((before.keys() | now.keys()) - free):
        if before.get(name) != now.get(name):
            raise UserError(
                f"The run in {folder} was begun with {name} = {before.get(name)}, not {now.get(name)}; "
                "resume it with the same settings, or choose another --out."
            )
    return metrics


def describe(config: RunConfig, preset: str, folder: Path, stream: Stream) -> dict[str, Any]:
    """Write down what is going to be run; metrics.json comes last, as the sign that the folder is a run."""
    import numpy
    import torch

    versions = {"efcil": __version__, "torch": torch.__version__, "numpy": numpy.__version__}
    about = {
        "preset": preset,
        "method": config.classifier.method,
        "seed": config.classifier.seed,
        "class_order": stream.splits,
        "first_step": stream.first_step,
        "data_sources": stream.data.sources,
        "versions": {**versions, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    write_text(folder / "config.yaml", yaml.safe_dump(to_dict(config), sort_keys=False))
    write_text(folder / "run.json", json.dumps(about, indent=2))
    metrics = {
        **dict.fromkeys(NAMES),
        "unit": "percent",
        "accuracy_matrix": [],
        "steps": [],
        "classes_per_task": stream.classes_per_task,
        "first_step": stream.first_step,
        "method": config.classifier.method,
        "preset": preset,
        "seed": config.classifier.seed,
        "seconds": 0.0,
        "kept_bytes": 0,
        "finished": False,
    }
    write_metrics(folder, metrics)
    return metrics


def check_same_stream(folder: Path, stream: Stream) -> None:
    """The images on disk may have changed since the run was begun."""
    if json.loads((folder / "run.json").read_text())["class_order"] != stream.splits:
        raise UserError(f"The data now has other classes than when the run in {folder} was begun; check --data-root.")


def check_in_step(folder: Path, learnt: int, measured: int) -> None:
    """A run is cut off at most between learning a step and measuring it; anything else was tampered with."""
    if learnt - measured not in (0, 1):
        raise UserError(
            f"{folder} holds a classifier of {learnt} steps but metrics of {measured}; remove it and run anew."
        )


def with_step(metrics: dict[str, Any], accuracies: list[float], seconds: float, finished: bool) -> dict[str, Any]:
    """The metrics with one more row of the accuracy matrix, entries of later tasks being null."""
    matrix = [[*row, None] for row in metrics["accuracy_matrix"]] + [accuracies]
    summary = summarize(matrix, metrics["classes_per_task"][: len(matrix)])
    step = {"step": metrics["first_step"] + len(matrix) - 1, **summary, "seconds": round(seconds, 2)}
    return {
        **metrics,
        **summary,
        "accuracy_matrix": matrix,
        "steps": [*metrics["steps"], step],
        "seconds": round(metrics["seconds"] + seconds, 2),
        "finished": finished,
    }


def write_metrics(folder: Path, metrics: dict[str, Any]) -> None:
    """As JSON, and as a table with one row per step."""
    table = io.StringIO()
    tasks = [metrics["first_step"] + i for i in range(len(metrics["classes_per_task"]))]
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["step", *NAMES, "seconds", *(f"accuracy_task_{task}" for task in tasks)])
    for step, row in zip(metrics["steps"], metrics["accuracy_matrix"], strict=True):
        writer.writerow([step["step"], *(f"{step[name]:.4f}" for name in NAMES), step["seconds"], *row])
    write_text(folder / "metrics.csv", table.getvalue())
    write_text(folder / "metrics.json", json.dumps(metrics, indent=2))


def stored_image_size(config: RunConfig) -> int | None:
    """The side at which the classifier wants its images read."""
    return IncrementalClassifier.from_config(config.classifier).stored_size
