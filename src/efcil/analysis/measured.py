"""What tables of results and runs say of each run in numbers, for figures that need nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from efcil.analysis.runs import Run, leave_out
from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.bench.metrics import NAMES
from efcil.bench.results import Cell, Results, Row, all_seeds, read_results
from efcil.bench.scenarios import flat, number_settings
from efcil.errors import UserError

NEAR = 2  # rows with other settings that are named where those asked for are missing, the shortest first


@dataclass(frozen=True)
class Measured:
    """What a table of results or a run says of one run."""

    preset: str
    label: str
    seed: int
    numbers: dict[str, float]  # A_step, A_inc, F and PL after the last step
    per_step: list[float]  # A_step after every step
    per_task: list[float]  # accuracy on every task after the last step
    settings: dict[str, Any]  # those that can move a number, by dotted names
    first_step: int
    numerics: str


def measured_runs(runs: Sequence[Run]) -> list[Measured]:
    return [
        Measured(
            run.preset,
            run.label,
            run.seed,
            {name: run.metrics[name] for name in NAMES},
            [step["per_step_accuracy"] for step in run.metrics["steps"]],
            run.metrics["accuracy_matrix"][-1],
            flat(number_settings(run.config)),
            run.metrics["first_step"],
            str(run.metrics.get("numerics", 1)),
        )
        for run in runs
    ]


def measured_results(
    presets: Sequence[str], methods: Sequence[str], results: Path, hinted: bool = True
) -> list[Measured]:
    """The rows of these methods, all seeds, however often they are named; of older numerics where there are no newer.

    With ``hinted`` it is said of what there are no rows, and which rows come near.
    """
    rows = read_results(results)
    found: dict[tuple[str, ...], list[Measured]] = {}
    missing = []
    for cell in cells(list(dict.fromkeys(presets)), expanded(methods), [0]):
        made = cell.preset, cell.method, cell.config_digest  # a wrong name is said now
        today, older = all_seeds(rows, cell)
        if own := today or older:
            found.setdefault(made, [_measured_row(cell, _panel(cell.preset, presets), row, NAMES) for row in own])
        else:
            missing.append(f"no run of {cell.label} on {cell.preset}{_near(cell, rows)}")
    if not found:
        raise UserError(
            f"{results} has {missing[0]}; to run what is missing: "
            f"efcil bench --presets {','.join(presets)} --methods {' '.join(methods)} --results {results}"
        )
    for sentence in missing if hinted else ():
        leave_out(f"{results} has {sentence}")
    return [one for group in found.values() for one in group]


def _panel(preset: str, presets: Iterable[str]) -> str:
    """The name of a preset; with its folder where another file has the same name."""
    alike = {other for other in presets if Path(other).stem == Path(preset).stem}
    return Path(preset).stem if len(alike) == 1 else preset


def _near(cell: Cell, rows: Results) -> str:
    """The same method on the same preset with more settings, as it would have to be named."""
    named = {
        f"{method}:{','.join(changes.split())}"
        for preset, method, changes, *_ in rows
        if (preset, method) == (cell.preset, cell.method) and set(cell.changes) < set(changes.split())
    }
    return f", but of {' and '.join(sorted(named, key=len)[:NEAR])}" if named else ""


def _measured_row(cell: Cell, panel: str, row: Row, names: Iterable[str]) -> Measured:
    per_step, per_task = ([float(value) for value in row[f"accuracy_per_{kind}"].split()] for kind in ("step", "task"))
    numbers = {name: float(row[name]) for name in names}
    settings = flat(number_settings(cell.config))
    seed, first_step = int(row["seed"]), int(cell.config.stream.kind != "warm")
    return Measured(panel, cell.label, seed, numbers, per_step, per_task, settings, first_step, row["numerics"])


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
