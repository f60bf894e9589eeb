"""The table of finished runs: one CSV row each, small enough to be committed, so that a campaign goes on anywhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from efcil import __version__
from efcil.bench.metrics import NAMES
from efcil.bench.scenarios import deviations, resolve
from efcil.engine.state import write_text
from efcil.errors import UserError

KEY = ("preset", "method", "changes", "seed")
COLUMNS = (*KEY, "settings", *NAMES, "seconds", "kept_bytes", "version", "accuracy_per_step", "accuracy_per_task")
Row = dict[str, str]


@dataclass(frozen=True)
class Cell:
    """One run of a campaign."""

    preset: str
    method: str
    changes: tuple[str, ...]
    seed: int

    @property
    def key(self) -> tuple[str, ...]:
        return self.preset, self.method, " ".join(self.changes), str(self.seed)

    @cached_property
    def settings(self) -> str:
        """What the preset, the method's recipe and the changes come to."""
        return deviations(resolve(self.preset, self.method, self.seed, self.changes))

    @property
    def label(self) -> str:
        return " ".join([self.method, *self.changes])


def read_results(path: Path) -> dict[tuple[str, ...], Row]:
    """Rows by their key; an empty table when there is no file yet."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UserError(f"{path} is not a table of efcil results; choose another --results file.")
        return {tuple(row[name] for name in KEY): row for row in reader}


def rows_of(results: dict[tuple[str, ...], Row], cells: Iterable[Cell]) -> list[Row]:
    """The rows of those cells that were run with the settings they have now; an edited preset has none."""
    return [row for cell in cells if (row := results.get(cell.key)) and row["settings"] == cell.settings]


def append_result(path: Path, cell: Cell, metrics: dict[str, Any]) -> None:
    """Add or replace the row of this run; the file is rewritten whole, in key order."""
    rows = read_results(path)
    rows[cell.key] = {
        **dict(zip(KEY, cell.key, strict=True)),
        "settings": cell.settings,
        **{name: f"{metrics[name]:.4f}" for name in NAMES},
        "seconds": f"{metrics['seconds']:.0f}",
        "kept_bytes": str(metrics["kept_bytes"]),
        "version": __version__,
        "accuracy_per_step": " ".join(f"{step['per_step_accuracy']:.2f}" for step in metrics["steps"]),
        "accuracy_per_task": " ".join(f"{value:.2f}" for value in metrics["accuracy_matrix"][-1]),
    }
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[key] for key in sorted(rows))
    write_text(path, table.getvalue())


def summary(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds of every preset × method × changes."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["preset"], row["method"], row["changes"]), []).append(row)
    table = []
    for (preset, method, changes), members in sorted(groups.items()):
        line: dict[str, Any] = {"preset": preset, "method": method, "changes": changes, "seeds": len(members)}
        line["label"] = f"{method} {changes}".rstrip()
        for name in NAMES:
            values = [float(row[name]) for row in members]
            line[name] = mean(values)
            line[f"{name}_std"] = stdev(values) if len(values) > 1 else None
        line["minutes"] = mean(float(row["seconds"]) for row in members) / 60
        line["kept_bytes"] = round(mean(int(row["kept_bytes"]) for row in members))
        table.append(line)
    return table
