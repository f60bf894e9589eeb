"""What fills a table: the paper's numbers and, beside them, ours from the results of campaigns.

A cell is never guessed: what was not run is left out. Rows of different making are never in one mean: a cell has the
rows that count today or, where there are none, those of the newest older numerics, and then it is stale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from efcil.analysis.tables.layouts import LAYOUTS, Block, Column, Group, Layout
from efcil.analysis.tables.layouts import Row as LayoutRow
from efcil.bench.campaign import method_and_changes
from efcil.bench.published import Place, number_at, run_of
from efcil.bench.results import Cell, Results, Row, newest_rows, summary
from efcil.bench.scenarios import DOMAINS, Scenario, preset_names, resolve, scenario_of
from efcil.engine import numerics
from efcil.errors import UserError
from efcil.methods import method_class

PAPER = "paper"
Run = tuple[str, tuple[str, ...]]  # a method and its changes
COLUMNS_OF = {
    "A_step": "per_step_accuracy",
    "A_inc": "average_incremental_accuracy",
    "F": "average_forgetting",
    "PL": "plasticity",
}
LESS_IS_BETTER = {"F"}
DN4IL = Scenario("dn4il", "cold", DOMAINS)


class Shown(NamedTuple):
    """A number as it is shown."""

    mean: str
    std: str = ""
    rank: int = 0  # 1 the best, 2 the second, 0 any other


class Runs(NamedTuple):
    """The rows behind one cell of ours, all of one making, and their mean and spread."""

    rows: list[Row]
    line: dict[str, Any]

    @property
    def stale(self) -> bool:
        return bool(self.line["numerics"] != numerics.VERSION)


@dataclass(frozen=True)
class PresetRuns:
    """What the results have of one preset, for the rows of one table."""

    preset: str
    source: str  # the heading of its columns
    scenario: Scenario  # that of the paper which it stands for
    runs: Mapping[str, Runs] = field(default_factory=dict)  # by row of the table
    left_out: int = 0  # rows with other settings than the preset has, or of an older making than those shown


class SourceColumn(NamedTuple):
    """A printed column, once for the paper and once for each size of ours."""

    group: Group
    column: Column
    source: str


@dataclass(frozen=True)
class Comparison:
    """A table of the paper with ours beside it."""

    table: int
    layout: Layout
    presets: Sequence[PresetRuns]
    shown: Mapping[tuple[str, Place], Shown]

    @property
    def sources(self) -> list[str]:
        return [PAPER, *dict.fromkeys(preset.source for preset in self.presets)]

    def columns(self, groups: Iterable[Group]) -> list[SourceColumn]:
        """The columns of these groups; a size of ours has one wherever one of its presets belongs."""
        return [
            SourceColumn(group, column, source)
            for group in groups
            for column in group.columns
            for source in self.sources
            if source == PAPER or any(self.preset_at(source, place) for place in self._down(group, column))
        ]

    def panels(self) -> list[list[Group]]:
        """The groups of columns under one heading, such as warm and cold start in Table 2, which paper has room for."""
        return [list(groups) for _, groups in groupby(self.layout.groups, key=lambda group: group.above)]

    def at(self, block: Block, row: LayoutRow, column: SourceColumn) -> Shown | None:
        """The number in a cell; none: blank."""
        place = self.layout.place(block, row, column.group, column.column)
        return self.shown.get((column.source, place))

    def without_runs(self) -> list[str]:
        """The rows that neither the paper nor ours have a number for."""
        filled = {place.row for _, place in self.shown}
        return [row for row in dict.fromkeys(place.row for place in self.layout.places()) if row not in filled]

    def _down(self, group: Group, column: Column) -> list[Place]:
        return [self.layout.place(block, row, group, column) for block in self.layout.blocks for row in block.rows]

    def preset_at(self, source: str, place: Place) -> PresetRuns | None:
        """The preset of this source whose runs stand at this place."""
        here = (preset for preset in self.presets if preset.source == source and key(preset.scenario) == place[:3])
        return next(here, None)


def compared(table: int, presets: Sequence[str], results: Results, methods: Sequence[str] = ()) -> Comparison:
    """The table with the runs of these presets or, without any, of all that the results have and that fit.

    Methods, as `efcil bench` takes them, are rows below the paper's, unless the table has them already. A reader looks
    for the best of a column in all of it, so they take part in the best and the second of ours.
    Where nothing at all was run, ours have no columns, which would all be blank.
    """
    runs = {row: method_and_changes(run_of(row)) for row in dict.fromkeys(p.row for p in LAYOUTS[table].places())}
    added = {" ".join([method, *changes]): (method, changes) for method, changes in map(method_and_changes, methods)}
    added = {row: run for row, run in added.items() if run not in runs.values()}
    layout, runs = LAYOUTS[table].with_methods(list(added)), runs | added
    places = layout.places()
    chosen = named(fitting(table, presets, places, runs.values(), results))
    for method, changes in added.values():
        resolve(chosen[0].preset, method, 0, changes)  # a wrong name is said, whether it has rows or not
    filled = [_with_runs(preset, runs, results) for preset in chosen] if results else []
    shown = {(PAPER, place): Shown(*number) for place in places if (number := number_at(table, place))}
    for preset in filled:
        for place in places:
            if place[:3] == key(preset.scenario) and (ours := _ours(preset, place)):
                shown[preset.source, place] = ours
    unfair = {row for row, (method, _) in runs.items() if not method_class(method).exemplar_free}
    return Comparison(table, layout, filled, ranked(shown, unfair))


# Which presets


def key(scenario: Scenario) -> tuple[str, str, int | None]:
    return scenario.data, scenario.start, scenario.steps


def stands_for(preset: str) -> Scenario | None:
    """The scenario of the paper that a preset is; a folder of domains stands beside DN4IL."""
    scenario = scenario_of(preset)
    if scenario == Scenario("domains", "cold", 0):
        return DN4IL
    return scenario if scenario.in_paper else None


def fitting(
    table: int, presets: Sequence[str], places: Sequence[Place], runs: Iterable[Run], results: Results
) -> list[str]:
    """The presets asked for, each checked; or those with rows in the results; or, without any, those of full size."""
    wanted = {place[:3] for place in places}

    def fits(preset: str) -> bool:
        scenario = stands_for(preset)
        return scenario is not None and key(scenario) in wanted

    packaged = [preset for preset in preset_names() if fits(preset)]
    for preset in presets:
        if not fits(preset):
            raise UserError(
                f"Table {table} has no column for the preset {preset} ({scenario_of(preset)}); "
                f"presets that fit: {', '.join(packaged)}."
            )
    if presets:
        return list(dict.fromkeys(presets))
    entries = {(method, " ".join(changes)) for method, changes in runs}
    run = {identity[0] for identity in results if (identity[1], identity[2]) in entries}
    return [preset for preset in packaged if preset in run] or [
        preset for preset in packaged if size_of(preset) == "full size" and scenario_of(preset).in_paper
    ]


def size_of(preset: str) -> str:
    """What a preset's name adds to that of its scenario: ``cpu`` of cifar100-cold10-cpu; none: full size."""
    scenario = scenario_of(preset)
    data = scenario.data.replace("imagenet-1k", "imagenet1k")
    whole = data if scenario.data in ("dn4il", "domains") else f"{data}-{scenario.start}{scenario.steps}"
    name = Path(preset).stem if preset.endswith((".yaml", ".yml")) else preset
    if not name.startswith(whole):
        return name
    return name.removeprefix(whole).strip("-") or ("domains" if scenario.data == "domains" else "full size")


def named(presets: Sequence[str]) -> list[PresetRuns]:
    """Each preset with the heading of its columns: presets of one size share them, two of one scenario never do."""
    sizes = {preset: size_of(preset) for preset in presets}
    taken: set[tuple[str, Scenario]] = set()
    found = []
    for preset in presets:
        scenario = stands_for(preset)
        assert scenario is not None  # fitting() has seen to it
        size = sizes[preset] if (sizes[preset], scenario) not in taken else preset
        taken.add((size, scenario))
        found.append(PresetRuns(preset, size, scenario))
    one = len({preset.source for preset in found}) == 1
    alone = one and all(scenario_of(preset.preset) == preset.scenario for preset in found)  # another set says which
    return [replace(preset, source="ours" if alone else f"ours, {preset.source}") for preset in found]


# Their numbers


def _with_runs(preset: PresetRuns, wanted: Mapping[str, Run], results: Results) -> PresetRuns:
    runs: dict[str, Runs] = {}
    left_out = {}
    for row, (method, changes) in wanted.items():
        cell = Cell(preset.preset, method, changes, seed=0)
        there = [identity for identity in results if identity[:3] == cell.key[:3]]
        newest = newest_rows(results, [replace(cell, seed=seed) for seed in sorted({int(key[3]) for key in there})])
        alike: dict[tuple[str, str], list[Row]] = {}
        for found in newest:
            alike.setdefault((found["numerics"], found["config_digest"] or found["settings"]), []).append(found)
        if alike:
            own = max(alike.values(), key=len)
            (line,) = summary(own)
            runs[row] = Runs(own, line)
        left_out[cell.key[:3]] = len(there) - (len(runs[row].rows) if row in runs else 0)
    return replace(preset, runs=runs, left_out=sum(left_out.values()))


def _ours(preset: PresetRuns, place: Place) -> Shown | None:
    if place.metric == "delta":
        if place.row in ("Fixed / Fixed", "Joint Training"):  # the paper gives them none
            return None
        gained = gain(preset.runs.get(place.row), preset.runs.get("Fixed / Fixed"))
        return None if gained is None else Shown(f"{gained:+.2f}")
    if place.row not in preset.runs:
        return None
    line, name = preset.runs[place.row].line, COLUMNS_OF[place.metric]
    spread = line[f"{name}_std"]
    return Shown(f"{line[name]:.2f}", "" if spread is None else f"{spread:.2f}")


def gain(runs: Runs | None, fixed: Runs | None) -> float | None:
    """By how much A_step is above that of fixed statistics: the mean over the seeds that both have."""
    if runs is None or fixed is None or runs.line["numerics"] != fixed.line["numerics"]:
        return None
    before = {row["seed"]: float(row["per_step_accuracy"]) for row in fixed.rows}
    gains = [float(row["per_step_accuracy"]) - before[row["seed"]] for row in runs.rows if row["seed"] in before]
    return mean(gains) if gains else None


def ranked(shown: Mapping[tuple[str, Place], Shown], unfair: Collection[str] = ()) -> dict[tuple[str, Place], Shown]:
    """The numbers with the best and the second of each contest: rows of one scenario, one metric and one source.

    Rows of methods that are given all images again are out of competition.

    In Tables 6, 9 and 10 a contest is a block, in Table 5 a pair in a row, elsewhere a column. Of two there is no
    second, and what stands alone has won nothing.
    """
    contests: dict[tuple[str, Place], list[tuple[str, Place]]] = {}
    for source, place in shown:
        if place.metric != "delta" and place.row not in unfair and shown[source, place].mean != "-":
            contests.setdefault((source, place._replace(row="")), []).append((source, place))
    found = dict(shown)
    for members in contests.values():
        better = 1 if members[0][1].metric in LESS_IS_BETTER else -1
        values = sorted({better * float(shown[member].mean) for member in members})
        for member in members if len(members) > 1 else []:
            place_in = values.index(better * float(shown[member].mean)) + 1
            if place_in == 1 or (place_in == 2 and len(members) > 2):
                found[member] = shown[member]._replace(rank=place_in)
    return found
