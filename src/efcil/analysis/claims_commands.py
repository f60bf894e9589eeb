"""The commands that make the runs of a claim, and about how long those that are not there yet would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from efcil.analysis.claims import measures_of, methods_of, presets_of, with_settings
from efcil.analysis.claims_evidence import Evidence, Run
from efcil.analysis.claims_measures import MEASURES
from efcil.bench.campaign import seed_list
from efcil.bench.estimates import hours_text
from efcil.bench.grids import expanded
from efcil.bench.scenarios import preset_names, resolve
from efcil.engine import numerics

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

    Where no preset of these scales is about it, those that are; of the paper's claims the ones of the paper's own size.
    """
    presets = [preset for scale in scales for preset in presets_of(claim, scale)]
    elsewhere = presets_of(claim, claim["ours"]) if "ours" in claim else claim["scenarios"]
    presets = presets or [preset for preset in elsewhere if preset in preset_names()]
    if not presets:
        return []
    together: dict[str, list[str]] = {}
    for preset in presets:
        together.setdefault(images_of(preset), []).append(preset)
    rest = "".join(f" --set {change}" for change in claim.get("settings", ())) + f" --methods {' '.join(to_run(claim))}"
    if figures_of(claim):
        rest += " --out runs" + (" --keep-states" if NEED_STATES & set(figures_of(claim)) else "")
    benches = [
        f"efcil bench --presets {','.join(own)} --seeds {seeds_of(claim)} --data-root {root}{rest}"
        for root, own in together.items()
    ]
    return [*benches, *(["efcil claims --runs runs --data-root DIR --out CLAIMS.md"] if figures_of(claim) else [])]


def images_of(preset: str) -> str:
    """Where a preset finds its images, beside other sets: one of plain folders is called as its preset begins."""
    plain = resolve(preset, "efc++", 0).data.name in ("folder", "domains")
    return f"DIR/{preset.partition('-')[0]}" if plain else "DIR"


def cost(claim: Mapping[str, Any], scale: str, evidence: Evidence) -> str:
    """How many runs of today's numerics have what this claim compares, and the hours of the others, going by rows."""
    seeds = seed_list(seeds_of(claim))
    compared = [with_settings(method, claim) for method in expanded(methods_of(claim))]
    there = left = unknown = 0
    seconds = 0.0
    for preset in presets_of(claim, scale):
        named = [with_settings(method, claim) for method in expanded(to_run(claim))]
        methods = {evidence.cell(preset, method).config_digest: method for method in reversed(named)}.values()
        timed = {method: evidence.values(preset, method, "seconds") for method in methods}
        any_timed = [value for own in timed.values() for value in own.values()]
        for method, own in timed.items():
            # what else a figure needs, such as joint training in Figure 1, has no number of its own in it
            found = evidence.values(preset, method, measures_of(claim)[0]) if method in compared else own
            lacking = sum(Run(numerics.VERSION, seed) not in found for seed in seeds)
            there, left = there + len(seeds) - lacking, left + lacking
            if any_timed:
                seconds += lacking * median(own.values() or any_timed)
            else:
                unknown += lacking
    if not left:
        return f"All {there} runs are there."
    told = f"{there} of {there + left} runs are there with today's numerics"
    if unknown < left:
        told += f"; the others take about {hours_text(seconds / 3600)} of a core, as long as such runs took here"
    which = "the others" if unknown == left else f"{unknown} of them"
    return told + (f"; how long {which} take is not known yet." if unknown else ".")
