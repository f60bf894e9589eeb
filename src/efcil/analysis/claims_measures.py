"""The numbers that claims compare, each with where it stands: in the row of a run, or in its rows of a figure's CSV.

A figure's CSV has many rows for one run; a measure makes one number of them, so that runs can be paired by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from efcil.analysis.training_time import SHOWN

Row = Mapping[str, str]
Choice = Callable[[Row], bool]


@dataclass(frozen=True)
class Measure:
    """A number of one run; ``figure`` is empty where the run's row of the results has it."""

    of: Callable[[Sequence[Row]], float | None]  # None where these rows do not tell it
    figure: str = ""
    digits: str = ".1f"


def averaged(column: str, chosen: Choice = lambda row: True) -> Callable[[Sequence[Row]], float | None]:
    """The mean of a column over the rows that are chosen."""

    def of(rows: Sequence[Row]) -> float | None:
        values = [float(row[column]) for row in rows if chosen(row)]
        return mean(values) if values else None

    return of


def ratio(
    above: Callable[[Sequence[Row]], float | None], below: Callable[[Sequence[Row]], float | None]
) -> Callable[[Sequence[Row]], float | None]:
    def of(rows: Sequence[Row]) -> float | None:
        first, second = above(rows), below(rows)
        return None if first is None or not second else first / second

    return of


# Results


def per_task(rows: Sequence[Row], part: slice) -> float | None:
    """The mean accuracy on these tasks after the last step."""
    values = [float(value) for value in rows[0]["accuracy_per_task"].split()[part]]
    return mean(values) if values else None


# Figure 3


def noisy(panel: str, direction: str, measure: str) -> Choice:
    """The rows with noise of whatever strength; or without any, where the direction is ``clean``."""

    def chosen(row: Row) -> bool:
        strength = float(row["strength"])
        here = strength == 0 if direction == "clean" else strength > 0 and row["direction"] == direction
        return here and (row["panel"], row["measure"]) == (panel, measure)

    return chosen


# Figures 4, 5 and 12: by the halves of the stream


def half(rows: Sequence[Row], later: bool) -> list[Row]:
    """The rows of the steps in the first half of those that are there, or in the second."""
    steps = sorted({int(row["step"]) for row in rows})
    middle = steps[(len(steps) - 1) // 2] if steps else 0
    return [row for row in rows if (int(row["step"]) > middle) == later]


def lost_per_step(later: bool) -> Callable[[Sequence[Row]], float | None]:
    """How many points a task loses in each step after its own, mean over the first half of the tasks or the second."""

    def of(rows: Sequence[Row]) -> float | None:
        accuracy = {(int(row["step"]), int(row["task"])): float(row["accuracy"]) for row in rows}
        last = max(step for step, _ in accuracy)
        tasks = sorted({task for _, task in accuracy})
        half = len(tasks) // 2
        chosen = [task for task in (tasks[half:] if later else tasks[:half]) if task < last]
        lost = [(accuracy[task, task] - accuracy[last, task]) / (last - task) for task in chosen]
        return mean(lost) if lost else None

    return of


def seconds(*phases: str) -> Callable[[Sequence[Row]], float | None]:
    """The mean seconds of these phases in a step after the first."""

    def of(rows: Sequence[Row]) -> float | None:
        steps = sorted({int(row["step"]) for row in rows})[1:]
        total = sum(float(row["seconds"]) for row in rows if int(row["step"]) in steps and row["phase"] in phases)
        return total / len(steps) if steps else None

    return of


def after_first(rows: Sequence[Row]) -> list[Row]:
    first = min(int(row["step"]) for row in rows)
    return [row for row in rows if int(row["step"]) > first]


# Figures 9 and 10


def in_both_starts(row: Row) -> bool:
    """The cold start of Figure 9 is the warm one without its step 0."""
    return int(row["classes_of_step"]) > 0


def above_damping(rows: Sequence[Row]) -> float | None:
    """The share of the eigenvalues ν with λ ν > η, mean over the steps; there is none without λ."""
    steps: dict[str, list[bool]] = {}
    for row in rows:
        if not row["eta/lambda"]:
            return None
        steps.setdefault(row["step"], []).append(float(row["eigenvalue"]) > float(row["eta/lambda"]))
    return mean(mean(map(float, values)) for values in steps.values()) if steps else None


def rank_gap(rows: Sequence[Row]) -> float | None:
    """How far the rank of E_t is from the number of classes minus one, at the step where it is furthest."""
    return max((abs(int(row["rank"]) - (int(row["classes"]) - 1)) for row in rows), default=None)


def _noise_measures() -> dict[str, Measure]:
    change, found = "change of probabilities", {}
    for direction in ("along", "across"):
        chosen = noisy("first task", direction, change)
        found[f"{change} {direction} E_1"] = Measure(averaged("value", chosen), "3", ".3f")
    words = {"along": "with noise along E", "across": "with noise across E", "clean": "without noise"}
    for direction, word in words.items():
        for task in (1, 2, 3):
            chosen = noisy("all tasks", direction, f"accuracy on task {task}")
            found[f"accuracy on task {task} {word}"] = Measure(averaged("value", chosen), "3")
        found[f"A_step {word}"] = Measure(averaged("value", noisy("end", direction, "A_step")), "3")
    return found


_ALONG, _ACROSS = averaged("along_previous"), averaged("across_previous")
_FIXED, _UPDATED = averaged("fixed", in_both_starts), averaged("updated", in_both_starts)
_REBALANCING = averaged("seconds", lambda row: row["phase"] == "re-balancing")

MEASURES: dict[str, Measure] = {
    "A_step": Measure(averaged("per_step_accuracy")),
    "A_inc": Measure(averaged("average_incremental_accuracy")),
    "F": Measure(averaged("average_forgetting")),
    "PL": Measure(averaged("plasticity")),
    "seconds": Measure(averaged("seconds"), digits=".0f"),
    "kept MB": Measure(lambda rows: float(rows[0]["kept_bytes"]) / 1e6, digits=".2f"),
    "accuracy on the first task": Measure(lambda rows: per_task(rows, slice(0, 1))),
    "accuracy on later tasks": Measure(lambda rows: per_task(rows, slice(1, None))),
    "plasticity potential": Measure(averaged("plasticity_potential", lambda row: row["network"] == "frozen"), "1"),
    **_noise_measures(),
    "points lost per step, first half of the tasks": Measure(lost_per_step(False), "4", ".2f"),
    "points lost per step, second half of the tasks": Measure(lost_per_step(True), "4", ".2f"),
    "drift along E_t": Measure(averaged("drift"), "5", ".3g"),
    "drift along E_t, first half of the tasks": Measure(lambda rows: averaged("drift")(half(rows, False)), "5", ".3g"),
    "share of the drift along E_(t-1)": Measure(
        ratio(_ALONG, lambda rows: (_ALONG(rows) or 0) + (_ACROSS(rows) or 0)), "5", ".3f"
    ),
    "squared drift across E_(t-1)": Measure(_ACROSS, "5", ".3g"),
    "distance of fixed prototypes": Measure(_FIXED, "9", ".3g"),
    "distance of updated prototypes": Measure(_UPDATED, "9", ".3g"),
    "part of the distance that updating leaves": Measure(ratio(_UPDATED, _FIXED), "9", ".3f"),
    "rank off classes - 1": Measure(rank_gap, "10", ".0f"),
    "share of eigenvalues above η/λ": Measure(above_damping, "10", ".3f"),
    "seconds of a step": Measure(seconds(*SHOWN), "12"),
    "seconds of training": Measure(seconds("training"), "12"),
    "re-balancing per training": Measure(ratio(seconds("re-balancing"), seconds("training")), "12", ".3f"),
    "EFM and prototypes per training": Measure(ratio(seconds("statistics"), seconds("training")), "12", ".3f"),
    "seconds of re-balancing, first half of the steps": Measure(
        lambda rows: _REBALANCING(half(after_first(rows), False)), "12"
    ),
    "seconds of re-balancing, second half of the steps": Measure(
        lambda rows: _REBALANCING(half(after_first(rows), True)), "12"
    ),
}
