"""A_step over the values of one setting, a panel per preset: how much a result hangs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from efcil.analysis.style import VERMILLION, Rows, panels
from efcil.bench.results import Cell, Row, newest_rows, read_existing_results
from efcil.bench.scenarios import flat
from efcil.config import to_dict
from efcil.errors import UserError

DECADE = 10  # values that differ by more are drawn on a logarithmic scale


def sweep(presets: Sequence[str], method: str, field: str, settings: Sequence[str], results: Path) -> Rows:
    """One row per preset and value, mean over the seeds that all values of a preset have."""
    return [row for preset in presets for row in _of_preset(preset, method, field, settings, results)]


def _of_preset(preset: str, method: str, field: str, settings: Sequence[str], results: Path) -> Rows:
    """The rows of runs that have these settings and no other, but for the field."""
    rows = read_existing_results(results)
    own = _value(Cell(preset, method, tuple(settings), 0), field)
    found: list[tuple[Any, Row]] = []
    for changes in sorted({key[2] for key in rows if key[:2] == (preset, method)}):
        words = changes.split()
        more = [word for word in words if word not in settings]
        if not set(settings) <= set(words) or any(word.partition("=")[0] != field for word in more):
            continue
        cell = Cell(preset, method, tuple(words), 0)
        seeds = [int(key[3]) for key in rows if key[:3] == cell.key[:3]]
        value = _value(cell, field)
        found += [(value, row) for row in newest_rows(rows, [replace(cell, seed=seed) for seed in seeds])]
    newest = max((int(row["numerics"]) for _, row in found), default=0)  # other numerics compare with nothing
    measured: dict[Any, dict[str, float]] = {}  # value → seed → A_step
    for value, row in found:
        if int(row["numerics"]) == newest:
            measured.setdefault(value, {})[row["seed"]] = float(row["per_step_accuracy"])
    common = set.intersection(*map(set, measured.values())) if measured else set()
    if len(measured) < 2 or not common:
        changes = "".join(f" --set {change}" for change in settings)
        raise UserError(
            f"{results} has no two values of {field} with a seed in common for {method} on {preset}; run them first: "
            f"efcil bench --presets {preset} --methods {method} {method}:{field}=VALUE{changes} --results {results}"
        )
    found_rows: Rows = []
    for value in sorted(measured, key=lambda value: (isinstance(value, str), value)):
        numbers = [measured[value][seed] for seed in common]
        spread = stdev(numbers) if len(numbers) > 1 else 0.0
        about = {"preset": preset, "method": method, "field": field, "value": value, "own": value == own}
        found_rows.append({**about, "seeds": len(common), "per_step_accuracy": mean(numbers), "std": spread})
    return found_rows


def _value(cell: Cell, field: str) -> Any:
    """What the field is set to; a setting of the classifier may be named without its section."""
    known = flat(to_dict(cell.config))
    for name in (field, f"classifier.{field}"):
        if name in known:
            return known[name]
    raise UserError(
        f"{cell.method} on {cell.preset} has no setting {field}; `efcil settings {cell.method}` lists them."
    )


def told(rows: Rows) -> str:
    """For every preset: what it has with its own value, with the best one, and how far that is apart."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        mine = [row for row in rows if row["preset"] == preset]
        best = max(mine, key=lambda row: row["per_step_accuracy"])
        line = f"{preset}, {best['seeds']} seed{'s' if best['seeds'] > 1 else ''}: "
        line += f"best {best['field']}={best['value']} with {best['per_step_accuracy']:.2f} %"
        for row in mine:
            if row["own"]:
                behind = best["per_step_accuracy"] - row["per_step_accuracy"]
                line += f"; its own, {row['value']}, has {row['per_step_accuracy']:.2f} %, {behind:.2f} behind"
        lines.append(line)
    return "\n".join(lines)


def draw(rows: Rows) -> Any:
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    figure, axes = panels(len(presets))
    for panel, preset in zip(axes, presets, strict=True):
        mine = [row for row in rows if row["preset"] == preset]
        values = [row["value"] for row in mine]
        numbers = all(isinstance(value, int | float) for value in values)
        places = values if numbers else list(range(len(values)))
        heights = [row["per_step_accuracy"] for row in mine]
        panel.errorbar(places, heights, yerr=[row["std"] for row in mine], marker="o", capsize=3)
        for place, row in zip(places, mine, strict=True):
            if row["own"]:
                panel.plot(place, row["per_step_accuracy"], "o", color=VERMILLION, markersize=10, label="as it is set")
                panel.legend()
        if numbers and min(values) > 0 and max(values) / min(values) > DECADE:
            panel.set_xscale("log")
            panel.minorticks_off()
        panel.set_xticks(places, [f"{value:g}" if numbers else str(value) for value in values])
        panel.set(xlabel=mine[0]["field"], ylabel="accuracy on all classes seen, %", title=preset)
    return figure
