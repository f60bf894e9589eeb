"""One benchmark run: a stream through an IncrementalClassifier, step by step into a folder (run_folder.py)."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

from efcil import data
from efcil.bench.evaluate import evaluate
from efcil.bench.metrics import summarize
from efcil.bench.run_folder import (
    UNTIMED,
    check_in_step,
    check_same_stream,
    claimed,
    copy,
    describe,
    existing_metrics,
    unfinished,
    write_metrics,
)
from efcil.bench.states import kept_states, state_path
from efcil.classifier import IncrementalClassifier
from efcil.config import RunConfig
from efcil.data.stream import Stream
from efcil.engine import distributed
from efcil.engine.numerics import above_rounding
from efcil.engine.phases import Phases
from efcil.engine.progress import Silent, Watcher
from efcil.paper.efm import spectrum
from efcil.parts.consolidation import Consolidating


class RunWatcher(Watcher, Protocol):
    """Watches a whole run."""

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        """Before the first step; ``work`` is how many images each task will process."""

    def finished_step(self, metrics: dict[str, Any]) -> None:
        """After every step, with everything measured so far."""

    def ended(self, finished: bool) -> None:
        """When nothing more comes, also for a run that fails; what is open in its folder must be closed now."""


class Unwatched(Silent):
    """A run whose results are all that anybody asks for."""

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None: ...

    def finished_step(self, metrics: dict[str, Any]) -> None: ...

    def ended(self, finished: bool) -> None: ...


def run(
    config: RunConfig,
    preset: str,
    folder: Path,
    watcher: RunWatcher,
    data_root: Path | None = None,
    resume: bool = False,
    first_tasks: Path | None = None,
    keep_states: bool = False,
) -> dict[str, Any]:
    """Learn and evaluate every step; returns the metrics. A run that was cut off goes on with ``resume``.

    ``first_tasks`` is a folder where runs leave the trained first task for others that would train the same.
    ``keep_states`` keeps the classifier after every step.
    """
    resume = resume or distributed.restarted()
    metrics = distributed.from_first(lambda: found_metrics(folder, config, resume, keep_states))
    if metrics.get("finished"):
        return metrics
    with claimed(folder) if distributed.is_first() else nullcontext():
        # Another process may have worked on it until just now.
        metrics = distributed.from_first(lambda: existing_metrics(folder, config, resume))
        finished = False
        try:
            metrics = learn_stream(config, preset, folder, watcher, data_root, first_tasks, metrics, keep_states)
            finished = True
        finally:
            watcher.ended(finished)  # before a folder with nothing learnt is removed
        return metrics


def found_metrics(folder: Path, config: RunConfig, resume: bool, keep_states: bool) -> dict[str, Any]:
    """What an earlier run left in the folder, with all its states where they are asked for."""
    if not resume and unfinished(folder):
        with claimed(folder):  # refused if somebody is at work, who must not be told to remove it
            pass
    metrics = existing_metrics(folder, config, resume)
    if keep_states and metrics:
        kept_states(folder, metrics["first_step"], len(metrics["steps"]))
    return metrics


def learn_stream(
    config: RunConfig,
    preset: str,
    folder: Path,
    watcher: RunWatcher,
    data_root: Path | None,
    first_tasks: Path | None,
    metrics: dict[str, Any],
    keep_states: bool,
) -> dict[str, Any]:
    """The steps that the metrics do not have yet."""
    c = config.classifier
    images = data.load(config.data, data_root, stored_image_size(config), c.cache_mb, c.workers)
    stream = Stream(images, config.stream, c.seed)
    state, checkpoint = folder / "state.efcil", folder / "checkpoint.efcil"
    if metrics:
        distributed.from_first(lambda: check_same_stream(folder, stream))
    else:
        metrics = describe(config, preset, folder, stream)
    with distributed.copy_of_first(state) as kept:
        classifier = (
            IncrementalClassifier.load(kept, device=config.classifier.device)
            if kept.exists()
            else IncrementalClassifier.from_config(config.classifier)
        )
    classifier.watcher, classifier.config = watcher, config.classifier  # what moves no number may be new
    watcher.begin(metrics, classifier.work([len(task.train) for task in stream]))
    check_in_step(folder, len(classifier.tasks_), len(metrics["steps"]))
    for index in range(len(metrics["accuracy_matrix"]), len(stream)):
        started, phases = time.monotonic(), Phases()
        if len(classifier.tasks_) == index:  # otherwise it was learnt and saved, but cut off before it was evaluated
            task = stream.task(index)
            shared = None
            if first_tasks and index == 0 and distributed.is_first():
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
            phases.add(classifier.phase_seconds_)
            # Before the state: a run that is cut off before it has evaluated the step still knows how long it took.
            spent = max(0.0, time.monotonic() - started)  # a clock may go back
            learnt = {"seconds": round(spent, 2), "phase_seconds": rounded(phases.seconds)}
            write_metrics(folder, {**metrics, "learnt": learnt})
            classifier.save(state)
        else:
            learnt = metrics.get("learnt", UNTIMED)
            started -= learnt["seconds"]
            phases.add(learnt["phase_seconds"])
        metrics.pop("learnt", None)
        if keep_states:
            copy(state, state_path(folder, stream.first_step + index))
        with phases("evaluation"):
            evaluation = evaluate(classifier, stream, index + 1)
        seconds, last = max(0.0, time.monotonic() - started), index + 1 == len(stream)
        step = {"kept_bytes": classifier.kept_bytes, **spectrum_of(classifier)}
        step["phase_seconds"] = rounded({**phases.seconds, "other": max(0.0, seconds - sum(phases.seconds.values()))})
        metrics = with_step(metrics, evaluation.accuracy_per_task, seconds, last, step)
        metrics["kept_bytes"] = classifier.kept_bytes
        if last:
            metrics["confusion_matrix"] = evaluation.confusion_matrix
        if distributed.is_first():
            checkpoint.unlink(missing_ok=True)  # before a finished run says so: nobody comes back to it
        write_metrics(folder, metrics)
        watcher.finished_step(metrics)
    return metrics


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


def spectrum_of(classifier: IncrementalClassifier) -> dict[str, list[float]]:
    """The eigenvalues of E_t that are more than rounding, greatest first (Fig. 10); nothing without an EFM."""
    method = classifier._method
    if not isinstance(method, Consolidating):
        return {}
    values, _ = spectrum(method.memory.efm)
    return {"spectrum": [float(f"{value:.6g}") for value in values[above_rounding(values, method.memory.efm.dtype)]]}


def with_step(
    metrics: dict[str, Any], accuracies: list[float], seconds: float, finished: bool, more: dict[str, Any]
) -> dict[str, Any]:
    """The metrics with one more row of the accuracy matrix, entries of later tasks being null."""
    matrix = [[*row, None] for row in metrics["accuracy_matrix"]] + [accuracies]
    summary = summarize(matrix, metrics["classes_per_task"][: len(matrix)])
    step = {"step": metrics["first_step"] + len(matrix) - 1, **summary, "seconds": round(seconds, 2), **more}
    return {
        **metrics,
        **summary,
        "accuracy_matrix": matrix,
        "steps": [*metrics["steps"], step],
        "seconds": round(metrics["seconds"] + seconds, 2),
        "finished": finished,
    }


def stored_image_size(config: RunConfig) -> int | None:
    """The side at which the classifier wants its images read."""
    return IncrementalClassifier.from_config(config.classifier).stored_size
