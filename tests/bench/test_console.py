"""What a person sees of a run fits a terminal of 80 columns, with every number whole."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from efcil.bench.console import RunDisplay, print_results
from efcil.bench.metrics import NAMES
from efcil.engine.progress import Step


@pytest.mark.parametrize("tasks", [5, 11, 21])
def test_the_matrix_of_many_tasks_is_whole(tasks: int) -> None:
    accuracies = [[100.0 if j == 0 else 12.34 for j in range(step + 1)] for step in range(tasks)]
    metrics = {
        **dict.fromkeys(NAMES, 12.34),
        **{"method": "r-dfcil", "preset": "cifar100-warm20", "seed": 0, "first_step": 0},
        "classes_per_task": [3] * tasks,
        "accuracy_matrix": accuracies,
        "steps": [{"step": step, "per_step_accuracy": 12.34} for step in range(tasks)],
    }
    out = io.StringIO()
    print_results(Console(file=out, width=80), metrics, Path("runs") / "one")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in out.getvalue()
    last = next(line.split() for line in lines if line.split()[:1] == [str(tasks - 1)])
    digits = 1 if tasks <= 11 else 0
    assert last == [str(tasks - 1), f"{100:.{digits}f}", *[f"{12.34:.{digits}f}"] * (tasks - 1), "12.3"]


SHOWN = {  # columns of the window: what the line says beside bar and percentage
    40: ["task 1/10", " left"],
    60: ["r-dfcil", "task 1/10", "epoch 1/30", " left"],
    80: ["r-dfcil", "task 1/10", "epoch 1/30", "images/s", " left"],
    120: ["r-dfcil", "task 1/10", "epoch 1/30", "images/s", " left", "ce 2.123", "hkd 0.500"],
}


@pytest.mark.parametrize("width", SHOWN)
def test_the_bar_has_room_in_every_window_and_the_rest_as_it_fits(width: int, tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    with RunDisplay(console, tmp_path, "r-dfcil") as display:
        display.begin({"classes_per_task": [10] * 10, "first_step": 1, "steps": []}, [240_000] + 9 * [30_000])
        display.begun = (display.begun[0] - 10, 0)  # ten seconds ago
        display.step(Step(0, 0, 30, {"ce": 2.1234, "hkd": 0.5}, 127_500))
        display.bar.refresh()
        line = shown(out)
        assert len(line) <= width and "…" not in line
        assert line.count("━") + line.count("╸") >= 2 and " 25 %" in line and "0:30" in line
        assert [word for word in SHOWN[120] if word in line] == SHOWN[width]
        display.stage(0, "after the epochs")
        display.bar.refresh()
        line = shown(out)
        assert (
            len(line) <= width and "…" not in line and "task 1/10  after the epochs" in line and "━" in line
        )  # a quarter of at least eight


@pytest.mark.parametrize("width", [20, 30, 40])
def test_a_long_name_leaves_the_bar_its_place(width: int, tmp_path: Path) -> None:
    out = io.StringIO()
    with RunDisplay(Console(file=out, width=width, force_terminal=True), tmp_path, "n" * 60) as display:
        display.begin({"classes_per_task": [10] * 10, "first_step": 1, "steps": []}, [1000] * 10)
        display.step(Step(0, 0, 30, {"ce": 2.1}, 500))
        display.bar.refresh()
        assert "━" in shown(out) and "task 1/10" in shown(out) and "%" in shown(out)


def shown(out: io.StringIO) -> str:
    """The last line that was drawn, without the codes that move the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue().rstrip().split("\r")[-1]).strip("\n").rstrip()
