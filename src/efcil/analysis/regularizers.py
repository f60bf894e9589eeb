"""Figure 8: forgetting and plasticity after every step, one curve per regulariser, mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efcil.analysis.measured import average, spread
from efcil.analysis.runs import Run, by_label, same_scenario
from efcil.analysis.style import Rows, legend, looks, panels

PANELS = (("average_forgetting", "average forgetting F, points"), ("plasticity", "plasticity PL, %"))


def forgetting_and_plasticity(runs: Sequence[Run]) -> Rows:
    """One row per method and step."""
    same_scenario(runs)
    rows: Rows = []
    for label, group in by_label(runs).items():
        columns: dict[str, list[float]] = {}
        for name, _ in PANELS:
            lists = [[step[name] for step in run.metrics["steps"]] for run in group]
            columns |= {name: average(lists), f"{name}_std": spread(lists)}
        for place, step in enumerate(group[0].steps):
            values = {name: column[place] for name, column in columns.items()}
            rows.append({"method": label, "seeds": len(group), "step": step, **values})
    return rows


def draw(rows: Rows) -> Any:
    figure, axes = panels(2, width=4.8, height=3.8)
    style = looks(row["method"] for row in rows)
    for panel, (name, what) in zip(axes, PANELS, strict=True):
        for label, look in style.items():
            own = [row for row in rows if row["method"] == label]
            steps, values = [row["step"] for row in own], [row[name] for row in own]
            panel.plot(steps, values, label=label, **look)
            if own[0]["seeds"] > 1:
                low, high = ([row[name] + sign * row[f"{name}_std"] for row in own] for sign in (-1, 1))
                panel.fill_between(steps, low, high, color=look["color"], alpha=0.12, linewidth=0)
        lowest = 1.05 * min(0.0, *(row[name] - row[f"{name}_std"] for row in rows))  # F may be negative
        panel.set(xlabel="step", ylabel=what, xticks=steps, ylim=(lowest, min(100, panel.get_ylim()[1])))
    axes[0].set_title("Forgetting")
    axes[1].set_title("Plasticity")
    legend(figure, axes, loc="outside right upper")  # on no curve
    return figure
