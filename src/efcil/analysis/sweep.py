"""How much a result hangs on one setting: A_step over its values, compared seed by seed with the value that is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from efcil.analysis.style import VERMILLION, Rows, looks, panels
from efcil.bench.results import Cell, Results, Row, read_existing_results
from efcil.bench.scenarios import flat, number_settings
from efcil.config import to_dict
from efcil.engine import numerics
from efcil.errors import UserError, unknown


def sweep(presets: Sequence[str], method: str, field: str, settings: Sequence[str], results: Path) -> Rows:
    """One row per preset and value; means are over the seeds that this value and the one that is set have in common."""
    rows = read_existing_results(results)
    return [row for preset in dict.fromkeys(presets) for row in _of_preset(preset, method, field, settings, rows)]


def _of_preset(preset: str, method: str, field: str, settings: Sequence[str], results: Results) -> Rows:
    base = Cell(preset, method, tuple(settings), 0)
    name = full_name(base, field)
    own = text(flat(to_dict(base.config))[name])
    measured: dict[str, dict[str, float]] = {own: {}}  # value → seed → A_step
    for value, row in differing_in(base, name, results):
        measured.setdefault(value, {})[row["seed"]] = float(row["per_step_accuracy"])
    found: Rows = []
    for value in sorted(measured, key=place):
        seeds = measured[value].keys() & measured[own].keys()
        if seeds:
            differences = [measured[value][seed] - measured[own][seed] for seed in seeds]
            about = {"preset": preset, "method": method, "field": field, "value": value, "own": value == own}
            accuracy = mean(measured[value][seed] for seed in seeds)
            spread = stdev(differences) if len(seeds) > 1 else 0.0
            numbers = {"per_step_accuracy": accuracy, "difference": mean(differences), "std": spread}
            found.append({**about, "seeds": len(seeds), **numbers})
    if len(found) < 2:
        changes = "".join(f" --set {change}" for change in settings)
        bench = f"efcil bench --presets {preset} --methods {method} {method}:{field}=VALUE{changes}"
        rows = (row for row in results.values() if (row["preset"], row["method"]) == (preset, method))
        older = any(row["numerics"] != str(numerics.VERSION) for row in rows)
        raise UserError(
            f"There are no results of {method} on {preset} with {field}={own}, as it is set, and another value for the "
            f"same seed, all else being equal{' (those of older numerics do not count)' if older else ''}; repeat with "
            f"--set what the runs had, or run them first: {bench}"
        )
    return found


def differing_in(base: Cell, name: str, results: Results) -> Iterator[tuple[str, Row]]:
    """The rows of today whose settings are those of the base but for this one, each with its value."""
    before = flat(number_settings(base.config))
    for row in results.values():
        if (row["preset"], row["method"], row["numerics"]) != (base.preset, base.method, str(numerics.VERSION)):
            continue
        with suppress(UserError):  # a setting that there was once
            cell = Cell(base.preset, base.method, tuple(row["changes"].split()), int(row["seed"]))
            now = flat(number_settings(cell.config))
            changed = {key for key in now.keys() | before.keys() if now.get(key) != before.get(key)}
            if changed <= {name} and cell.config_digest == row["config_digest"]:
                yield text(flat(to_dict(cell.config))[name]), row


def full_name(cell: Cell, field: str) -> str:
    """A setting of the classifier may be named without its section; it must be one that can move a number."""
    known = [name for name in flat(number_settings(cell.config, complete=True)) if name != "classifier.method"]
    for name in (field, f"classifier.{field}"):
        if name in known:
            return name
        if name in flat(to_dict(cell.config)):
            raise UserError(
                f"There is nothing to sweep over {field}: runs of one method are compared seed by seed, "
                "in a setting that can move a number, such as first.epochs."
            )
    names = [name.removeprefix("classifier.") for name in known]
    ends = [name for name in names if name.split(".")[-1] == field]
    if ends:
        raise UserError(f"There is no setting {field}; did you mean {' or '.join(ends)}?")
    raise unknown("setting", field, names)


def text(value: Any) -> str:
    """A value as it is shown; numbers as short as they can be."""
    return f"{value:g}" if is_number(value) else str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def place(value: str) -> tuple[bool, float, str]:
    """Numbers in their order, and then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def told(rows: Rows) -> str:
    """For every preset: what it has with the value that is set, and how far that is behind the best one."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        mine = [row for row in rows if row["preset"] == preset]
        (own,) = (row for row in mine if row["own"])
        best = max(mine, key=lambda row: row["difference"])
        line = f"{preset}: {own['field']}={own['value']}, as it is set, has {own['per_step_accuracy']:.2f} %"
        line += f" over {seeds_text(own['seeds'])}; "
        if best["difference"] > 0:
            spread = f" ± {best['std']:.2f}" if best["seeds"] > 1 else ""
            line += f"the best of {len(mine)} values, {best['value']}, is {best['difference']:.2f}{spread} above it"
        else:
            line += f"none of {len(mine) - 1} other values is above it"
        lines.append(line)
    return "\n".join(lines)


def draw(rows: Rows) -> Any:
    """A line for each preset, all of them zero at the value that is set; bars are the spread over seeds."""
    figure, (panel,) = panels(1, width=7.0, height=4.4)
    style = looks(row["preset"] for row in rows)
    values = sorted({row["value"] for row in rows}, key=place)
    for preset in style:
        mine = [row for row in rows if row["preset"] == preset]
        (own,) = (row for row in mine if row["own"])
        label = f"{preset}: {own['per_step_accuracy']:.1f} % as set, {seeds_text(own['seeds'])}"
        aside = 0.06 * list(style).index(preset)  # bars of several presets stand beside each other
        places = [values.index(row["value"]) + aside for row in mine]
        bars = [row["std"] for row in mine] if own["seeds"] > 1 else None
        panel.errorbar(places, [row["difference"] for row in mine], bars, capsize=3, label=label, **style[preset])
        panel.plot(values.index(own["value"]) + aside, 0, "o", color=VERMILLION, markersize=9)
    panel.set_xticks(range(len(values)), values)
    panel.set(xlabel=f"{rows[0]['field']} (dot: as it is set)", ylabel="A_step, points from the one as set")
    panel.set_title(rows[0]["method"])
    figure.legend(loc="outside lower center")
    return figure


def seeds_text(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"
