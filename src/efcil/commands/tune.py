"""`efcil tune`: settings chosen on images set aside."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efcil.commands.arguments import add_changes, add_command, add_data_root, add_json, add_out
from efcil.errors import UserError

if TYPE_CHECKING:
    from efcil.bench.tuning import Study

POLL_SECONDS = 1.0


def add(commands: Any) -> None:
    command = add_command(commands, "tune", tune)
    command.add_argument("preset", metavar="PRESET", help="a name from `efcil presets`, or a YAML file of your own")
    command.add_argument("--method", default="efc++", help="a name from `efcil methods`, or module:Class (%(default)s)")
    command.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="FIELD=VALUES",
        help="a field and what to try for it: options.eta=0.01..1:log, first.epochs=5..20, 'options.drift=ridge|efm'; "
        "repeatable",
    )
    command.add_argument("--trials", type=int, default=20, metavar="N", help="trials of the study in all (%(default)s)")
    command.add_argument(
        "--goal",
        default="per_step_accuracy",
        metavar="NAME",
        help="per_step_accuracy, average_incremental_accuracy, plasticity, or average_forgetting, of which less is "
        "better (%(default)s)",
    )
    command.add_argument(
        "--tasks", type=int, metavar="K", help="learn only the first K tasks; nothing of later ones is used (all)"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the runs and of what is tried (0)")
    add_changes(command, "change any setting of all trials, such as data.held_out=30; repeatable")
    add_data_root(command)
    add_out(command, "runs/tune")
    command.add_argument("--workers", type=int, metavar="N", help="trials at the same time (one per core)")
    add_json(command, "print trials and best settings as JSON on standard output")


def tune(args: argparse.Namespace) -> None:
    """Choose settings by trials on training images set aside; the same command goes on, also in several processes."""
    from rich.console import Console

    from efcil.bench.display import trials_table
    from efcil.bench.folders import check_out
    from efcil.bench.tuning import ask, begin, import_optuna, study_folder, write_answers

    for name in ("workers", "trials"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UserError(f"--{name} takes a number of at least 1, not {getattr(args, name)}.")
    check_out(args.out)
    import_optuna()
    console = Console(stderr=args.json)
    question = ask(
        args.preset, args.method, args.seed, args.goal, args.search, args.changes, args.tasks, args.data_root
    )
    folder = study_folder(args.out, question)
    study = begin(folder, question)
    if not study.complete(args.trials):
        work_in_processes(console, study, args.trials, args.workers or os.cpu_count() or 1, args.data_root)
    write_answers(study)
    rows, best = study.table(), study.best()
    console.print(trials_table(question.goal, rows, best))
    if best is None:
        raise RuntimeError(f"None of {len(rows)} trials was finished; {folder / 'trials.csv'} says why.")
    preset = (folder / "best.yaml").read_text()
    equal = sum(row["status"] == "done" and row[question.goal] == best[question.goal] for row in rows)
    which = f"The first of {equal} equally good settings" if equal > 1 else "The best settings"
    told = f"{which}, on {question.held_out} training images per class set aside, as {folder / 'best.yaml'}:"
    console.print(f"\n{told}\n", highlight=False, soft_wrap=True)
    console.print(preset, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"efcil run {folder / 'best.yaml'} --method {question.method}", highlight=False, markup=False, soft_wrap=True
    )
    if args.json:
        print(
            json.dumps({"folder": str(folder), "held_out": question.held_out, "best": best, "trials": rows}, indent=2)
        )


def work_in_processes(console: Any, study: Study, trials: int, workers: int, data_root: Path | None) -> None:
    """So many processes on the study, and a table of it meanwhile; interrupted, it takes them with it."""
    from rich.live import Live

    from efcil.bench.display import trials_table
    from efcil.bench.gpus import gpu_environment, visible_gpus

    gpus, device = visible_gpus(os.environ), study.question.config(()).classifier.device
    command = [sys.executable, "-m", "efcil.bench.tuning", str(study.folder), str(trials), str(data_root or "")]
    processes: list[tuple[subprocess.Popen[bytes], Path]] = []
    try:
        for slot in range(workers):
            log = study.folder / f"worker-{slot}.txt"
            threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
            environment = {**threads, **os.environ, **gpu_environment(slot, gpus, device)}
            with log.open("wb") as output:
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
            processes.append((process, log))
        with Live(console=console, refresh_per_second=1, transient=True) as live:
            while any(process.poll() is None for process, _ in processes):
                live.update(trials_table(study.question.goal, study.table(), study.best(), len(study.left(trials))))
                time.sleep(POLL_SECONDS)
    finally:
        for process, _ in processes:
            process.terminate()
            process.wait()
    for process, log in processes:
        if process.returncode:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"A worker stopped: {lines[-1] if lines else f'exit code {process.returncode}'}")
