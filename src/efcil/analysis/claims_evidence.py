"""What is known of each run: its row of the results, and its rows in the CSV files of figures, paired later by seed.

The numbers of figures live in results/figures/PRESET/figureN.csv, one file for all runs of a preset; its first columns
say which run each row is from. A row counts only for the very settings that it was made with; a row of the results of
an older version of the numerics, whose defaults were others, for those of the same name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from efcil.analysis.claims_measures import MEASURES, Measure
from efcil.bench.campaign import cells
from efcil.bench.results import Cell, Results, Row, all_seeds
from efcil.errors import UserError, unknown

FIGURES = Path("results/figures")
IDENTITY = ("method", "seed", "numerics", "config_digest")
MAKE = "efcil claims --runs RUNS"


class Run(NamedTuple):
    """Which of the runs of a method: its seed, and the version of the numerics that made it."""

    numerics: int
    seed: int


Values = dict[Run, float]


def figure_path(figures: Path, preset: str, figure: str) -> Path:
    return figures / preset / f"figure{figure}.csv"


def read_figure(path: Path) -> list[Row]:
    """The rows of a figure's CSV; none if there is no such file."""
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as the numbers of a figure ({error}).") from None
    whole = set(IDENTITY) <= set(reader.fieldnames or ()) and not any(
        None in row or None in row.values() or not (row["seed"].isdigit() and row["numerics"].isdigit()) for row in rows
    )
    if not whole:
        raise UserError(f"{path} is not a figure's table of runs; remove it and make it anew: {MAKE}")
    return rows


@dataclass
class Evidence:
    """Results and figures, as far as they are there."""

    results: Results
    figures: Path = FIGURES
    _cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    _files: dict[Path, list[Row]] = field(default_factory=dict)
    _runs: dict[tuple[str, str, str], dict[Run, list[Row]]] = field(default_factory=dict)

    def values(self, preset: str, method: str, name: str) -> Values:
        """A measure of this method on this preset for every run that has it."""
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
        measure = MEASURES[name]
        rows = self._rows(preset, method, measure.figure)
        found = {run: self._number(measure, own, preset) for run, own in rows.items()}
        return {run: number for run, number in found.items() if number is not None}

    def cell(self, preset: str, method: str) -> Cell:
        """What a run of this method is today; looked up once, since settings resolve slowly."""
        if (preset, method) not in self._cells:
            (self._cells[preset, method],) = cells([preset], [method], [0])
        return self._cells[preset, method]

    def has_figure(self, preset: str, figure: str) -> bool:
        return figure_path(self.figures, preset, figure).exists()

    def _number(self, measure: Measure, rows: list[Row], preset: str) -> float | None:
        try:
            return measure.of(rows)
        except (KeyError, ValueError) as error:
            where = figure_path(self.figures, preset, measure.figure) if measure.figure else "a row of the results"
            raise UserError(f"{where} lacks a number or has a wrong one ({error}); make it anew.") from None

    def _rows(self, preset: str, method: str, figure: str) -> dict[Run, list[Row]]:
        """The rows of a figure, or else of the results, by run; looked up once."""
        key = preset, method, figure
        if key not in self._runs:
            of = self._of_figure(preset, method, figure) if figure else self._of_results(preset, method)
            self._runs[key] = of
        return self._runs[key]

    def _of_results(self, preset: str, method: str) -> dict[Run, list[Row]]:
        today, older = all_seeds(self.results, self.cell(preset, method))
        return {run_of(row): [row] for row in (*today, *older)}

    def _of_figure(self, preset: str, method: str, figure: str) -> dict[Run, list[Row]]:
        path = figure_path(self.figures, preset, figure)
        if path not in self._files:
            self._files[path] = read_figure(path)
        digest = self.cell(preset, method).config_digest
        found: dict[Run, list[Row]] = {}
        for row in self._files[path]:
            if row["config_digest"] == digest:
                found.setdefault(run_of(row), []).append(row)
        return found


def run_of(row: Row) -> Run:
    return Run(int(row["numerics"]), int(row["seed"]))


def of_one_version(runs: Iterable[Run], enough: int) -> list[Run]:
    """Runs of different numerics are never mixed: those of the newest version that has enough, or else the most."""
    versions: dict[int, list[Run]] = {}
    for run in sorted(runs):
        versions.setdefault(run.numerics, []).append(run)
    return max(versions.values(), key=lambda own: (min(len(own), enough), own[0].numerics), default=[])
