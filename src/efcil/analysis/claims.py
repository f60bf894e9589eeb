"""The paper's claims, each decided by results over paired seeds: holds, does not hold, or cannot be told at this scale.

Two methods of one preset are compared seed by seed, which takes out what a class order does to both. The mean of the
differences is tested with Student's t, one-sided at 5 % for "above"; "level" means that the whole 90 % interval of the
mean lies within a margin. One seed tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import mean, stdev
from typing import Any

import yaml

from efcil.bench.campaign import cells
from efcil.bench.results import Cell, Results, Row, newest_rows
from efcil.bench.scenarios import preset_names

HOLDS, FAILS, OPEN, NOT_RUN = "holds", "does not hold", "not resolvable", "not run"
LEVEL = 0.05  # of the tests
MARGIN = 1.0  # points of accuracy that count as level
METRICS = {
    "per_step_accuracy": "A_step",
    "average_forgetting": "F",
    "plasticity": "PL",
    "average_incremental_accuracy": "A_inc",
    "seconds": "seconds",
}
Differences = dict[int, float]  # by seed


@dataclass(frozen=True)
class Comparison:
    """What paired seeds say about one method against another."""

    what: str  # such as "efc++ > efc"
    preset: str
    differences: tuple[float, ...]
    verdict: str
    probability: float  # of so great a difference, or so small a one for level, if the claim were wrong
    numerics: str

    @property
    def mean(self) -> float:
        return mean(self.differences)


@dataclass(frozen=True)
class Verdict:
    """A claim and what the presets of one scale say about it."""

    claim: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]
    missing: Mapping[str, tuple[str, ...]]  # preset → comparisons without two common seeds

    @property
    def by_preset(self) -> dict[str, str]:
        """For each preset: all that was claimed, or something is the other way round, or it is open; or not run."""
        presets = dict.fromkeys([*(c.preset for c in self.comparisons), *self.missing])
        return {preset: self._of(preset) for preset in presets}

    def _of(self, preset: str) -> str:
        said = [comparison.verdict for comparison in self.comparisons if comparison.preset == preset]
        if not said:
            return NOT_RUN
        if FAILS in said:
            return FAILS
        return HOLDS if all(one == HOLDS for one in said) and not self.missing.get(preset) else OPEN


def claims() -> list[dict[str, Any]]:
    """All claims, in the order of the paper."""
    text = files("efcil.analysis").joinpath("claims.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text)
    return found


def decided(claim: Mapping[str, Any], results: Results, scale: str) -> Verdict:
    """The claim by the presets of this scale, such as cpu or fast."""
    metric = claim.get("metric", "per_step_accuracy")
    presets = [name for scenario in claim["scenarios"] if (name := f"{scenario}-{scale}") in preset_names()]
    comparisons: list[Comparison] = []
    missing: dict[str, tuple[str, ...]] = {}
    for what, preset, relation, found in compared(claim, presets, results, metric):
        differences, numerics = found
        if len(differences) < 2:
            missing[preset] = (*missing.get(preset, ()), what)
        else:
            values = tuple(differences[seed] for seed in sorted(differences))
            comparisons.append(Comparison(what, preset, values, *judged(values, relation), numerics))
    return Verdict(claim, tuple(comparisons), missing)


def compared(
    claim: Mapping[str, Any], presets: Sequence[str], results: Results, metric: str
) -> Iterator[tuple[str, str, str, tuple[Differences, str]]]:
    """Every comparison of a claim: in words, preset, relation, and the difference of each common seed."""
    if "gain" in claim:
        better, worse = claim["gain"]
        if len(presets) == 2:
            here, there = (paired(results, preset, better, worse, metric) for preset in presets)
            both = {seed: here[0][seed] - there[0][seed] for seed in here[0].keys() & there[0].keys()}
            what = f"{better} − {worse} on {presets[0]} > on {presets[1]}"
            yield what, presets[0], ">", (both, "/".join(sorted({here[1], there[1]} - {""})))
        return
    for preset in presets:
        for left, relation, right in claim["compare"]:
            for better in [left] if isinstance(left, str) else left:
                for worse in right:
                    found = paired(results, preset, better, worse, metric)
                    yield f"{better} {relation} {worse}", preset, relation, found


def paired(results: Results, preset: str, better: str, worse: str, metric: str) -> tuple[Differences, str]:
    """The difference of two methods for every seed that both have, made with the same numerics, and its version."""
    first, second = rows_by_seed(results, preset, better), rows_by_seed(results, preset, worse)
    common = {s for s in first.keys() & second.keys() if first[s]["numerics"] == second[s]["numerics"]}
    differences = {seed: float(first[seed][metric]) - float(second[seed][metric]) for seed in common}
    return differences, next((first[seed]["numerics"] for seed in sorted(common)), "")


def rows_by_seed(results: Results, preset: str, method: str) -> dict[int, Row]:
    cell: Cell = cells([preset], [method], [0])[0]
    seeds = sorted({int(key[3]) for key in results if key[:3] == cell.key[:3]})
    rows = newest_rows(results, [replace(cell, seed=seed) for seed in seeds])
    return {int(row["seed"]): row for row in rows}


def judged(differences: Sequence[float], relation: str) -> tuple[str, float]:
    """The verdict on "above" (>), "level or above" (~) or "level" (=), and the probability that it rests on."""
    if relation == ">":
        above = one_sided(differences)
        return (HOLDS if above < LEVEL else FAILS if 1 - above < LEVEL else OPEN), above
    not_below = one_sided([d + MARGIN for d in differences])  # small: surely not more than the margin below
    not_above = one_sided([MARGIN - d for d in differences])
    if relation == "~":
        return (HOLDS if not_below < LEVEL else FAILS if 1 - not_below < LEVEL else OPEN), not_below
    outside = min(1 - not_below, 1 - not_above)
    level = max(not_below, not_above)
    return (HOLDS if level < LEVEL else FAILS if outside < LEVEL else OPEN), level


def one_sided(differences: Sequence[float]) -> float:
    """The probability of so great a mean, or a greater one, if the true mean were zero (Student's t)."""
    spread = stdev(differences)
    if spread == 0:
        return 0.5 if mean(differences) == 0 else float(mean(differences) < 0)
    return upper_tail(mean(differences) / (spread / math.sqrt(len(differences))), len(differences) - 1)


def upper_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's distribution with so many whole degrees of freedom, in closed form."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, freedom - 1, 2):
            total, term = total + term, term * cosine**2 * (k + 1) / (k + 2)
        return 0.5 - (angle + sine * total) / math.pi
    term, total = 1.0, 0.0
    for k in range(0, freedom - 1, 2):
        total, term = total + term, term * cosine**2 * (k + 1) / (k + 2)
    return 0.5 - sine * total / 2
