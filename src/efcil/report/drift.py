"""How far class means move, and prototypes are from them, in runs that kept their states (Figs. 5 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from efcil.analysis.mean_drift import mean_drifts
from efcil.analysis.measured import average, spread
from efcil.analysis.prototype_distance import prototype_distances
from efcil.analysis.runs import Asked, has_class_means, has_efm, read_runs
from efcil.analysis.runs import Run as KeptRun
from efcil.bench.states import FOLDER
from efcil.errors import UserError
from efcil.report.details import some
from efcil.report.figure import Figure
from efcil.report.found import Run
from efcil.report.lines import Curves, Series
from efcil.report.scenario import Entry, Scenario

FIXED = 3  # the style of prototypes that stay as they were learnt

TEXT = (
    "Prototypes: how far they are from the true means of their classes in the later steps, as they were learnt and as "
    "the method has moved them (Fig. 9). Class means: how far those of new classes move along E_t while learnt "
    "(Eq. 20, Fig. 5)."
)


def drift_figures(
    scenario: Scenario, data_root: Path | None
) -> tuple[list[str], list[Figure], list[Figure], list[str]]:
    """Sentences, figures of the first seed of each curve, those of the others, and what is in the way."""
    if len(scenario.steps) < 2:
        return [], [], [], []  # nothing has moved yet
    with_states = [run for run in scenario.runs if (run.folder / FOLDER).is_dir()]
    kept = [run for run in with_states if shows(run, has_class_means)]
    hints = []
    if silent := dict.fromkeys(run.method for run in with_states if run not in kept):
        hints.append(f"Not in the drift of prototypes: {', '.join(silent)}, which does not show class means.")
    if without := [run for run in scenario.runs if run not in with_states and shows(run, has_class_means)]:
        told = f"The drift of prototypes is not shown of {some(scenario, without)}, whose states were not kept"
        hints.append(f"{told} (efcil run … --keep-states).")
    try:
        read = {run.folder: one for run in kept for one in read_runs([run.folder])}
        drawn = {run.folder: distance_figure(scenario, run, read[run.folder], data_root) for run in kept}
        efms = {run.folder: read[run.folder] for run in kept if shows(run, has_efm)}
        moved = [along_efm(scenario, efms, data_root)] if efms else []
    except UserError as error:  # images that are not at hand, or states that are not whole
        return [], [], [], [*hints, f"The drift of prototypes could not be computed: {error}"]
    first = [[run.folder for run in entry.runs if run in kept] for entry in scenario.entries]
    shown = [drawn[folders[0]] for folders in first if folders]
    more = [drawn[folder] for folders in first for folder in folders[1:]]
    return [TEXT] if shown else [], [*shown, *moved], more, hints


def shows(run: Run, check: Callable[[Asked], None]) -> bool:
    try:
        check(run)
    except UserError:  # also of a method that is not at hand
        return False
    return True


def distance_figure(scenario: Scenario, run: Run, kept: KeptRun, data_root: Path | None) -> Figure:
    """‖μ − p‖ of the classes of each step, in the mean over all later steps."""
    rows = prototype_distances([kept], data_root)
    style = next(entry.style for entry in scenario.entries if run in entry.runs)
    series = [
        Series("as they were learnt", [row["fixed"] for row in rows], FIXED, dashed=True),
        Series("as they were moved", [row["updated"] for row in rows], style),
    ]
    means = ", ".join(f"{s.name} {sum(v for v in s.values if v is not None) / len(rows):.2f}" for s in series)
    chart = Curves(
        f"Prototypes of {scenario.run_name(run)}",
        f"Mean distance of prototypes to the true class means: {means}.",
        "classes of step",
        "distance ‖μ − p‖",
        [str(row["classes_of_step"]) for row in rows],
        series,
        low=0.0,
        decimals=2,
    )
    return chart.figure()


def along_efm(scenario: Scenario, read: dict[Path, KeptRun], data_root: Path | None) -> Figure:
    """Δ of Eq. 20 of every task from the second on, a curve each, the mean over seeds."""
    tasks = scenario.steps[1:]
    series = []
    for entry in scenario.entries:
        lists = drifts_of(entry, read, data_root)
        if lists:
            seeds = f" ({len(lists)} of {len(entry.runs)} seeds)" if len(lists) < len(entry.runs) else ""
            series.append(Series(f"{entry.name}{seeds}", average(lists), entry.style, spread(lists)))
    last = ", ".join(f"{s.name} {s.values[-1]:.2g}" for s in series)
    chart = Curves(
        "Class means along E_t",
        f"How far the means of the classes of a task move along E_t while it is learnt. In the last task: {last}.",
        "task",
        "drift Δ",
        tasks,
        series,
        low=0.0,
        told=lambda value: f"{value:.3g}",
    )
    return chart.figure()


def drifts_of(entry: Entry, read: dict[Path, KeptRun], data_root: Path | None) -> Sequence[Sequence[float]]:
    return [
        [row["drift"] for row in mean_drifts([read[run.folder]], data_root)] for run in entry.runs if run.folder in read
    ]
