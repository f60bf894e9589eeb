"""The table of finished runs: one row each, small enough to be committed, so that a campaign goes on anywhere.

Every run has a record of its own, a small JSON file beside the table (``runs.records`` beside ``runs.csv``) that nobody
else writes: campaigns on one machine or on several can add to the same results, through a shared folder or through git.
The table is generated from the records; a row that only the table has, such as one from before there were records,
stays in it.

A row counts for a run only if it was made with the very settings the run has now and with today's numerics. Any other
row is stale: it is kept, and never in a mean with rows of another kind.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from efcil import __version__
from efcil.bench.metrics import NAMES
from efcil.bench.run_folder import run_name
from efcil.bench.scenarios import config_digest, deviations, resolve
from efcil.config import RunConfig
from efcil.engine import numerics
from efcil.engine.locks import locked
from efcil.engine.state import remove_partial, write_text
from efcil.errors import UserError

KEY = ("preset", "method", "changes", "seed")
IDENTITY = (*KEY, "numerics", "config_digest")  # what makes two rows two
MADE = ("preset", "method", "config_digest", "numerics")  # what two seeds of one cell have in common
MEASURED = (*NAMES, "kept_bytes", "accuracy_per_step", "accuracy_per_task")  # whatever machine and hour it was
FIRST_COLUMNS = (*KEY, "settings", *NAMES, "seconds", "kept_bytes", "version", "accuracy_per_step", "accuracy_per_task")
COLUMNS = (*FIRST_COLUMNS, "config_digest", "numerics")
UNRECORDED = {"config_digest": "", "numerics": "1"}  # tables of numerics version 1 had neither column
Row = dict[str, str]
Results = dict[tuple[str, ...], Row]


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
    def config(self) -> RunConfig:
        """What the preset, the method's recipe and the changes come to."""
        return resolve(self.preset, self.method, self.seed, self.changes)

    @cached_property
    def settings(self) -> str:
        """What of it differs from the defaults, for people to read."""
        return deviations(self.config)

    @cached_property
    def config_digest(self) -> str:
        return config_digest(self.config)

    @property
    def identity(self) -> tuple[str, ...]:
        """The row that this run would have if it were made now."""
        return *self.key, str(numerics.VERSION), self.config_digest

    @property
    def name(self) -> str:
        """A readable name, of its folder for one."""
        return run_name(self.preset, self.config, self.changes)

    @property
    def label(self) -> str:
        return " ".join([self.method, *self.changes])


# Reading


def read_results(path: Path) -> Results:
    """All rows, of the table and of the records beside it; none when there is nothing yet."""
    rows = _read_table(path) if path.exists() else {}
    for record in sorted(records_folder(path).glob("*.json")):
        row = _read_record(record)
        rows[_identity(row)] = row
    return rows


def read_existing_results(path: Path) -> Results:
    """All rows of results that must be there, as a table or as records."""
    if not path.exists() and not records_folder(path).exists():
        raise UserError(
            f"There is no results file {path}; name yours with --results, or make rows, such as: efcil bench "
            f"--presets cifar100-cold10-fast --methods efc++ efc --seeds 0-2 --results {path}"
        )
    return read_results(path)


def _read_table(path: Path) -> Results:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark before the first column
        lines = list(csv.reader(io.StringIO(text)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a table of efcil results ({error}).") from None
    columns = tuple(lines[0]) if lines else ()
    if columns not in (COLUMNS, FIRST_COLUMNS):
        raise UserError(f"{path} is not a table of efcil results; choose another --results file.")
    rows: Results = {}
    for number, line in enumerate(lines[1:], start=2):
        if line:
            if len(line) != len(columns):
                raise UserError(
                    f"{path}, line {number}, has {len(line)} cells instead of {len(columns)}; put it right."
                )
            row = {**UNRECORDED, **dict(zip(columns, line, strict=True))}
            _check(row, f"{path}, line {number},")
            rows[_identity(row)] = row
    return rows


def _read_record(path: Path) -> Row:
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"The record {path} cannot be read ({error}); remove it to run that cell anew.") from None
    if not isinstance(row, dict) or set(row) != set(COLUMNS) or not all(isinstance(v, str) for v in row.values()):
        raise UserError(f"{path} is not the record of a run; remove it, or restore it from a copy.")
    _check(row, f"The record {path}")
    return row


def _check(row: Row, where: str) -> None:
    """Numbers must be numbers, whoever edited the file."""
    for name in (*NAMES, "seconds", "seed", "kept_bytes", "numerics"):
        try:
            value = float(row[name]) if name in (*NAMES, "seconds") else int(row[name])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"{where} has {row[name]!r} where the number {name} should be; put it right.")


def _identity(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in IDENTITY)


# Writing


def records_folder(path: Path) -> Path:
    return path.with_suffix(".records")


def record_path(path: Path, cell: Cell) -> Path:
    """The record of this run as it would be made now; the digest at the end tells all runs apart."""
    digest = hashlib.sha256(json.dumps(cell.identity).encode()).hexdigest()[:12]
    return records_folder(path) / f"{cell.name}_{digest}.json"


def append_result(path: Path, cell: Cell, metrics: Mapping[str, Any]) -> None:
    """Write the record of this run, and the table anew from all records.

    A row that has these numbers already stays as it is, with the time that it took the first time: a run made again for
    its states has nothing new to say.
    """
    row = {
        **dict(zip(IDENTITY, cell.identity, strict=True)),
        "settings": cell.settings,
        **{name: f"{metrics[name]:.4f}" for name in NAMES},
        "seconds": f"{metrics['seconds']:.0f}",
        "kept_bytes": str(metrics["kept_bytes"]),
        "version": __version__,
        "accuracy_per_step": " ".join(f"{step['per_step_accuracy']:.2f}" for step in metrics["steps"]),
        "accuracy_per_task": " ".join(f"{value:.2f}" for value in metrics["accuracy_matrix"][-1]),
    }
    there = read_results(path).get(cell.identity)
    if there is None or any(there[name] != row[name] for name in MEASURED):
        ordered = {name: row[name] for name in COLUMNS}
        write_text(record_path(path, cell), json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    write_table(path)


def write_table(path: Path) -> None:
    """Generate the table; one process at a time, so that the last one to write has seen every record."""
    with locked(records_folder(path) / ".lock"):
        rows = read_results(path)
        table = io.StringIO()
        writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[identity] for identity in sorted(rows))
        remove_partial(path.parent, f"{path.name}.")  # of a process that was killed
        write_text(path, table.getvalue())


def complete_table(path: Path) -> None:
    """Generate the table if a record is not in it, as after a process that was stopped between the two."""
    recorded = [_identity(_read_record(record)) for record in records_folder(path).glob("*.json")]
    if recorded and not set(recorded) <= (_read_table(path) if path.exists() else {}).keys():
        write_table(path)


# Choosing


def rows_of(results: Results, cells: Iterable[Cell]) -> list[Row]:
    """The rows of those cells that were run with the settings they have now and with today's numerics."""
    return [row for cell in cells if (row := results.get(cell.identity))]


def stale_rows(results: Results, cells: Iterable[Cell]) -> list[Row]:
    """The other rows of these cells: made with other settings, other defaults or another numerics version."""
    wanted = {cell.key: cell.identity for cell in cells}
    return [row for identity, row in sorted(results.items()) if wanted.get(identity[:4], identity) != identity]


def planned(results: Results, cells: Iterable[Cell], waiting: Collection[Cell]) -> list[dict[str, Any]]:
    """What a campaign would do with each cell, run those that wait, and every stale row with what makes it stale."""
    plan = []
    for cell in cells:
        status = "to run" if cell in waiting else "done"
        status += ": its states are not kept" if cell in waiting and rows_of(results, [cell]) else ""
        plan.append({"preset": cell.preset, "method": cell.label, "seed": cell.seed, "status": status})
        for row in stale_rows(results, [cell]):
            version = int(row["numerics"])
            why = f"numerics {version}, now {numerics.VERSION}" if version != numerics.VERSION else "other settings"
            plan.append({**plan[-1], "status": f"stale: {why}"})
    return plan


def newest_rows(results: Results, cells: Iterable[Cell]) -> list[Row]:
    """For tables: of each method the rows that count now or, where there are none, those of the newest older numerics.

    Of older rows with several settings those that are called the same today are taken, or else the most numerous.
    """
    lines: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        lines.setdefault(cell.key[:3], []).append(cell)
    found: list[Row] = []
    for members in lines.values():
        current = rows_of(results, members)
        older = [row for row in stale_rows(results, members) if int(row["numerics"]) < numerics.VERSION]
        if not current and older:
            newest = max(int(row["numerics"]) for row in older)
            alike: dict[str, list[Row]] = {}
            for row in older:
                if int(row["numerics"]) == newest:
                    alike.setdefault(row["settings"], []).append(row)
            current = alike.get(members[0].settings) or max(alike.values(), key=len)
        found += current
    return found


def all_seeds(results: Results, cell: Cell) -> tuple[list[Row], list[Row]]:
    """The rows of a cell with whatever seed: today's, in whatever way their settings are written, and older ones.

    The defaults of older numerics were others, so that theirs are the rows of the same name.
    """
    made = cell.preset, cell.method, cell.config_digest, str(numerics.VERSION)
    today = [row for row in results.values() if tuple(row[name] for name in MADE) == made]
    older = {key: row for key, row in results.items() if int(row["numerics"]) < numerics.VERSION}
    seeds = sorted({int(key[3]) for key in older if key[:3] == cell.key[:3]})
    once = {row["seed"]: row for row in today}
    return list(once.values()), newest_rows(older, [replace(cell, seed=seed) for seed in seeds])


def summary(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds of every preset × method × changes; rows of different making are never mixed."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        made = (row["numerics"], row["config_digest"] or row["settings"])
        groups.setdefault((row["preset"], row["method"], row["changes"], *made), []).append(row)
    table = []
    ordered = sorted(groups.items(), key=lambda item: [by_number(part) for part in item[0]])
    for (preset, method, changes, version, _), members in ordered:
        line: dict[str, Any] = {"preset": preset, "method": method, "changes": changes, "seeds": len(members)}
        line |= {"label": f"{method} {changes}".rstrip(), "numerics": int(version)}
        for name in NAMES:
            values = [float(row[name]) for row in members]
            line[name] = mean(values)
            line[f"{name}_std"] = stdev(values) if len(values) > 1 else None
        line["minutes"] = mean(float(row["seconds"]) for row in members) / 60
        line["kept_bytes"] = round(mean(int(row["kept_bytes"]) for row in members))
        table.append(line)
    return table


def by_number(text: str) -> list[tuple[str, float]]:
    """What to sort by, so that 2 comes before 16: every number with the text before it."""
    pieces = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    return [(before, float(number)) for before, number in zip(pieces[::2], [*pieces[1::2], "-1"], strict=True)]
