"""Runs that may be compared: one preset, one image set, one stream. What differs in the seed alone is one curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from efcil.bench.metrics import NAMES
from efcil.errors import UserError
from efcil.methods import method_class
from efcil.report.found import Run

FRONT = {"efc++": 0, "efc": 1, "joint": 2, "finetune": 3}  # the same colours as the figures have
FIRST_FREE = 4
SCENARIO = ("data.", "stream.")  # the settings that make a scenario


@dataclass(frozen=True)
class Entry:
    """What one curve shows: the runs of a method with the same settings, by seed."""

    name: str
    style: int
    runs: Sequence[Run]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def keeps_images(self) -> bool:
        """Whether its method is an upper bound that is given every image again."""
        try:
            return not method_class(self.first.method).exemplar_free
        except UserError:  # a method from outside that is not installed here
            return False

    def value(self, name: str) -> float:
        return float(mean(run.metrics[name] for run in self.runs))

    def spread(self, name: str) -> float | None:
        return stdev(run.metrics[name] for run in self.runs) if len(self.runs) > 1 else None

    def per_step(self, name: str) -> list[float]:
        """The mean over seeds after each step."""
        return [mean(values) for values in zip(*self._steps(name), strict=True)]

    def spread_per_step(self, name: str) -> list[float]:
        return [stdev(values) for values in zip(*self._steps(name), strict=True)] if len(self.runs) > 1 else []

    def _steps(self, name: str) -> list[list[float]]:
        return [[step[name] for step in run.metrics["steps"]] for run in self.runs]


@dataclass(frozen=True)
class Scenario:
    """What all its runs have in common, and the runs."""

    name: str
    entries: Sequence[Entry]

    @property
    def runs(self) -> list[Run]:
        return [run for entry in self.entries for run in entry.runs]

    @property
    def about(self) -> Run:
        return self.entries[0].first

    @property
    def steps(self) -> list[str]:
        metrics = self.about.metrics
        return [str(step["step"]) for step in metrics["steps"]]

    def run_name(self, run: Run) -> str:
        """The name of its curve, with the seed where that says more."""
        entry = next(entry for entry in self.entries if run in entry.runs)
        alone = len({other.seed for other in self.runs}) == 1
        return entry.name if alone and len(entry.runs) == 1 else f"{entry.name}, seed {run.seed}"

    def ranked(self, name: str) -> list[Entry]:
        """Best first; upper bounds that keep images are out of competition."""
        competing = [entry for entry in self.entries if not entry.keeps_images] or list(self.entries)
        return sorted(competing, key=lambda entry: entry.value(name), reverse=name != "average_forgetting")

    def differing(self) -> dict[str, list[Any]]:
        """Settings that are not the same for all curves, with the value of each, by the names that --set takes.

        Only what somebody changed: what the preset and the recipes of methods say is different for any two methods.
        """
        changed = dict.fromkeys(change.partition("=")[0] for run in self.runs for change in run.changes)
        configs = [{name.removeprefix("classifier."): v for name, v in e.first.config.items()} for e in self.entries]
        values = {name: [config.get(name) for config in configs] for name in changed}
        return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def scenarios(runs: Sequence[Run]) -> list[Scenario]:
    """The runs in groups that may be compared, each with its curves."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        stream = {name: value for name, value in run.config.items() if name.startswith(SCENARIO)}
        key = json.dumps([run.preset, stream, run.metrics["classes_per_task"]], sort_keys=True, default=str)
        groups.setdefault(key, []).append(run)
    names = [group[0].preset for group in groups.values()]
    found = []
    for name, group in zip(names, groups.values(), strict=True):
        changes = [change for change in group[0].changes if change.startswith(SCENARIO)]
        title = " ".join([name, *(changes if names.count(name) > 1 else [])])
        found.append(Scenario(title, entries(group)))
    return found


def common_changes(runs: Sequence[Run]) -> list[str]:
    """What was changed of the preset in every run."""
    return [change for change in runs[0].changes if all(change in run.changes for run in runs)]


def own_label(run: Run, common: Sequence[str]) -> str:
    """The method of a run, and what was changed of it that was not changed of all."""
    return " ".join([run.method, *(change for change in run.changes if change not in common)])


def entries(runs: Sequence[Run]) -> list[Entry]:
    """One curve per method, settings and numerics; two runs of the same seed are told apart by their folders."""
    common = common_changes(runs)
    versions: dict[str, set[int]] = {}
    for run in runs:
        versions.setdefault(own_label(run, common), set()).add(run.numerics)
    by_label: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        label = own_label(run, common)
        if len(versions[label]) > 1:
            label = f"{label} (numerics {run.numerics})"
        if any(other.seed == run.seed for other in by_label.get(label, [])):
            label = f"{label} ({run.folder.resolve().parent.name}/{run.folder.name})"
        by_label.setdefault(label, []).append(run)
    ranked = sorted(by_label.items(), key=lambda item: -mean(run.metrics[next(iter(NAMES))] for run in item[1]))
    styles: dict[str, int] = {label: FRONT[label] for label in by_label if label in FRONT}
    free = FIRST_FREE
    for label, _ in ranked:
        if label not in styles:
            styles[label], free = free, free + 1
    return [Entry(label, styles[label], found) for label, found in ranked]
