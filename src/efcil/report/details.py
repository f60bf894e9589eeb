"""Run by run: how to run it again, all of its steps and settings, and what it did not write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from efcil.bench.metrics import NAMES
from efcil.report.found import Run
from efcil.report.scenario import Scenario
from efcil.report.spectrum import threshold
from efcil.report.table import Table, cell, size_cell

NAMED = 4  # runs in a sentence


@dataclass(frozen=True)
class RunDetails:
    """All that there is to say of one run."""

    name: str
    anchor: str
    run: Run
    settings: str
    steps: Table
    order: Sequence[tuple[str, str]]
    versions: Sequence[tuple[str, str]]


def details(scenario: Scenario, run: Run, anchor: str) -> RunDetails:
    metrics, about = run.metrics, run.about
    rows = [
        [
            cell(step["step"]),
            *(cell(float(step[name]), 2) for name in NAMES),
            cell(float(step["seconds"])),
            *([size_cell(step["kept_bytes"])] if "kept_bytes" in step else [cell(None)]),
        ]
        for step in metrics["steps"]
    ]
    headings = ["step", *(symbol for symbol, _ in NAMES.values()), "seconds", "kept"]
    order = [
        (f"step {metrics['first_step'] + place}", ", ".join(map(str, names)))
        for place, names in enumerate(about["class_order"])
    ]
    versions = [(name, str(version)) for name, version in about.get("versions", {}).items()]
    versions += [("numerics", str(about.get("numerics", 1))), ("threads", str(about.get("threads", "?")))]
    versions += [("settings", str(about.get("config_digest", "")))]
    versions += [(f"data: {name}", str(source)) for name, source in (about.get("data_sources") or {}).items()]
    settings = (run.folder / "config.yaml").read_text(encoding="utf-8")
    name = f"{run.label}, seed {run.seed}"
    return RunDetails(name, anchor, run, settings, Table(f"Steps of {name}", headings, rows), order, versions)


def absent(scenario: Scenario) -> list[str]:
    """What some runs did not write down, each in a sentence."""
    lists = {
        "confusion matrix": [run for run in scenario.runs if "confusion_matrix" not in run.metrics],
        "time of each phase": [run for run in scenario.runs if not noted(run, "phase_seconds")],
        "number of bytes kept after each step": [run for run in scenario.runs if not noted(run, "kept_bytes")],
        "spectrum of the EFM": [run for run in scenario.runs if threshold(run) and not noted(run, "spectrum")],
    }
    return [
        f"The {what} was not written down by {some(scenario, runs)}; new runs do so."
        for what, runs in lists.items()
        if runs
    ]


def noted(run: Run, what: str) -> bool:
    """Whether any step of the run has written this down."""
    return any(step.get(what) is not None for step in run.metrics["steps"])


def some(scenario: Scenario, runs: Sequence[Run]) -> str:
    """The names of a few of these runs."""
    if list(runs) == scenario.runs and len(runs) > 1:
        return "these runs"
    names = ", ".join(scenario.run_name(run) for run in runs[:NAMED])
    return f"{names} and {len(runs) - NAMED} more" if len(runs) > NAMED else names
