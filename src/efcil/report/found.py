"""Which runs are meant: folders of runs, or folders that hold them; each read whole, with the way to run it again."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from efcil.bench.runs import read_config, read_json, read_metrics
from efcil.bench.scenarios import flat, resolve
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
        return shlex.join([*words, "--out", "runs"])


@dataclass(frozen=True)
class Found:
    """The runs of a report, and a sentence on each that was left out."""

    runs: list[Run]
    left_out: list[str]


def find_runs(given: Sequence[Path]) -> Found:
    """The runs in these folders; one that is named must be finished, of a folder of runs those that are are taken."""
    runs: dict[Path, Run] = {}
    left_out: list[str] = []
    for place in given:
        if is_run(place):
            runs[place.resolve()] = read_run(place)
            continue
        folders = sorted(path.parent for path in place.rglob("metrics.json")) if place.is_dir() else []
        if not folders:
            raise UserError(missing(place))
        for folder in folders:
            try:
                runs.setdefault(folder.resolve(), read_run(folder))
            except UserError as error:
                left_out.append(str(error))
    if not runs:
        more = f", nor of the {len(left_out) - 1} others" if len(left_out) > 1 else ""
        raise UserError(f"No run here is finished{more}. {left_out[0]}")
    return Found(list(runs.values()), left_out)


def is_run(folder: Path) -> bool:
    return (folder / "metrics.json").is_file()


def missing(place: Path) -> str:
    """What to say of a place that holds no run."""
    if place.exists():
        return (
            f"{place} holds no run; give the folder of a run, a folder of such folders, or a model such as pets.efcil."
        )
    beside = [path.name for path in place.parent.iterdir()] if place.parent.is_dir() else []
    near = difflib.get_close_matches(place.name, beside, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(str(place.parent / name) for name in near)}?" if near else "check its name."
    return f"There is no run or model {place}; {hint}"


def read_run(folder: Path) -> Run:
    """A run that is finished; says what is wrong otherwise."""
    metrics = read_metrics(folder / "metrics.json")
    done, steps = len(metrics["steps"]), len(metrics["classes_per_task"])
    if not metrics["finished"] or not done:
        raise UserError(f"The run in {folder} is not finished ({done} of {steps} steps); efcil run … --resume goes on.")
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
