"""The commands that make the runs of a claim, and about how long those that are not there yet would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from efcil.analysis.claims import SEEDS, measures_of, methods_of, presets_of, with_settings
from efcil.analysis.claims_evidence import Evidence, of_one_version
from efcil.analysis.claims_measures import MEASURES
from efcil.bench.campaign import seed_list
from efcil.bench.estimates import hours_text
from efcil.bench.grids import expanded

NEED_STATES = {"3", "5", "9"}  # figures of the classifiers after every step


def figures_of(claim: Mapping[str, Any]) -> list[str]:
    return sorted({MEASURES[name].figure for name in measures_of(claim)} - {""})


def seeds_of(claim: Mapping[str, Any]) -> str:
    """Three seeds decide most claims, five the rest."""
    return str(claim.get("seeds", "0-4"))


def to_run(claim: Mapping[str, Any]) -> list[str]:
    """What the command runs; one run of Figure 1 alone makes no figure."""
    return ["@figure1"] if "1" in figures_of(claim) else methods_of(claim)


def commands(claim: Mapping[str, Any], scales: Sequence[str]) -> list[str]:
    """What makes the rows of this claim and, where figures decide it, their numbers.

    Where no preset of these scales is about it, the paper's own size is left.
    """
    presets = [preset for scale in scales for preset in presets_of(claim, scale)] or claim["scenarios"]
    changes = "".join(f" --set {change}" for change in claim.get("settings", ()))
    bench = f"efcil bench --presets {','.join(presets)} --seeds {seeds_of(claim)} --data-root DIR{changes}"
    bench += f" --methods {' '.join(to_run(claim))}"
    if not figures_of(claim):
        return [bench]
    states = " --keep-states" if NEED_STATES & set(figures_of(claim)) else ""
    return [f"{bench} --out runs{states}", "efcil claims --runs runs --data-root DIR --out CLAIMS.md"]


def cost(claim: Mapping[str, Any], scale: str, evidence: Evidence) -> str:
    """How many runs have what this claim compares, and the hours of the others, going by the rows that are there."""
    wanted, measure = len(seed_list(seeds_of(claim))), measures_of(claim)[0]
    there = left = unknown = 0
    seconds = 0.0
    for preset in presets_of(claim, scale):
        methods = [with_settings(method, claim) for method in expanded(to_run(claim))]
        timed = [list(evidence.values(preset, method, "seconds").values()) for method in methods]
        all_timed = [value for own in timed for value in own]
        for method, own in zip(methods, timed, strict=True):
            lacking = max(wanted - len(of_one_version(evidence.values(preset, method, measure), SEEDS)), 0)
            there, left = there + wanted - lacking, left + lacking
            if own or all_timed:
                seconds += lacking * median(own or all_timed)
            else:
                unknown += lacking
    if not left:
        return f"All {there} runs are there."
    told = f"{there} of {there + left} runs are there"
    if unknown < left:
        told += f"; the others take about {hours_text(seconds / 3600)} of a core, as long as such runs took here"
    which = "the others" if unknown == left else f"{unknown} of them"
    return told + (f"; how long {which} take is not known yet." if unknown else ".")
