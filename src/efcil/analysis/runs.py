"""Finished runs in their folders, as figures take them: read, told apart, and those left out that do not fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from efcil import data
from efcil.bench.folders import finished_runs
from efcil.bench.run_folder import GOES_ON, check_same_stream, read_metrics, read_settings
from efcil.bench.runs import stored_image_size
from efcil.bench.scenarios import flat, number_settings
from efcil.bench.states import kept_states
from efcil.classifier import IncrementalClassifier
from efcil.config import RunConfig, from_dict
from efcil.data.stream import Stream
from efcil.engine.method import Method
from efcil.errors import Notice, UserError
from efcil.methods import METHODS, method_class
from efcil.parts.consolidation import Consolidating

SCENARIO = ("data.", "stream.")  # the settings that say what a run learns and is measured on


@dataclass(frozen=True)
class Run:
    """A finished run in its folder; ``label`` tells it from the others of a figure, seeds aside."""

    folder: Path
    metrics: dict[str, Any]
    config: RunConfig
    label: str = ""
    named: bool = True  # itself, and not just found in a folder of runs

    @property
    def seed(self) -> int:
        return self.config.classifier.seed

    @property
    def steps(self) -> list[int]:
        """The numbers of its steps."""
        return [step["step"] for step in self.metrics["steps"]]

    @property
    def method(self) -> str:
        return self.config.classifier.method

    @property
    def preset(self) -> str:
        """Its name; of a file of one's own without the folder, which may be another on another machine."""
        return Path(self.metrics["preset"]).stem

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Those that can move a number, by dotted names, and the numerics it was made with."""
        return {**flat(number_settings(self.config)), "numerics": self.metrics.get("numerics", 1)}

    @property
    def scenario(self) -> dict[str, Any]:
        """What must be equal for two runs to be compared: images and split."""
        own = {name: value for name, value in self.settings.items() if name.startswith(SCENARIO)}
        return {"preset": self.preset, **own, "classes_per_task": self.metrics["classes_per_task"]}

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


def read_runs(given: Sequence[Path]) -> list[Run]:
    """The finished runs in these folders, or folders of such folders, each once and with a label."""
    return labelled(each_once(found_runs(given)))


def found_runs(given: Sequence[Path]) -> list[Run]:
    """The same without labels and with copies; says which runs were left out."""
    runs, left_out = finished_runs(given, _read_run)
    for sentence in left_out:
        leave_out(sentence)
    named = {place.resolve() for place in given}
    return [replace(run, named=run.folder.resolve() in named) for run in runs]


def leave_out(sentence: object) -> None:
    warnings.warn(f"left out: {sentence}", Notice, stacklevel=2)


def each_once(runs: Iterable[Run]) -> list[Run]:
    """Without runs that are there before, in another folder: the same seed twice is no second seed."""
    found: dict[Any, Run] = {}
    for run in runs:
        digest = run.metrics.get("config_digest")
        key = (digest, run.metrics.get("numerics"), run.seed) if digest else run.folder
        if key in found:
            leave_out(f"{run.folder}, which is the run of {found[key].folder} again (settings and seed)")
        found.setdefault(key, run)
    return list(found.values())


def fitting(runs: Sequence[Run], *checks: Callable[[Run], object]) -> list[Run]:
    """Those that the checks do not refuse; a run that is named itself must fit, one of a folder is left out."""
    found, refused = [], []
    for run in runs:
        try:
            for check in checks:
                check(run)
            found.append(run)
        except UserError as error:
            if run.named:
                raise
            refused.append(error)
    if not found:
        raise refused[0]
    for sentence in refused:
        leave_out(sentence)
    return found


class Asked(Protocol):
    """What a check of the method needs to know of a run."""

    @property
    def folder(self) -> Path: ...

    @property
    def method(self) -> str: ...


def has_efm(run: Asked) -> None:
    if not issubclass(method_class(run.method), Consolidating):
        raise UserError(
            f"The run in {run.folder} is of {run.method}, which has no Empirical Feature Matrix; "
            "give runs of efc++ or efc."
        )


def has_two_classes(run: Run) -> None:
    if sum(run.metrics["classes_per_task"]) < 2:
        raise UserError(
            f"The run in {run.folder} has learnt a single class, whose Empirical Feature Matrix has no eigenvalues; "
            "give runs of several classes."
        )


def has_class_means(run: Asked) -> None:
    if method_class(run.method).class_means is Method.class_means:
        able = ", ".join(name for name, cls in METHODS.items() if cls.class_means is not Method.class_means)
        raise UserError(f"The run in {run.folder} is of {run.method}, which does not show class means; {able} do.")


def has_state(run: Run) -> None:
    IncrementalClassifier.load(run.folder / "state.efcil")


def has_states(run: Run) -> None:
    """All of them, and whole: loading them takes moments, what a figure computes from each takes long."""
    for path in run.states:
        IncrementalClassifier.load(path)


def has_later_step(run: Run) -> None:
    if len(run.steps) < 2:
        raise UserError(f"The run in {run.folder} has a single step, in which nothing has moved yet.")


def _read_run(folder: Path) -> Run:
    metrics = read_metrics(folder / "metrics.json")
    if not metrics["finished"]:
        raise UserError(f"The run in {folder} is not finished; {GOES_ON}.")
    settings = read_settings(folder / "config.yaml")
    try:
        config = from_dict(RunConfig, settings)
        number_settings(config)  # its method is at hand, and has these options
    except UserError as error:
        raise UserError(f"The run in {folder} cannot be looked at here: {error}") from None
    return Run(folder, metrics, config)


def labelled(runs: Sequence[Run]) -> list[Run]:
    """The method of each run, and the settings in which runs of the same preset and method differ.

    Runs of one preset share a panel, so that their images and split are compared whatever the method. What older
    numerics made is never in one mean with what today's do.
    """
    found = []
    for run in runs:
        panel = [other for other in runs if other.preset == run.preset]
        alike = [other for other in panel if other.method == run.method]
        words = [
            f"{name.split('.')[-1]}={value}"
            for name, value in run.settings.items()
            if any(other.settings.get(name) != value for other in (panel if name.startswith(SCENARIO) else alike))
        ]
        found.append(replace(run, label=" ".join([run.method, *words])))
    return found


def same_scenario(runs: Sequence[Run]) -> None:
    """Runs in one panel must have seen the same."""
    for run in runs[1:]:
        one, other = runs[0].scenario, run.scenario
        if differing := [name for name in one | other if one.get(name) != other.get(name)]:
            raise UserError(
                f"{runs[0].folder} and {run.folder} are of different scenarios (not the same {', '.join(differing)}); "
                "give runs of one."
            )


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The seeds of each kind of run."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups
