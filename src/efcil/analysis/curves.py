"""Figures 14, 16 and 17: A_step after every step, one curve per method, mean over seeds, a panel per preset.

The spread is drawn where there are few curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from textwrap import fill
from typing import Any

from efcil.analysis.measured import Measured, average, spread
from efcil.analysis.style import Rows, looks, panels

LABEL_GAP = 0.045  # least distance of two labels, as a part of the height
LABEL_WIDTH = 24  # letters; settings go on in the next line
FEW = 6  # more bands than these hide the curves


def curves(found: Sequence[Measured]) -> Rows:
    """One row per preset, method and step."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in found:
        groups.setdefault((one.preset, one.label), []).append(one)
    rows: Rows = []
    for (preset, label), group in groups.items():
        lists = [one.per_step for one in group]
        first = group[0].first_step
        for place, (value, std) in enumerate(zip(average(lists), spread(lists), strict=True)):
            about = {"preset": preset, "method": label, "seeds": len(group)}
            rows.append({**about, "step": first + place, "per_step_accuracy": value, "std": std})
    return rows


def draw(rows: Rows, title: str = "") -> Any:
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    style = looks(row["method"] for row in rows)
    figure, axes = panels(len(presets), width=7.0 if len(presets) == 1 else 5.6, height=4.8)
    for panel, preset in zip(axes, presets, strict=True):
        own = [row for row in rows if row["preset"] == preset]
        ends = []
        for label in dict.fromkeys(row["method"] for row in own):
            mine = [row for row in own if row["method"] == label]
            steps, middle = [row["step"] for row in mine], [row["per_step_accuracy"] for row in mine]
            panel.plot(steps, middle, **{**style[label], "markersize": 4})
            if len(style) <= FEW and mine[0]["seeds"] > 1:
                low, high = (
                    [min(100, row["per_step_accuracy"] + sign * row["std"]) for row in mine] for sign in (-1, 1)
                )
                panel.fill_between(steps, low, high, color=style[label]["color"], alpha=0.12, linewidth=0)
            ends.append((middle[-1], label))
        top = panel.get_ylim()[1]
        ends.sort()
        length = steps[-1] - steps[0] or 1
        texts = [fill(label, LABEL_WIDTH) for _, label in ends]
        lines = [end for (end, _), text in zip(ends, texts, strict=True) for _ in text.splitlines()]
        heights = iter(apart(lines, LABEL_GAP * top))
        for (end, label), text in zip(ends, texts, strict=True):
            height = mean(next(heights) for _ in text.splitlines())
            colour = style[label]["color"]
            line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 2, "relpos": (0, 0.5)}
            place = (steps[-1] + 0.06 * length, height)
            panel.annotate(text, (steps[-1], end), place, color=colour, va="center", arrowprops=line)
        panel.set(xlabel="step", ylabel="accuracy on all classes seen, %", ylim=(0, top))
        panel.set_xticks(steps if len(steps) <= 12 else steps[::-2])
        panel.set_title(title if title and len(presets) == 1 else preset)
    return figure


def apart(heights: list[float], gap: float) -> list[float]:
    """These rising heights at least a gap apart: neighbours that overlap become a block around their mean."""
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and mean(blocks[-1]) - mean(blocks[-2]) < gap * (len(blocks[-1]) + len(blocks[-2])) / 2:
            last = blocks.pop()
            blocks[-1] += last
    return [mean(block) + gap * (place - (len(block) - 1) / 2) for block in blocks for place in range(len(block))]
