"""Claims of the paper, and a few of ours, decided by runs over paired seeds: holds, does not hold, or cannot be told.

Two runs of one preset are compared seed by seed, which takes out what a class order does to both. The mean of the
differences is tested with Student's t, one-sided at 5 % for "above"; "level" means that the whole 90 % interval of the
mean lies within a margin. Fewer than three seeds tell nothing. A claim of k comparisons fails only if one of them is
the other way round at 5 % / k: among many, some look so by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from statistics import mean, stdev
from typing import Any

import yaml

from efcil.analysis.claims_evidence import Evidence, Values, of_one_version
from efcil.bench.campaign import method_and_changes, seed_list
from efcil.bench.grids import expanded
from efcil.bench.scenarios import preset_names

HOLDS, FAILS, OPEN, NOT_RUN = "holds", "does not hold", "not resolvable", "not run"
LEVEL = 0.05  # of the tests
SEEDS = 3  # fewer decide nothing
MARGIN = 1.0  # points of accuracy that count as level, where a claim does not say otherwise
RELATIONS = (">", "~", "=")
Side = str | float  # a method, a measure, or a number
Pair = tuple[str, str, str, Values, Values]  # in words, preset, relation, and what is on both sides


@dataclass(frozen=True)
class Comparison:
    """What paired seeds say about one run, or one measure of it, against another."""

    what: str  # such as "efc++ > efc"
    preset: str
    left: tuple[float, ...]
    right: tuple[float, ...]
    verdict: str
    probability: float  # of so great a difference, or so small a one for level, if the claim were wrong
    numerics: str

    @property
    def differences(self) -> tuple[float, ...]:
        return tuple(left - right for left, right in zip(self.left, self.right, strict=True))

    @property
    def mean(self) -> float:
        return mean(self.differences)


@dataclass(frozen=True)
class Verdict:
    """A claim and what the presets of one scale say about it."""

    claim: Mapping[str, Any]
    comparisons: tuple[Comparison, ...]
    missing: Mapping[str, tuple[str, ...]]  # preset → comparisons without a common seed

    @property
    def by_preset(self) -> dict[str, str]:
        """For each preset: all that was claimed, or something is the other way round, or it is open; or not run."""
        presets = dict.fromkeys([*(c.preset for c in self.comparisons), *self.missing])
        return {preset: self._of(preset) for preset in presets}

    def _of(self, preset: str) -> str:
        own = [comparison for comparison in self.comparisons if comparison.preset == preset]
        said = [comparison.verdict for comparison in own]
        if not said:
            return NOT_RUN
        if FAILS in said:
            return FAILS
        if all(one == HOLDS for one in said) and not self.missing.get(preset):
            return HOLDS
        fewest = min(len(comparison.left) for comparison in own)
        return OPEN if fewest >= SEEDS else f"{OPEN} ({fewest} seed{'s' if fewest > 1 else ''})"


def claims() -> list[dict[str, Any]]:
    """All claims that runs can decide, in the order of the paper, and then those of ours."""
    return [entry for entry in _entries() if "compare" in entry or "gain" in entry]


def proofs() -> list[dict[str, Any]]:
    """What the paper derives, each with the tests that show it or its error."""
    return [entry for entry in _entries() if "tests" in entry]


def questions() -> list[dict[str, Any]]:
    """What our results leave open about the paper's, each with the claims that bear on it."""
    return [entry for entry in _entries() if "asks" in entry]


@cache
def _entries() -> list[dict[str, Any]]:
    text = files("efcil.analysis").joinpath("claims.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text)
    return found


def made_at(claim: Mapping[str, Any], scale: str) -> bool:
    """The paper's claims are looked at wherever we can; ours are made at one scale."""
    return bool(claim.get("ours", scale) == scale)


def presets_of(claim: Mapping[str, Any], scale: str) -> list[str]:
    """The presets of this scale that the claim is about, such as cpu or fast."""
    if not made_at(claim, scale):
        return []
    return [name for scenario in claim["scenarios"] if (name := f"{scenario}-{scale}") in preset_names()]


def decided(claim: Mapping[str, Any], evidence: Evidence, scale: str) -> Verdict:
    """The claim by the presets of this scale."""
    pairs = list(compared(claim, presets_of(claim, scale), evidence))
    comparisons: list[Comparison] = []
    missing: dict[str, tuple[str, ...]] = {}
    for what, preset, relation, left, right in pairs:
        counted = set(seed_list(claim["seeds"])) if "seeds" in claim else None
        common = [run for run in left.keys() & right.keys() if counted is None or run.seed in counted]
        runs = of_one_version(common, SEEDS)
        if not runs:
            missing[preset] = (*missing.get(preset, ()), what)
            continue
        first, second = (tuple(side[run] for run in runs) for side in (left, right))
        among = sum(pair[1] == preset for pair in pairs)
        ahead = [a - b - claim.get("by", 0) for a, b in zip(first, second, strict=True)]
        judgement = judged(ahead, relation, margin_of(claim, second), among)
        comparisons.append(Comparison(what, preset, first, second, *judgement, str(runs[0].numerics)))
    return Verdict(claim, tuple(comparisons), missing)


def margin_of(claim: Mapping[str, Any], reference: Sequence[float]) -> float:
    """What counts as level; ``20%`` is of the right side."""
    margin = claim.get("margin", MARGIN)
    if isinstance(margin, str):
        return float(margin.removesuffix("%")) / 100 * abs(mean(reference))
    return float(margin)


def compared(claim: Mapping[str, Any], presets: Sequence[str], evidence: Evidence) -> Iterator[Pair]:
    """Every comparison of a claim, with the values of both sides by seed."""
    if "gain" in claim:
        if len(presets) == 2:
            better, worse = claim["gain"]
            here, there = (lead(claim, preset, evidence) for preset in presets)
            yield f"{better} − {worse} on {presets[0]} > on {presets[1]}", presets[0], ">", here, there
        return
    ahead = f" + {claim['by']}" if "by" in claim else ""
    for preset in presets:
        once = set()  # some settings are a preset's own, under another name
        for left, relation, right in claim["compare"]:
            for better, worse in product(sides(left), sides(right)):
                compares = tuple(meaning(claim, preset, evidence, side) for side in (better, worse))
                if compares[0] != compares[1] and (relation, compares) not in once:
                    once.add((relation, compares))
                    values = both_values(claim, preset, evidence, better, worse)
                    yield f"{better} {relation} {worse}{ahead}", preset, relation, *values


def meaning(claim: Mapping[str, Any], preset: str, evidence: Evidence, side: Side) -> Side:
    """What a side stands for, however its settings are written: a method by the digest of all that it is run with."""
    if isinstance(side, float) or "method" in claim:
        return side
    return evidence.cell(preset, with_settings(side, claim)).config_digest


def sides(part: Side | Sequence[Side]) -> list[Side]:
    """One side of a comparison as a list, with every @NAME replaced by its methods."""
    found: list[Side] = []
    for side in [part] if isinstance(part, str | int | float) else part:
        found += expanded([side]) if isinstance(side, str) else [float(side)]
    return found


def both_values(
    claim: Mapping[str, Any], preset: str, evidence: Evidence, better: Side, worse: Side
) -> tuple[Values, Values]:
    """The values of two sides; a number stands for itself in every run that the other side has."""
    found = [side if isinstance(side, float) else values_of(claim, preset, evidence, side) for side in (better, worse)]
    first, second = found
    if isinstance(first, float) and not isinstance(second, float):
        return constant(first, second), second
    if isinstance(second, float) and not isinstance(first, float):
        return first, constant(second, first)
    if isinstance(first, float) or isinstance(second, float):
        raise ValueError(f"claim {claim['id']} compares two numbers")
    return first, second


def constant(number: float, other: Values) -> Values:
    return dict.fromkeys(other, number)


def values_of(claim: Mapping[str, Any], preset: str, evidence: Evidence, side: str) -> Values:
    """A side is a measure where the claim is about one method, and a method where it is about one measure."""
    if "method" in claim:
        return evidence.values(preset, with_settings(claim["method"], claim), side)
    return evidence.values(preset, with_settings(side, claim), metric_of(claim))


def with_settings(method: str, claim: Mapping[str, Any]) -> str:
    """The method with the settings that all runs of the claim have; its own come after them, as `--set` has it."""
    name, own = method_and_changes(method)
    changes = ",".join([*claim.get("settings", ()), *own])
    return f"{name}:{changes}" if changes else name


def metric_of(claim: Mapping[str, Any]) -> str:
    return str(claim.get("metric", "A_step"))


def measures_of(claim: Mapping[str, Any]) -> list[str]:
    """The names of all measures that the claim compares."""
    if "method" not in claim:
        return [metric_of(claim)]
    return [side for side in named(claim) if isinstance(side, str)]


def methods_of(claim: Mapping[str, Any]) -> list[str]:
    """All methods that the claim compares, as `efcil bench --methods` takes them; @NAME stays as it is."""
    if "method" in claim:
        return [claim["method"]]
    return list(dict.fromkeys(side for side in named(claim) if isinstance(side, str)))


def named(claim: Mapping[str, Any]) -> Iterable[Side]:
    for part in [claim["gain"]] if "gain" in claim else claim["compare"]:
        for side in part:
            yield from [s for s in ([side] if isinstance(side, str | int | float) else side) if s not in RELATIONS]


def lead(claim: Mapping[str, Any], preset: str, evidence: Evidence) -> Values:
    """By how much the better of a gain is ahead, in every run that both have."""
    better, worse = (values_of(claim, preset, evidence, method) for method in claim["gain"])
    return {run: better[run] - worse[run] for run in better.keys() & worse.keys()}


def judged(differences: Sequence[float], relation: str, margin: float = MARGIN, among: int = 1) -> tuple[str, float]:
    """The verdict on "above" (>), "level or above" (~) or "level" (=), and the probability that it rests on."""
    if len(differences) < SEEDS:
        return OPEN, math.nan
    against = LEVEL / among
    if relation == ">":
        above = one_sided(differences)
        return (HOLDS if above < LEVEL else FAILS if 1 - above < against else OPEN), above
    not_below = one_sided([d + margin for d in differences])  # small: surely not more than the margin below
    not_above = one_sided([margin - d for d in differences])
    if relation == "~":
        return (HOLDS if not_below < LEVEL else FAILS if 1 - not_below < against else OPEN), not_below
    outside = min(1 - not_below, 1 - not_above)
    level = max(not_below, not_above)
    return (HOLDS if level < LEVEL else FAILS if outside < against else OPEN), level


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
