"""What a person sees of a run fits a terminal of 80 columns, with every number whole."""

from __future__ import annotations

import io
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


@pytest.mark.parametrize(("width", "losses"), [(80, False), (120, True)])
def test_a_narrow_line_shows_place_and_time_left_and_a_wide_one_the_losses_too(
    width: int, losses: bool, tmp_path: Path
) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    with RunDisplay(console, tmp_path, "r-dfcil") as display:
        display.begin({"classes_per_task": [10] * 10, "first_step": 1, "steps": []}, [240_000] + 9 * [30_000])
        display.begun = (display.begun[0] - 10, 0)  # ten seconds ago
        display.step(Step(0, 0, 30, {"ce": 2.1234, "hkd": 0.5}, 2000))
        display.bar.refresh()
    line = out.getvalue().split("r-dfcil")[-1]
    assert "task 1/10  epoch 1/30" in line and "images/s" in line and "42:2" in line and " left" in line
    assert ("ce 2.123" in line) == losses
