"""A campaign: every run in a process of its own on one core, so that the crash of one does not touch the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from efcil.bench.gpus import gpu_environment, visible_gpus
from efcil.bench.results import Cell, append_result, complete_table, read_results, record_path, rows_of
from efcil.bench.run_folder import read_metrics
from efcil.bench.scenarios import short
from efcil.bench.states import states_size
from efcil.engine import numerics
from efcil.engine.locks import locked
from efcil.errors import Busy, UserError

POLL_SECONDS = 1.0


@dataclass
class Job:
    """One cell of the campaign and what has become of it."""

    cell: Cell
    folder: Path
    status: str = "waiting"  # waiting, queued (on a cluster), running, done, failed
    slot: int = 0  # which of the runs at the same time it is
    process: subprocess.Popen[bytes] | None = None
    claim: ExitStack = field(default_factory=ExitStack)  # held while it runs: no other campaign takes it
    said: int = 0  # bytes of output.txt that are of earlier processes
    message: str = ""

    @property
    def stream(self) -> tuple[str, int]:
        return self.cell.preset, self.cell.seed

    def metrics(self) -> dict[str, Any]:
        """What the run has measured so far; nothing if that cannot be read, which its own process will say."""
        try:
            return read_metrics(self.folder / "metrics.json")
        except UserError:
            return {}

    def has_states(self, wanted: bool) -> bool:
        """Whether the run has kept the states that are wanted of it, after every one of its steps."""
        metrics = self.metrics() if wanted else {}
        return not wanted or (metrics.get("finished", False) and states_size(self.folder)[0] >= len(metrics["steps"]))


def cells(presets: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Every combination, seed by seed; ``efc++:options.drift=none,options.eta=1`` is a method with changes."""
    return [Cell(preset, *method_and_changes(entry), seed) for seed in seeds for preset in presets for entry in methods]


def method_and_changes(entry: str) -> tuple[str, tuple[str, ...]]:
    """``efc++:width=8`` or ``module:Class:width=8`` as the method and its changes, split at commas outside brackets."""
    method, _, rest = entry.partition(":")
    name, _, more = rest.partition(":")
    if name and "=" not in name:  # no change, so the class of a module
        method, rest = f"{method}:{name}", more
    return method, tuple(short(change) for change in split_outside_brackets(rest) if change)


def split_outside_brackets(text: str) -> list[str]:
    """``a=[1,2],b=3`` as ``a=[1,2]`` and ``b=3``."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in ")}]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def campaign(
    todo: Sequence[Cell],
    out: Path,
    results: Path,
    data_root: Path | None,
    workers: int,
    watch: Callable[[list[Job]], None] = lambda jobs: None,
    keep_states: bool = False,
    arguments: Sequence[str] = (),
) -> list[Job]:
    """Run what the results do not have with these settings, ``workers`` at a time; returns what became of each.

    With ``keep_states`` a run without its states counts as not done. ``arguments`` are further words for `efcil run`
    that move no number, such as ``--track mlflow``.
    """
    if workers < 1:
        raise UserError(f"--workers takes the number of runs at the same time, at least 1, not {workers}.")
    jobs = jobs_of(todo, out, results, keep_states)
    complete_table(results)
    gpus = visible_gpus(os.environ)
    try:
        while any(job.status in ("waiting", "running") for job in jobs):
            for job in jobs:
                if job.process is not None and job.process.poll() is not None:
                    _finish(job, results)
                elif job.status == "waiting" and recorded(results, job.cell) and job.has_states(keep_states):
                    job.status = "done"  # by another campaign
            for job in in_turn(jobs):
                free = set(range(workers)) - {job.slot for job in jobs if job.status == "running"}
                if not free:
                    break
                if _claimed(job):
                    job.slot = min(free)
                    _start(job, data_root, gpus, [*arguments, *(["--keep-states"] if keep_states else [])])
            watch(jobs)
            time.sleep(POLL_SECONDS)
    finally:
        for job in jobs:
            if job.process is not None and job.process.poll() is None:
                job.process.terminate()
                job.process.wait()
            job.claim.close()
    watch(jobs)
    return jobs


def recorded(results: Path, cell: Cell) -> bool:
    """Whether the record of this run is there by now."""
    return record_path(results, cell).exists()


def jobs_of(todo: Sequence[Cell], out: Path, results: Path, keep_states: bool) -> list[Job]:
    """A job per cell, done where the results have it; a wrong name fails now, not in an hour."""
    jobs = [Job(cell, out / cell.name) for cell in todo]
    done = read_results(results)
    for job in jobs:
        job.status = "done" if rows_of(done, [job.cell]) and job.has_states(keep_states) else "waiting"
    return jobs


def in_turn(jobs: Sequence[Job]) -> Iterator[Job]:
    """Those that wait, one by one; rather of another stream than one whose first task is being trained right now."""
    waiting = [job for job in jobs if job.status == "waiting"]
    while waiting:
        begun = {job.stream for job in jobs if job.status == "running" and not job.metrics().get("steps")}
        chosen = min(waiting, key=lambda job: job.stream in begun)
        waiting.remove(chosen)
        yield chosen


def _claimed(job: Job) -> bool:
    """Whether no other campaign has this run; from now on this one does."""
    try:
        job.claim.enter_context(locked(job.folder / ".claim", "claimed by another campaign"))
    except Busy:
        return False
    return True


def _start(job: Job, data_root: Path | None, gpus: Sequence[str], arguments: Sequence[str]) -> None:
    cell = job.cell
    command = [sys.executable, "-m", "efcil", "run", cell.preset, "--method", cell.method, "--resume"]
    command += ["--seed", str(cell.seed), "--out", str(job.folder.parent)]
    command += ["--first-tasks", str(job.folder.parent / "first-tasks")]  # the same for most methods: train it once
    command += [part for change in cell.changes for part in ("--set", change)]
    command += ["--data-root", str(data_root)] if data_root else []
    command += arguments
    own_gpu = gpu_environment(job.slot, gpus, cell.config.classifier.device)
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ, **own_gpu}
    with (job.folder / "output.txt").open("ab") as output:
        job.said = output.tell()
        job.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    job.status = "running"


def _finish(job: Job, results: Path) -> None:
    assert job.process is not None
    metrics, code = job.metrics(), job.process.returncode
    made = (metrics.get("config_digest"), metrics.get("numerics"))
    if code != 0 or not metrics.get("finished"):
        job.status, job.message = "failed", _last_words(job, code)
    elif made != (job.cell.config_digest, numerics.VERSION):
        job.status = "failed"
        job.message = "its preset or the program was changed while the campaign ran; start the campaign again"
    else:
        try:
            append_result(results, job.cell, metrics)
            job.status = "done"
        except UserError as error:  # the others need not stop for it
            job.status, job.message = "failed", f"it is finished, but not in the results: {error}"
    job.process = None
    job.claim.close()


def _last_words(job: Job, code: int) -> str:
    """Why a run failed: what it said last, or what ended it before it could say anything."""
    if code < 0:
        name = signal.Signals(-code).name
        why = " (by somebody, or by the system when memory ran out)" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}; the same command goes on with it"
    with (job.folder / "output.txt").open("rb") as output:
        output.seek(job.said)
        lines = output.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"


def seed_list(text: str) -> list[int]:
    """``0,1,2`` or ``0-4`` as numbers."""
    try:
        first, dash, last = text.partition("-")
        seeds = list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds:
        raise UserError(f"--seeds takes numbers such as 0,1,2 or, from the smaller to the greater, 0-4, not {text!r}.")
    return seeds
