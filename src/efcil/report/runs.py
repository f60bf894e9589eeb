"""What a page says of runs: one part per scenario, each with its numbers, its charts and how to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from efcil.bench.metrics import NAMES
from efcil.report.confusion import confusion_figure
from efcil.report.costs import memory, seconds
from efcil.report.details import RunDetails, absent, details
from efcil.report.drift import drift_figures
from efcil.report.figure import Figure
from efcil.report.found import Found, Run
from efcil.report.heatmap import Matrix
from efcil.report.lines import Curves, Series
from efcil.report.scenario import Entry, Scenario, common_changes, scenarios
from efcil.report.sections import Section, Tile
from efcil.report.spectrum import spectrum_figures
from efcil.report.table import Cell, Table, cell, size_cell


@dataclass(frozen=True)
class Part:
    """One scenario of the page."""

    name: str
    anchor: str
    lead: str
    facts: Sequence[str]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    details: Sequence[RunDetails]
    absent: Sequence[str] = field(default_factory=list)  # what older runs do not tell


def parts(found: Found, data_root: Path | None) -> list[Part]:
    return [part(scenario, place, data_root) for place, scenario in enumerate(scenarios(found.runs))]


def part(scenario: Scenario, place: int, data_root: Path | None) -> Part:
    prefix = f"part{place + 1}"
    text, shown, more, hints = drift_figures(scenario, data_root)
    made = [
        curves(scenario),
        comparison(scenario),
        matrices(scenario),
        confusion(scenario),
        forgetting(scenario),
        Section("spectrum", "Spectrum of the Empirical Feature Matrix", *spectrum_figures(scenario)),
        Section("drift", "Drift of prototypes", text, shown, more),
        seconds(scenario),
        memory(scenario),
        differences(scenario),
    ]
    sections = [
        Section(f"{prefix}-{s.anchor}", s.title, s.text, s.figures, s.more, s.tables)
        for s in made
        if s.figures or s.tables
    ]
    return Part(
        scenario.name,
        prefix,
        lead(scenario),
        facts(scenario),
        tiles(scenario),
        sections,
        [details(scenario, run, f"{prefix}-run{number + 1}") for number, run in enumerate(scenario.runs)],
        [*absent(scenario), *hints],
    )


# What comes first


def lead(scenario: Scenario) -> str:
    """The result in a sentence."""
    best, *others = scenario.ranked("per_step_accuracy")
    classes = sum(scenario.about.metrics["classes_per_task"])
    share = f"{best.value('per_step_accuracy'):.1f} %"
    text = f"After the last step {best.name} names {share} of the test images of all {classes} classes rightly"
    if others:
        text += f", {others[0].name} {others[0].value('per_step_accuracy'):.1f} %"
    if len(others) > 1:
        text += f", and {others[-1].name}, the last of {len(others) + 1}, {others[-1].value('per_step_accuracy'):.1f} %"
    bounds = [entry for entry in scenario.entries if entry.keeps_images and entry is not best]
    text += "".join(
        f"; {entry.name}, which keeps every image, {entry.value('per_step_accuracy'):.1f} %" for entry in bounds
    )
    return f"{text}."


def facts(scenario: Scenario) -> list[str]:
    """The scale of the runs, in a few words each."""
    config, metrics = scenario.about.config, scenario.about.metrics
    tasks = metrics["classes_per_task"]
    sizes = f"{tasks[0]} each" if len(set(tasks)) == 1 else " + ".join(map(str, tasks))
    network = {
        f"{run.config['classifier.backbone']} of width {run.config['classifier.width']}" for run in scenario.runs
    }
    epochs = {
        f"{run.config['classifier.first.epochs']} + {run.config['classifier.incremental.epochs']}"
        for run in scenario.runs
    }
    found = [
        f"image set {config.get('data.name')}",
        f"{sum(tasks)} classes in {len(tasks)} steps ({sizes})",
        f"{config.get('stream.kind')} start" if config.get("stream.kind") != "domain" else "one domain after the other",
    ]
    if config.get("data.images_per_class"):
        found.append(f"{config['data.images_per_class']} images per class")
    if config.get("data.held_out"):
        found.append(f"measured on {config['data.held_out']} training images per class that were set aside")
    found.append(" or ".join(sorted(network)))
    found.append(f"epochs of the first and of later tasks: {' or '.join(sorted(epochs))}")
    changes = common_changes(scenario.runs)
    if changes:
        found.append(f"changed of the preset: {', '.join(changes)}")
    seeds = sorted({run.seed for run in scenario.runs})
    found.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    numerics = {run.numerics for run in scenario.runs}
    if len(numerics) > 1:
        found.append(f"made with different numerics ({', '.join(map(str, sorted(numerics)))}): compare with care")
    return found


def tiles(scenario: Scenario) -> list[Tile]:
    """The four numbers of the run, or of the run that is best in each."""
    found = []
    for name, (symbol, meaning) in NAMES.items():
        best, *others = scenario.ranked(name)
        spread = best.spread(name)
        note = best.name + (f" ± {spread:.1f}" if spread is not None else "")
        if others:
            best_is = "lowest" if name == "average_forgetting" else "best"
            note = f"{best_is}: {note}; next {others[0].name} {others[0].value(name):.1f}"
        unit = "points" if name == "average_forgetting" else "%"
        found.append(Tile(symbol, f"{best.value(name):.1f}", unit, note, meaning))
    return found


# Sections


def comparison(scenario: Scenario) -> Section:
    """Every curve and every run with its numbers."""
    notes = dict(NAMES.values())
    symbols = [symbol for symbol, _ in NAMES.values()]
    several = any(len(entry.runs) > 1 for entry in scenario.entries)
    tables = []
    if several:
        rows = [
            [
                Cell(entry.name, entry.name, entry.style, place),
                cell(len(entry.runs)),
                *(mean_cell(entry, name) for name in NAMES),
                cell(sum(run.metrics["seconds"] for run in entry.runs) / len(entry.runs) / 60),
                size_cell(max(run.metrics["kept_bytes"] for run in entry.runs)),
            ]
            for place, entry in enumerate(scenario.entries)
        ]
        headings = ["method", "seeds", *symbols, "minutes", "kept"]
        tables.append(Table("Mean ± standard deviation over seeds", headings, rows, notes))
    rows = [
        [
            Cell(entry.name, entry.name, entry.style, place),
            cell(run.seed),
            *(cell(float(run.metrics[name]), 2) for name in NAMES),
            cell(run.metrics["seconds"] / 60),
            size_cell(run.metrics["kept_bytes"]),
        ]
        for place, entry in enumerate(scenario.entries)
        for run in entry.runs
    ]
    headings = ["method", "seed", *symbols, "minutes", "kept"]
    tables.append(Table("Every run" if len(rows) > 1 else "The run", headings, rows, notes))
    return Section("numbers", "Numbers", ["In percent, after the last step. A heading sorts the table."], tables=tables)


def mean_cell(entry: Entry, name: str) -> Cell:
    value, spread = entry.value(name), entry.spread(name)
    return Cell(f"{value:.1f}" + ("" if spread is None else f" ± {spread:.1f}"), value)


def curves(scenario: Scenario) -> Section:
    """The four numbers after every step, A_step in large."""
    figures = []
    for name, (symbol, meaning) in NAMES.items():
        series = [
            Series(entry.name, entry.per_step(name), entry.style, entry.spread_per_step(name))
            for entry in scenario.entries
        ]
        last = ", ".join(f"{s.name} {s.values[-1]:.1f}" for s in series)
        large = name == "per_step_accuracy"
        chart = Curves(
            f"{symbol} after each step",
            f"{meaning[0].upper()}{meaning[1:]}. After the last step: {last}.",
            "step",
            "points" if name == "average_forgetting" else "percent",
            scenario.steps,
            series,
            low=min(0.0, *(value for s in series for value in s.values if value is not None)),
            high=100.0 if large else None,
            most=None if name == "average_forgetting" else 100.0,
        )
        figures.append(chart.figure(wide=large))
    seeds = " Bands are one standard deviation over seeds." if any(len(e.runs) > 1 for e in scenario.entries) else ""
    return Section("curves", "Curves", [f"The pointer or the arrow keys show the values.{seeds}"], figures)


def shown_and_more(scenario: Scenario, draw: Any) -> tuple[list[Figure], list[Figure]]:
    """A figure of the first seed of every curve, and those of the other seeds."""
    drawn = [[draw(scenario.run_name(run), run) for run in entry.runs] for entry in scenario.entries]
    kept = [[figure for figure in figures if figure is not None] for figures in drawn]
    return [figures[0] for figures in kept if figures], [figure for figures in kept for figure in figures[1:]]


def matrices(scenario: Scenario) -> Section:
    text = ["Row: after learning this step. Column: accuracy on the test images of this task, in percent."]
    return Section("matrices", "Accuracy matrices", text, *shown_and_more(scenario, accuracy_matrix))


def accuracy_matrix(name: str, run: Run) -> Figure:
    matrix = run.metrics["accuracy_matrix"]
    steps = [str(step["step"]) for step in run.metrics["steps"]]
    text = [["" if value is None else f"{value:.1f}" for value in row] for row in matrix]
    shares = [[None if value is None else value / 100 for value in row] for row in matrix]
    worst = min(zip(matrix[-1], steps, strict=True))
    rows = [
        [cell(f"after {step}"), *(cell(None if value is None else float(value)) for value in row)]
        for step, row in zip(steps, matrix, strict=True)
    ]
    drawn = Matrix(
        name,
        f"Accuracy matrix of {name}; after the last step task {worst[1]} is known worst, with {worst[0]:.1f} percent.",
        "after step",
        "task",
        steps,
        steps,
        shares,
        text,
        "after step {row}, task {column}: {value} %",
    )
    return drawn.figure([Table(f"Accuracy matrix of {name}, percent", ["step", *(f"task {s}" for s in steps)], rows)])


def confusion(scenario: Scenario) -> Section:
    text = [
        "Row: the class of the test images, in the order of learning. Column: what they were taken for after the last "
        "step. Colours grow with the root of the share of the row; a stripe on the right is the pull of new classes."
    ]
    return Section("confusions", "Confusion matrices", text, *shown_and_more(scenario, confusion_matrix))


def confusion_matrix(name: str, run: Run) -> Figure | None:
    counts, classes = run.metrics.get("confusion_matrix"), run.classes
    if not counts or len(counts) != len(classes):
        return None
    ends = list(accumulate(run.metrics["classes_per_task"]))
    return confusion_figure(name, classes, counts, f"Confusion matrix of {name}", "test images", ends[:-1])


def forgetting(scenario: Scenario) -> Section:
    """How much of each task is lost at the end."""
    tasks = scenario.steps[:-1]
    if not tasks:
        return Section("forgetting", "Forgetting")
    series = [Series(entry.name, lost(entry), entry.style) for entry in scenario.entries]
    means = ", ".join(f"{entry.name} {entry.value('average_forgetting'):.1f}" for entry in scenario.entries)
    chart = Curves(
        "Lost of each task at the end",
        f"Best accuracy of the task before the last step minus that after it. In the mean over tasks: {means}.",
        "task",
        "points",
        tasks,
        series,
        low=min(0.0, *(value for s in series for value in s.values if value is not None)),
        joined=False,
    )
    text = ["The best accuracy that a task ever had before the last step, minus the one that it ends with (Eq. 22)."]
    return Section("forgetting", "Forgetting", text, [chart.figure()])


def lost(entry: Entry) -> list[float]:
    """For each old task its best past accuracy minus its last, the mean over seeds (Eq. 22)."""
    found = []
    for run in entry.runs:
        matrix = run.metrics["accuracy_matrix"]
        last = len(matrix) - 1
        found.append([max(row[task] for row in matrix[task:last]) - matrix[last][task] for task in range(last)])
    return [sum(values) / len(values) for values in zip(*found, strict=True)]


def differences(scenario: Scenario) -> Section:
    """Settings in which the curves differ, other than by what the preset says of each method."""
    found = scenario.differing()
    if not found or len(scenario.entries) < 2:
        return Section("differences", "Settings that differ")
    rows = [[cell(name), *(cell(told(value)) for value in values)] for name, values in found.items()]
    table = Table(
        "Settings that differ between the curves", ["setting", *(entry.name for entry in scenario.entries)], rows
    )
    text = [
        "All other settings are as the preset and the recipe of each method have them; each run below has its full "
        "list. A dash: the method has no such setting."
    ]
    return Section("differences", "Settings that differ", text, tables=[table])


def told(value: Any) -> str:
    return "–" if value is None else str(value)
