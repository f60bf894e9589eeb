"""Experiment trackers that are told what a run measures: TensorBoard, MLflow and Weights & Biases, each an extra.

A tracker is told of a run and moves none of its numbers. One that fails on the way is left out with one sentence, and
the run goes on; a run that goes on after an interruption goes on in the same place of the tracker.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from efcil.bench.metrics import NAMES
from efcil.bench.runs import RunWatcher
from efcil.engine.progress import Step
from efcil.engine.state import write_text
from efcil.errors import Notice, UserError, unknown

MODULES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}  # what each needs, beside its extra
NOTHING_SENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}  # that nobody asked to send
IDENTITIES = "tracking.json"  # in a run's folder: what trackers call the run


@dataclass(frozen=True)
class About:
    """What a tracker is told when a run begins."""

    folder: Path
    preset: str
    method: str
    seed: int
    settings: Mapping[str, Any]  # nested, every setting of the run

    @property
    def name(self) -> str:
        return self.folder.name


class Tracker(Protocol):
    """Listens to one run."""

    new: bool  # whether it has heard nothing of this run yet

    def losses(self, task: int, epoch: int, losses: Mapping[str, float]) -> None:
        """After an epoch, counted from 1 like the task; the mean of every term of the loss."""

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """After a step of the stream: the paper's four numbers in percent, and the seconds it took."""

    def close(self, finished: bool) -> None:
        """At the end, or when the run was cut off."""


def check_trackers(names: Iterable[str] | None) -> list[str]:
    """The names, each once, if there are such trackers and they are installed."""
    wanted = list(dict.fromkeys(names or ()))
    for name in wanted:
        if name not in MODULES:
            raise unknown("tracker", name, MODULES)
        if find_spec(MODULES[name]) is None:
            raise UserError(f"{name} is not installed; run: pip install 'efcil[{name}]'")
    return wanted


def open_tracker(name: str, about: About) -> Tracker:
    for variable, value in NOTHING_SENT.items():
        os.environ.setdefault(variable, value)
    tracker: Tracker = import_module(f"efcil.bench.tracking.{name}_tracker").open_tracker(about)
    return tracker


def known_as(about: About, tracker: str) -> str | None:
    """What the tracker called this run when it was begun."""
    return _identities(about).get(tracker)


def remember(about: About, tracker: str, identity: str) -> None:
    write_text(about.folder / IDENTITIES, json.dumps({**_identities(about), tracker: identity}))


def _identities(about: About) -> dict[str, str]:
    try:
        return dict(json.loads((about.folder / IDENTITIES).read_text()))
    except (OSError, ValueError, TypeError):  # not there, or damaged: then the tracker has a new run
        return {}


class Tracked:
    """Passes what it is told on to another watcher, and tells the trackers their part of it."""

    def __init__(self, watcher: RunWatcher, names: Iterable[str], about: About) -> None:
        self.watcher, self.about = watcher, about
        self.names = check_trackers(names)
        self.trackers: dict[str, Tracker] = {}

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        self.watcher.begin(metrics, work)
        for name in self.names:  # one by one, so that those before one that fails are closed
            self.trackers[name] = open_tracker(name, self.about)
        for name, tracker in list(self.trackers.items()):
            if tracker.new:  # of a run that was begun without it
                for step in metrics["steps"]:
                    self._tell(partial(_tell_step, step=step), {name: tracker})

    def step(self, step: Step) -> None:
        self.watcher.step(step)

    def epoch(self, step: Step) -> None:
        self.watcher.epoch(step)
        self._tell(lambda tracker: tracker.losses(step.task + 1, step.epoch + 1, step.losses))

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        self.watcher.stage(task, name, done, total)

    def finished_step(self, metrics: dict[str, Any]) -> None:
        self.watcher.finished_step(metrics)
        self._tell(partial(_tell_step, step=metrics["steps"][-1]))

    def ended(self, finished: bool) -> None:
        self.watcher.ended(finished)
        self._tell(lambda tracker: tracker.close(finished))

    def _tell(self, what: Callable[[Tracker], None], trackers: dict[str, Tracker] | None = None) -> None:
        for name, tracker in list((self.trackers if trackers is None else trackers).items()):
            try:
                what(tracker)
            except Exception as error:  # a server that went away must not cost hours of training
                del self.trackers[name]
                reason = " ".join(str(error).split())
                warnings.warn(f"{name} failed and is left out, the run goes on ({reason}).", Notice, stacklevel=3)


def _tell_step(tracker: Tracker, step: Mapping[str, Any]) -> None:
    tracker.step(step["step"], {name: float(step[name]) for name in (*NAMES, "seconds")})
