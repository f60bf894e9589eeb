"""The paper's numbers: Tables 2 to 10 with their standard deviations, digit by digit as printed, in published.csv.

Each line is one printed number: its table, data set, start and steps, row, metric, mean and standard deviation. A lone
dash is a dash there too. Joint training has no steps, since the paper gives one number for both.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from efcil.bench.scenarios import scenario_of

TABLES = range(2, 11)  # with numbers; Table 1 has the splits
DASH = "-"

# Rows that are not simply the name of a method, and the run that each is: the methods of `efcil grids`.
VARIANTS = {
    "E-FIM": "efc++:options.regularizer=efim",
    "KD": "efc++:options.regularizer=kd",
    "FD": "efc++:options.regularizer=fd",
    "FD squared": "efc++:options.lambda_efm=0",  # Eq. 5 with the norm squared, a row that the paper does not have
    "EFM": "efc++",
    "✗": "efc++:options.drift=none",
    "✓": "efc++",
    "Fixed / Fixed": "efc++:options.drift=none",
    "EFM / Fixed": "efc++",
    "EFM / Real": "efc++:options.covariance=oracle",
    "Real / Fixed": "efc++:options.drift=oracle",
    "Real / Real": "efc++:options.drift=oracle,options.covariance=oracle",
    "Joint Training": "joint",
}


class Place(NamedTuple):
    """Where a number stands: the scenario, the row as it is called in its table, and the metric."""

    data: str
    start: str
    steps: int | None
    row: str
    metric: str  # A_step, A_inc, F, PL, or delta: A_step less that of fixed means and covariances


class Number(NamedTuple):
    """Mean and standard deviation as printed; without the latter where the paper has none."""

    mean: str
    std: str

    @property
    def value(self) -> float | None:
        return None if self.mean == DASH else float(self.mean)


@cache
def printed(table: int) -> Mapping[Place, Number]:
    """Every number of this table, in the order of the paper."""
    lines = files("efcil.bench").joinpath("published.csv").read_text(encoding="utf-8").splitlines()
    return {
        Place(line["data"], line["start"], int(line["steps"] or 0) or None, line["row"], line["metric"]): Number(
            line["mean"], line["std"]
        )
        for line in csv.DictReader(lines)
        if int(line["table"]) == table
    }


def number_at(table: int, place: Place) -> Number | None:
    """The number at this place of a table; one that the paper gives for all steps stands for each of them."""
    numbers = printed(table)
    return numbers.get(place) or numbers.get(place._replace(steps=None))


def run_of(row: str) -> str:
    """Which of our runs stands for a row, as `efcil bench --methods` takes it."""
    return VARIANTS.get(row, row.lower())


def label_of(entry: str) -> str:
    """``efc++:options.drift=none`` as results name it: ``efc++ options.drift=none``."""
    method, _, changes = entry.partition(":")
    return " ".join([method, *filter(None, changes.split(","))])


@cache
def means() -> Mapping[tuple[str, str, int | None, str], dict[str, float]]:
    """A_step and A_inc by data set, start, steps and label; a number in several tables is the same in each."""
    found: dict[tuple[str, str, int | None, str], dict[str, float]] = {}
    for table in TABLES:
        for place, number in printed(table).items():
            if number.value is not None:
                key = (place.data, place.start, place.steps, label_of(run_of(place.row)))
                found.setdefault(key, {}).setdefault(place.metric, number.value)
    return found


def published(preset: str, label: str) -> tuple[float, float | None] | None:
    """The paper's A_step and A_inc for the scenario of this preset, whatever its size, and this method with changes."""
    scenario = scenario_of(preset)
    if not scenario.in_paper:
        return None
    for steps in (scenario.steps, None):
        numbers = means().get((scenario.data, scenario.start, steps, label), {})
        if "A_step" in numbers:
            return numbers["A_step"], numbers.get("A_inc")
    return None
