"""A campaign: every run in a process of its own on one core, so that the crash of one does not touch the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from efcil.bench.results import Cell, append_result, read_results, rows_of
from efcil.bench.runs import run_name
from efcil.bench.scenarios import resolve
from efcil.errors import UserError

POLL_SECONDS = 1.0


@dataclass
class Job:
    """One cell of the campaign and what has become of it."""

    cell: Cell
    folder: Path
    status: str = "waiting"  # waiting, running, done, failed
    process: subprocess.Popen[bytes] | None = None
    message: str = ""

    @property
    def stream(self) -> tuple[str, int]:
        return self.cell.preset, self.cell.seed

    def metrics(self) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self.folder / "metrics.json").read_text())
        except (OSError, json.JSONDecodeError):
            return {}
        return found


def cells(presets: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Every combination, seed by seed; ``efc++:options.drift=none,options.eta=1`` is a method with changes."""
    found = []
    for seed in seeds:
        for preset in presets:
            for entry in methods:
                method, _, changes = entry.partition(":")
                found.append(Cell(preset, method, tuple(filter(None, changes.split(","))), seed))
    return found


def campaign(
    todo: Sequence[Cell],
    out: Path,
    results: Path,
    data_root: Path | None,
    workers: int,
    watch: Callable[[list[Job]], None] = lambda jobs: None,
) -> list[Job]:
    """Run what the results do not have with these settings, ``workers`` at a time; returns what became of each."""
    done = read_results(results)
    jobs = []
    for cell in todo:
        config = resolve(cell.preset, cell.method, cell.seed, cell.changes)  # a wrong name fails now, not in an hour
        folder = out / run_name(cell.preset, config, cell.changes)
        jobs.append(Job(cell, folder, "done" if rows_of(done, [cell]) else "waiting"))
    try:
        while any(job.status in ("waiting", "running") for job in jobs):
            for job in jobs:
                if job.process is not None and job.process.poll() is not None:
                    _finish(job, results)
            while sum(job.status == "running" for job in jobs) < workers and (chosen := next_job(jobs)):
                _start(chosen, data_root)
            watch(jobs)
            time.sleep(POLL_SECONDS)
    finally:
        for job in jobs:
            if job.process is not None and job.process.poll() is None:
                job.process.terminate()
                job.process.wait()
    watch(jobs)
    return jobs


def next_job(jobs: Sequence[Job]) -> Job | None:
    """The first that waits, but rather one of another stream than one whose first task is being trained right now."""
    begun = {job.stream for job in jobs if job.status == "running" and not job.metrics().get("steps")}
    waiting = [job for job in jobs if job.status == "waiting"]
    return min(waiting, key=lambda job: job.stream in begun, default=None)


def _start(job: Job, data_root: Path | None) -> None:
    cell = job.cell
    command = [sys.executable, "-m", "efcil", "run", cell.preset, "--method", cell.method, "--resume"]
    command += ["--seed", str(cell.seed), "--out", str(job.folder.parent)]
    command += ["--first-tasks", str(job.folder.parent / "first-tasks")]  # the same for most methods: train it once
    command += [part for change in cell.changes for part in ("--set", change)]
    command += ["--data-root", str(data_root)] if data_root else []
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ}
    job.folder.mkdir(parents=True, exist_ok=True)
    with (job.folder / "output.txt").open("ab") as output:
        job.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    job.status = "running"


def _finish(job: Job, results: Path) -> None:
    assert job.process is not None
    metrics = job.metrics()
    if job.process.returncode == 0 and metrics.get("finished"):
        append_result(results, job.cell, metrics)
        job.status = "done"
    else:
        job.status = "failed"
        lines = (job.folder / "output.txt").read_text(errors="replace").strip().splitlines()
        job.message = lines[-1] if lines else f"exit code {job.process.returncode}"
    job.process = None


def seed_list(text: str) -> list[int]:
    """``0,1,2`` or ``0-4`` as numbers."""
    try:
        first, dash, last = text.partition("-")
        return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds takes numbers such as 0,1,2 or 0-4, not {text!r}.") from None
