"""Figures 6, 7 and 13: the accuracy on every task after the last step, a panel per preset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efcil.analysis.measured import Measured, average, spread
from efcil.analysis.style import Rows, legend, looks, panels

NAME = 1.7  # inches of a name in the legend


def bars(found: Sequence[Measured]) -> Rows:
    """One row per preset, method and task, mean over seeds."""
    rows: Rows = []
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in found:
        groups.setdefault((one.preset, one.label), []).append(one)
    for (preset, label), group in groups.items():
        lists = [one.per_task for one in group]
        first = group[0].first_step
        for place, (value, std) in enumerate(zip(average(lists), spread(lists), strict=True)):
            seeds = {"seeds": len(group)}
            rows.append(
                {"preset": preset, "method": label, **seeds, "task": first + place, "accuracy": value, "std": std}
            )
    return rows


def draw(rows: Rows) -> Any:
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    style = looks(row["method"] for row in rows)
    longest = max(len({row["task"] for row in rows if row["preset"] == preset}) for preset in presets)
    width = max(5.5, 0.25 * longest * (1 + 0.35 * len(style)))
    figure, axes = panels(1, width=width, height=2.9, rows=len(presets))
    for panel, preset in zip(axes, presets, strict=True):
        own = [row for row in rows if row["preset"] == preset]
        labels, tasks = list(dict.fromkeys(row["method"] for row in own)), sorted({row["task"] for row in own})
        step = 0.84 / len(labels)
        for place, label in enumerate(labels):
            mine = [row for row in own if row["method"] == label]
            x = [row["task"] + (place - (len(labels) - 1) / 2) * step for row in mine]
            error = [row["std"] for row in mine] if mine[0]["seeds"] > 1 else None
            hatch = ("", "//", "..", "\\\\", "xx")[place % 5]
            panel.bar(
                x,
                [row["accuracy"] for row in mine],
                step * 0.92,
                yerr=error,
                color=style[label]["color"],
                hatch=hatch,
                edgecolor="white",
                linewidth=0.4,
                label=label,
                error_kw={"linewidth": 0.9, "ecolor": "#444444"},
            )
        panel.set(xlabel="task", ylabel="accuracy, %", xticks=tasks)
        panel.grid(axis="x", visible=False)
        panel.set_title(preset)
        panel.set_ylim(0, min(100, panel.get_ylim()[1]))
    legend(figure, axes, loc="outside upper right", ncols=min(len(style), int(width / NAME)))
    return figure
