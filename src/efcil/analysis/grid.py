"""Figures 11 and 15: A_step, forgetting and plasticity for every λ and η, a row of heat maps per preset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efcil.analysis.measured import Measured, measured_results
from efcil.analysis.style import Rows, heat_map, panels
from efcil.bench.grids import expanded
from efcil.bench.results import read_results
from efcil.errors import UserError

PANELS = (
    ("per_step_accuracy", "A_step, %", max),
    ("average_forgetting", "forgetting F, points", min),
    ("plasticity", "plasticity PL, %", max),
)
GRIDS = ("options.lambda_efm", "options.eta")
LAMBDA, ETA = (f"classifier.{name}" for name in GRIDS)


def searched(presets: Sequence[str], results: Path) -> list[Measured]:
    """All of @figure11 that the results have, and whatever else of λ and η was tried on these presets."""
    entries = expanded(["@figure11"])
    for preset, method, changes, *_ in read_results(results):
        names = {change.partition("=")[0] for change in changes.split()}
        if preset in presets and method == "efc++" and names <= set(GRIDS):
            entries.append("efc++" + (":" + ",".join(changes.split()) if changes else ""))
    return measured_results(presets, list(dict.fromkeys(entries)), results, hinted=False)  # a grid may be open


def grid(found: Sequence[Measured]) -> Rows:
    """One row per preset, λ and η, mean over seeds; all else must be the same within a preset."""
    first: dict[str, Measured] = {}
    groups: dict[tuple[str, float, float], list[Measured]] = {}
    for one in found:
        if LAMBDA not in one.settings:
            raise UserError(f"{one.label} has no λ and η; name efc++ or efc.")
        other = first.setdefault(one.preset, one)
        if _but_weights(one) != _but_weights(other):
            raise UserError(
                f"{other.label} and {one.label} on {one.preset} differ in more than λ, η and seed; "
                "name runs of one method that are the same in all else."
            )
        groups.setdefault((one.preset, one.settings[LAMBDA], one.settings[ETA]), []).append(one)
    rows: Rows = []
    for (preset, lambda_efm, eta), group in sorted(groups.items()):
        newest = max(int(one.numerics) for one in group)
        seeds = [one for one in group if int(one.numerics) == newest]
        means = {name: sum(one.numbers[name] for one in seeds) / len(seeds) for name, *_ in PANELS}
        rows.append({"preset": preset, "lambda_efm": lambda_efm, "eta": eta, "seeds": len(seeds), **means})
    return rows


def _but_weights(one: Measured) -> dict[str, Any]:
    return {name: value for name, value in one.settings.items() if name not in (LAMBDA, ETA)}


def draw(rows: Rows) -> Any:
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    figure, axes = panels(3, width=4.3, height=3.7, rows=len(presets))
    for index, preset in enumerate(presets):
        own = [row for row in rows if row["preset"] == preset]
        lambdas, etas = (sorted({row[name] for row in own}) for name in ("lambda_efm", "eta"))
        chosen = max(own, key=lambda row: row["per_step_accuracy"])
        for panel, (name, what, best) in zip(axes[3 * index :], PANELS, strict=False):
            values = {(row["eta"], row["lambda_efm"]): row[name] for row in own}
            matrix = [[values.get((eta, weight)) for weight in lambdas] for eta in reversed(etas)]
            image = heat_map(panel, matrix, min(values.values()), max(values.values()), 1)
            figure.colorbar(image, ax=panel, shrink=0.85)
            place = lambdas.index(chosen["lambda_efm"]), len(etas) - 1 - etas.index(chosen["eta"])
            panel.plot(place[0], place[1] - 0.3, "*", color="white", markersize=13, markeredgecolor="black")
            panel.set(xlabel="λ", ylabel="η", xticks=range(len(lambdas)), yticks=range(len(etas)))
            panel.set_xticklabels([f"{value:g}" for value in lambdas])
            panel.set_yticklabels([f"{value:g}" for value in reversed(etas)])
            arrow = "higher" if best is max else "lower"
            panel.set_title(f"{what} ({arrow} is better)" + (f"\n{preset}" if len(presets) > 1 else ""))
    return figure
