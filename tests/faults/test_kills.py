"""kill -9 again and again, at moments that nobody chose: the run goes on each time and ends bit-equal.

    EFCIL_KILLS=200 pytest -m slow tests/faults/test_kills.py

Half of the kills come from outside after a random time. The others strike just before a file is opened for writing,
renamed or removed, for the moments of writing are too short to be hit by chance.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import arguments, assert_equal_runs, folder_in, metrics_in

from efcil.bench.campaign import cells
from efcil.bench.results import append_result, complete_table, read_results
from efcil.cli import main
from efcil.engine import state

KILLS = int(os.environ.get("EFCIL_KILLS", "8"))


def forked(work: Callable[[], int], before_write: int | None = None) -> int:
    """The number of a process that does the work; with a number it kills itself before it writes that many times."""
    child = os.fork()
    if child:
        return child
    try:
        if before_write is not None:
            die_before(before_write)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(work())
    finally:
        os._exit(99)


def die_before(count: int) -> None:
    """Have the system kill this process at its n-th change of the disk."""
    left = count

    def heard(event: str, given: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if event in ("os.rename", "os.remove", "os.mkdir") or writes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def finished_steps(out: Path) -> list[Any]:
    """The rows of the accuracy matrix that a killed run has left; all its files must be whole."""
    runs = [path for path in out.glob("*") if (path / "metrics.json").exists()]
    if not runs:
        return []
    for path in (*runs[0].glob("*.efcil"), *runs[0].glob("states/*.efcil")):
        state.read(path, "checkpoint" if path.name == "checkpoint.efcil" else "classifier")
    return [[value for value in row if value is not None] for row in metrics_in(runs[0])["accuracy_matrix"]]


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_bit_equal(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    seed = int(os.environ.get("EFCIL_KILLS_SEED", "0"))
    rng = random.Random(seed)
    assert main(arguments(tmp_path / "unbroken")) == 0  # in this process, so that its children have imported all
    begun = time.monotonic()
    assert ended(forked(lambda: main(arguments(tmp_path / "timed")))) == 0
    seconds = time.monotonic() - begun
    unbroken, out = folder_in(tmp_path / "unbroken"), tmp_path / "killed"
    kills: Counter[str] = Counter()
    runs = since = 0
    while True:
        enough = sum(kills.values()) >= KILLS
        by_clock, known = rng.random() < 0.5, finished_steps(out)
        # Few enough writes, and a short enough time, that a run is killed several times on its way.
        child = forked(
            lambda: main(arguments(out, "--resume")), None if by_clock or enough else rng.randrange(24 if since else 40)
        )
        if by_clock and not enough:
            time.sleep(rng.uniform(0.0, seconds * 0.6))
            os.kill(child, signal.SIGKILL)
        code = ended(child)
        assert finished_steps(out)[: len(known)] == known  # what was measured stays
        if code == -signal.SIGKILL:
            kills["by the clock" if by_clock else "at a write"] += 1
            since += 1
        else:
            assert code == 0
            assert_equal_runs(folder_in(out), unbroken)
            shutil.rmtree(out)
            runs, since = runs + 1, 0
            if enough:
                break
            print(f"{sum(kills.values())} kills, {runs} runs")
    print(f"{sum(kills.values())} kills of {runs} runs, all bit-equal: {dict(kills)}, seed {seed}")


def test_a_kill_while_a_result_is_recorded_loses_no_row(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    done = cells(["digits-cold5"], ["finetune"], range(2))
    numbers = {"per_step_accuracy": 1.0, "average_incremental_accuracy": 1.0, "average_forgetting": 0.0}
    metrics = {**numbers, "plasticity": 1.0, "seconds": 1.0, "kept_bytes": 1}
    metrics |= {"steps": [{"per_step_accuracy": 1.0}], "accuracy_matrix": [[1.0]]}

    def append(cell: Any) -> int:
        append_result(table, cell, metrics)
        return 0

    append(done[0])
    for writes in range(20):
        code = ended(forked(lambda: append(done[1]), writes))
        found = read_results(table)
        assert done[0].identity in found  # what was there stays
        if code == 0:
            break
        assert code == -signal.SIGKILL
        complete_table(table)
        lines = table.read_text().splitlines()
        assert len(lines) == 1 + len(found)  # the table has every record again
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        shutil.rmtree(table.with_suffix(".records"))
        table.unlink()
        append(done[0])
    assert writes > 3 and list(found) == [cell.identity for cell in done]
