"""Figure 4: the accuracy on every task after every step, one matrix per method, mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efcil.analysis.runs import Run, by_label, same_scenario
from efcil.analysis.style import Rows, heat_map, panels


def matrices(runs: Sequence[Run]) -> Rows:
    """One row per method, step and task."""
    same_scenario(runs)
    rows: Rows = []
    for label, group in by_label(runs).items():
        for place, step in enumerate(group[0].steps):
            for task in range(place + 1):
                values = [run.metrics["accuracy_matrix"][place][task] for run in group]
                mean = sum(values) / len(values)
                rows.append(
                    {"method": label, "seeds": len(group), "step": step, "task": group[0].steps[task], "accuracy": mean}
                )
    return rows


def draw(rows: Rows) -> Any:
    labels = list(dict.fromkeys(row["method"] for row in rows))
    steps = sorted({row["step"] for row in rows})
    figure, axes = panels(len(labels), width=1.2 + 0.42 * max(len(steps), 6), height=1.0 + 0.36 * max(len(steps), 6))
    for panel, label in zip(axes, labels, strict=True):
        own = {(row["step"], row["task"]): row["accuracy"] for row in rows if row["method"] == label}
        matrix = [[own.get((step, task)) for task in steps] for step in steps]
        image = heat_map(panel, matrix, 0, 100, 0)
        places = range(len(steps))
        panel.set(
            xlabel="task", ylabel="after step", xticks=places, xticklabels=steps, yticks=places, yticklabels=steps
        )
        seeds = next(row["seeds"] for row in rows if row["method"] == label)
        panel.set_title(f"{label}" + (f", {seeds} seeds" if seeds > 1 else ""))
    figure.colorbar(image, ax=axes, label="accuracy, %", shrink=0.9)
    return figure
