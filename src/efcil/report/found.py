"""Which runs are meant: folders of runs, or folders that hold them; each read whole, with the way to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from efcil.bench.folders import finished_runs
from efcil.bench.run_folder import GOES_ON, read_config, read_json, read_metrics
from efcil.bench.scenarios import flat, resolve
from efcil.bench.states import FOLDER
from efcil.config import to_dict
from efcil.errors import UserError


@dataclass(frozen=True)
class Run:
    """A finished run as its folder tells it."""

    folder: Path
    metrics: dict[str, Any]
    about: dict[str, Any]
    config: dict[str, Any]  # by dotted names
    changes: list[str] = field(default_factory=list)  # what was --set; empty too where the preset is not at hand
    doubt: str = ""  # why the command may not give the same run

    @property
    def method(self) -> str:
        return str(self.metrics["method"])

    @property
    def preset(self) -> str:
        return str(self.metrics["preset"])

    @property
    def seed(self) -> int:
        return int(self.metrics["seed"])

    @property
    def numerics(self) -> int:
        return int(self.metrics.get("numerics", 1))

    @cached_property
    def label(self) -> str:
        """The method and what was changed of it."""
        return " ".join([self.method, *self.changes])

    @property
    def classes(self) -> list[str]:
        """In the order of learning."""
        return [str(name) for step in self.about["class_order"] for name in step]

    @property
    def command(self) -> str:
        """What runs it again."""
        words = ["efcil", "run", self.preset, "--method", self.method, "--seed", str(self.seed)]
        for change in self.changes:
            words += ["--set", change]
        kept = ["--keep-states"] if (self.folder / FOLDER).is_dir() else []
        return shlex.join([*words, "--out", "runs", *kept])


@dataclass(frozen=True)
class Found:
    """The runs of a report, and a sentence on each that was left out."""

    runs: list[Run]
    left_out: list[str]


def find_runs(given: Sequence[Path]) -> Found:
    """The runs in these folders; one that is named must be finished, of a folder of runs those that are are taken."""
    return Found(*finished_runs(given, read_run, "run or model"))


def read_run(folder: Path) -> Run:
    """A run that is finished; says what is wrong otherwise."""
    metrics = read_metrics(folder / "metrics.json")
    done, steps = len(metrics["steps"]), len(metrics["classes_per_task"])
    if not metrics["finished"] or not done:
        raise UserError(f"The run in {folder} is not finished ({done} of {steps} steps); {GOES_ON}.")
    about, config = read_json(folder / "run.json"), read_config(folder / "config.yaml")
    changes, doubt = changed(str(metrics["preset"]), str(metrics["method"]), int(metrics["seed"]), config)
    return Run(folder, metrics, about, config, changes, doubt)


def changed(preset: str, method: str, seed: int, config: dict[str, Any]) -> tuple[list[str], str]:
    """What must be --set on top of the preset to have these settings, and why that may not be the same run."""
    try:
        usual = flat(to_dict(resolve(preset, method, seed)))
        names = [name for name, value in config.items() if usual.get(name, value) != value]
        changes = [f"{name.removeprefix('classifier.')}={written(config[name])}" for name in names]
        again = flat(to_dict(resolve(preset, method, seed, changes)))
    except UserError as error:
        return [], f"The preset or the method is not at hand here: {error}"
    strange = sorted(name for name in config.keys() | again.keys() if config.get(name) != again.get(name))
    if strange:
        return changes, f"This version of efcil has other settings than the run: {', '.join(strange[:4])}."
    return changes, ""


def written(value: Any) -> str:
    """A value as --set reads it, which is YAML: there 1e-05 would be a word."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
