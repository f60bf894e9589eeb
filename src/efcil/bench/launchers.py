"""A campaign whose runs are jobs of submitit: on this machine, or as one array on a Slurm cluster.

Every job is a campaign of one cell where it runs. So it takes the same claim, leaves the same folder and writes the
same record as without a launcher; it goes on with a run that was cut off; and what the starting process does meanwhile,
or whether there still is one, does not matter to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from efcil.bench.campaign import Job, campaign, in_turn, jobs_of
from efcil.bench.gpus import gpu_environment, visible_gpus
from efcil.bench.results import Cell
from efcil.errors import UserError, unknown

LAUNCHERS = ("local", "slurm")
POLL_SECONDS = 1.0
STOP_SECONDS = 20.0  # that a job on this machine has to end in
YEAR = 365 * 24 * 60  # minutes; submitit's own limit for a job on this machine is two
SLURM = {"job_name": "efcil", "time": 24 * 60, "cpus_per_task": 1}  # unless --slurm says otherwise


@dataclass(frozen=True)
class CellWork:
    """What a job does: one cell, with everything that its campaign needs."""

    cell: Cell
    out: Path
    results: Path
    data_root: Path | None
    keep_states: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: not set

    def __call__(self) -> tuple[str, str]:
        for number in (signal.SIGTERM, signal.SIGINT):  # submitit would pass over them, and the run would go on
            signal.signal(number, _interrupt)
        for name, value in self.environment.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        if cores := os.environ.get("SLURM_CPUS_PER_TASK"):
            os.environ.setdefault("OMP_NUM_THREADS", cores)
        places = ([self.cell], self.out, self.results, self.data_root)
        (job,) = campaign(*places, 1, keep_states=self.keep_states, arguments=self.arguments)
        return job.status, job.message

    def checkpoint(self) -> Any:
        """When its time is up or its node is wanted, Slurm puts the job back into the queue, and the run goes on."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Launcher:
    """Where jobs are submitted to, and how many are submitted at once."""

    executor: Any
    at_once: int
    local: bool

    def stop(self, handle: Any) -> None:
        if not self.local:
            handle.cancel(check=False)
        elif not handle.done():
            with suppress(ProcessLookupError):
                os.kill(int(handle.job_id), signal.SIGTERM)  # handed on to the job; SIGINT may be ignored there


def local_launcher(folder: Path, workers: int) -> Launcher:
    """submitit's own executor on this machine, ``workers`` jobs at a time."""
    _at_least_one(workers)
    executor = _submitit().LocalExecutor(folder)
    executor.update_parameters(timeout_min=YEAR)
    return Launcher(executor, workers, local=True)


def slurm_launcher(folder: Path, parameters: Mapping[str, Any], workers: int | None, jobs: int) -> Launcher:
    """An array of all cells, of which Slurm runs ``workers`` at a time, or as many as it likes."""
    if workers is not None:
        _at_least_one(workers)
    submitit = _submitit()
    if shutil.which("srun") is None:
        raise UserError("There is no Slurm here (no srun); start this where sbatch works, or use --launcher local.")
    executor = submitit.SlurmExecutor(folder)
    known = executor._valid_parameters()  # nothing public tells them
    for name, value in parameters.items():
        if name not in known:
            raise unknown("Slurm parameter", name, known)
        if name == "time" and type(value) not in (int, float):
            raise UserError(f"--slurm time takes minutes, such as time=120, not {value!r}.")
    executor.update_parameters(**{**SLURM, "array_parallelism": workers or max(jobs, 1), **parameters})
    return Launcher(executor, max(jobs, 1), local=False)


def slurm_parameters(words: Sequence[str]) -> dict[str, Any]:
    """``partition=gpu`` and ``time=120`` as names and values."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"--slurm takes name=value, such as partition=gpu, not {word!r}.")
        clock = name == "time" and ":" in value  # YAML would read 2:00:00 as a number to the base of sixty
        found[name.replace("-", "_")] = value if clock else yaml.safe_load(value)
    return found


def launch(
    todo: Sequence[Cell],
    out: Path,
    results: Path,
    data_root: Path | None,
    launcher: Launcher,
    watch: Callable[[list[Job]], None] = lambda jobs: None,
    keep_states: bool = False,
    arguments: Sequence[str] = (),
) -> list[Job]:
    """Submit what the results do not have and wait for it; interrupted, it takes its jobs with it."""
    jobs = jobs_of(todo, out, results, keep_states)
    gpus = visible_gpus(os.environ) if launcher.local else []
    handles: dict[Cell, Any] = {}

    def work(job: Job) -> CellWork:
        environment: dict[str, str | None] = {}
        if launcher.local:  # submitit hides all GPUs from a job on this machine
            environment = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
            environment |= gpu_environment(job.slot, gpus, job.cell.config.classifier.device)
        root = data_root and data_root.absolute()
        places = (out.absolute(), results.absolute(), root)
        return CellWork(job.cell, *places, keep_states, tuple(arguments), environment)

    try:
        while any(job.status in ("waiting", "queued", "running") for job in jobs):
            for job in jobs:
                if job.status in ("queued", "running"):
                    _look(job, handles[job.cell])
            chosen = _chosen(jobs, launcher.at_once)
            if chosen:
                with launcher.executor.batch():
                    submitted = [launcher.executor.submit(work(job)) for job in chosen]
                handles |= {job.cell: handle for job, handle in zip(chosen, submitted, strict=True)}
            watch(jobs)
            time.sleep(POLL_SECONDS)
    finally:
        _stop(launcher, [handles[job.cell] for job in jobs if job.cell in handles and _at_work(job)])
    watch(jobs)
    return jobs


def _at_work(job: Job) -> bool:
    return job.status in ("queued", "running")


def _chosen(jobs: list[Job], at_once: int) -> list[Job]:
    """Those that are submitted next, each with a slot of its own."""
    chosen = []
    for job in in_turn(jobs):
        free = set(range(at_once)) - {other.slot for other in jobs if _at_work(other)}
        if not free:
            break
        job.slot, job.status = min(free), "running"
        chosen.append(job)
    return chosen


def _look(job: Job, handle: Any) -> None:
    """What has become of a submitted job."""
    if not handle.done():
        job.status = "queued" if handle.state.upper() in ("PENDING", "REQUEUED") else "running"
        return
    try:
        job.status, job.message = handle.result()
    except Exception as error:  # submitit's errors hold whole listings; the last line says what happened
        lines = [line for line in str(error).splitlines() if line.strip()]
        job.status, job.message = "failed", lines[-1].strip() if lines else type(error).__name__


def _stop(launcher: Launcher, handles: Sequence[Any]) -> None:
    for handle in handles:
        launcher.stop(handle)
    end = time.monotonic() + STOP_SECONDS
    while launcher.local and not all(handle.done() for handle in handles) and time.monotonic() < end:
        time.sleep(0.1)


def _at_least_one(workers: int) -> None:
    if workers < 1:
        raise UserError(f"--workers takes the number of runs at the same time, at least 1, not {workers}.")


def _submitit() -> Any:
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError("--launcher needs submitit; run: pip install 'efcil[cluster]'") from None
    return submitit
