"""The numbers of figures that claims rest on, gathered from finished runs into results/figures.

For every preset and figure there is one CSV with the rows of all runs, seed by seed, and one picture. What a file has
already is not made again, so that runs can be added as they end.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from efcil.analysis.claims import methods_of, presets_of, with_settings
from efcil.analysis.claims_commands import figures_of, to_run
from efcil.analysis.claims_evidence import IDENTITY, figure_path, read_figure
from efcil.analysis.matrices import draw as draw_matrices
from efcil.analysis.matrices import matrices
from efcil.analysis.mean_drift import draw as draw_mean_drift
from efcil.analysis.mean_drift import mean_drifts
from efcil.analysis.perturbation import draw as draw_perturbation
from efcil.analysis.perturbation import perturbation
from efcil.analysis.potential import draw as draw_potential
from efcil.analysis.potential import potential
from efcil.analysis.prototype_distance import draw as draw_prototype_distance
from efcil.analysis.prototype_distance import prototype_distances
from efcil.analysis.runs import Run
from efcil.analysis.spectrum import draw as draw_spectrum
from efcil.analysis.spectrum import spectra
from efcil.analysis.style import Rows, as_csv, pyplot
from efcil.analysis.training_time import draw as draw_training_time
from efcil.analysis.training_time import training_times
from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.engine.state import write_text
from efcil.errors import UserError

Make = Callable[[Sequence[Run], Path | None], Rows]
FIGURES: dict[str, tuple[Make, Callable[[Rows], Any]]] = {
    "1": (potential, draw_potential),
    "3": (perturbation, draw_perturbation),
    "4": (lambda runs, _: matrices(runs), draw_matrices),
    "5": (mean_drifts, draw_mean_drift),
    "9": (prototype_distances, draw_prototype_distance),
    "10": (lambda runs, _: spectra(runs), draw_spectrum),
    "12": (lambda runs, _: training_times(runs), draw_training_time),
}
TOGETHER = ("1",)  # all runs of a seed make the figure; the others are made run by run
FIRST_SEED = ("4", "10")  # drawn from one seed: their pictures are of one run, or of one per method


def wanted(claims: Iterable[Mapping[str, Any]], scales: Sequence[str]) -> dict[tuple[str, str], dict[str, str]]:
    """For every preset and figure that claims need: the methods, by the digest of their settings."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for claim in claims:
        for figure in figures_of(claim):
            for preset in [preset for scale in scales for preset in presets_of(claim, scale)]:
                listed = expanded([*methods_of(claim), *to_run(claim)])
                names = [with_settings(name, claim) for name in listed]
                for cell, name in zip(cells([preset], names, [0]), names, strict=True):
                    found.setdefault((preset, figure), {}).setdefault(cell.config_digest, name)
    return found


def gather(
    runs: Sequence[Run],
    claims: Iterable[Mapping[str, Any]],
    scales: Sequence[str],
    figures: Path,
    data_root: Path | None,
) -> Iterator[str]:
    """Add what these runs tell to the CSV files, and say in a line each what was made and what could not be."""
    all_wanted = wanted(claims, scales)
    digests = {digest for methods in all_wanted.values() for digest in methods}
    if not any(run.metrics.get("config_digest") in digests for run in runs):
        yield f"None of {len(runs)} runs is one that a figure of these claims needs; they are of others, or changed."
    for (preset, figure), methods in all_wanted.items():
        path = figure_path(figures, preset, figure)
        there = {key_of(row) for row in read_figure(path)}
        own = [
            replace(run, label=methods[digest])
            for run in runs
            if run.metrics["preset"] == preset and (digest := run.metrics.get("config_digest", "")) in methods
        ]
        said = []
        each = {key_of(about(run)): run for run in own}  # once, whatever the number of copies
        for group in groups(list(each.values()), figure):
            if all(key_of(about(run)) in there for run in group):
                continue
            try:
                rows = rows_of(group, figure, data_root)
            except UserError as error:
                yield f"Figure {figure} leaves out a run. {error}"
                continue
            made = {key_of(row) for row in rows}
            everything = [*(row for row in read_figure(path) if key_of(row) not in made), *rows]
            write_text(path, as_csv(sorted(everything, key=lambda row: (row["method"], int(row["seed"])))))
            said += [f"{run.label}, seed {run.seed}" for run in group]
        if said:
            draw(path, figure, methods)
            yield f"{path}: {'; '.join(said)}"


def groups(runs: Sequence[Run], figure: str) -> list[list[Run]]:
    """The runs that are given to a figure at once."""
    if figure not in TOGETHER:
        return [[run] for run in runs]
    return [[run for run in runs if run.seed == seed] for seed in dict.fromkeys(run.seed for run in runs)]


def rows_of(runs: Sequence[Run], figure: str, data_root: Path | None) -> Rows:
    """The rows of a figure, each with the run that it is from in the first columns."""
    by_name = {run.folder.name: run for run in runs}
    rows: Rows = []
    for row in FIGURES[figure][0](runs, data_root):
        run = by_name[row["run"]] if len(runs) > 1 else runs[0]
        rest = {name: value for name, value in row.items() if name not in ("run", *IDENTITY)}
        rows.append({**about(run), **rest})
    return rows


def about(run: Run) -> dict[str, str]:
    """Which run it is, in the columns that every row begins with."""
    version, digest = str(run.metrics.get("numerics", 1)), str(run.metrics["config_digest"])
    return dict(zip(IDENTITY, (run.label, str(run.seed), version, digest), strict=True))


def key_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells runs apart; the method's name does not, since settings can be written in several ways."""
    return tuple(str(row[name]) for name in IDENTITY[1:])


def draw(path: Path, figure: str, digests: Container[str]) -> None:
    """The picture of a figure's CSV, beside it: of runs with these digests, each method in its newest numerics."""
    rows = [
        {name: number(value) for name, value in row.items()}
        for row in read_figure(path)
        if row["config_digest"] in digests
    ]
    newest = {row["method"]: row["numerics"] for row in sorted(rows, key=lambda row: row["numerics"])}
    rows = [row for row in rows if row["numerics"] == newest[row["method"]]]
    if figure in FIRST_SEED:
        first = {row["method"]: row["seed"] for row in reversed(rows)}
        rows = [row for row in rows if row["seed"] == first[row["method"]]]
    for row in rows:
        row["method"] = textwrap.fill(row["method"].replace(",", ", "), 40)
        row["run"] = f"{row['method']}, seed {row['seed']}"
        row["preset"] = path.parent.name
    picture = FIGURES[figure][1](rows)
    try:
        picture.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    except OSError as error:
        raise UserError(f"{path.with_suffix('.svg')} cannot be written ({error.strerror}).") from None
    finally:
        pyplot().close(picture)


def number(text: str) -> Any:
    """What a cell of the CSV says: a whole number, a number, nothing, or a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
