"""`efcil bench`: a campaign of runs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efcil.commands.arguments import (
    add_changes,
    add_command,
    add_data_root,
    add_json,
    add_keep_states,
    add_out,
    add_track,
    default_data_root,
)
from efcil.errors import UserError, unknown

if TYPE_CHECKING:
    from efcil.bench.campaign import Job
    from efcil.bench.campaign_file import CampaignFile
    from efcil.bench.results import Cell

OUT, RESULTS = Path("runs"), Path("results/runs.csv")


def add(commands: Any) -> None:
    command = add_command(commands, "bench", bench)
    command.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="CAMPAIGN.yaml",
        help="a file that says what to run (docs/campaigns.md); flags win over it",
    )
    command.add_argument("--presets", metavar="A,B", help="presets, separated by commas")
    command.add_argument(
        "--methods",
        nargs="+",
        metavar="METHOD",
        help="methods, each with changes if you like: efc++ efc 'efc++:options.drift=none,options.eta=1'; "
        "@NAME stands for a list from `efcil grids`, module:Class for a method from elsewhere",
    )
    command.add_argument("--seeds", metavar="0,1,2", help="seeds, as 0,1,2 or 0-4 (0)")
    add_changes(command, "change any setting of all runs; a method's own changes win over it; repeatable")
    add_data_root(command)
    add_out(command, str(OUT))
    command.add_argument(
        "--results",
        type=Path,
        metavar="CSV",
        help=f"table of finished runs, made from the records beside it ({RESULTS})",
    )
    command.add_argument("--workers", type=int, metavar="N", help="runs at the same time (one per core)")
    add_keep_states(command)
    command.add_argument(
        "--launcher",
        metavar="local|slurm",
        help="run every cell as a job of submitit, on this machine or on a Slurm cluster (without: as plain processes)",
    )
    command.add_argument(
        "--slurm",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="what a job asks Slurm for, such as partition=gpu time=120 gpus_per_node=1 (time in minutes)",
    )
    add_track(command)
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="only list what is done, what would be run and about how long it takes, and which rows are stale",
    )
    add_json(command, "print the summary as JSON on standard output")
    command.set_defaults(data_root=None, out=None)  # so that a campaign file can say them


def bench(args: argparse.Namespace) -> None:
    """Run methods × presets × seeds, one process per core; finished runs are skipped, a crashed one stops no other."""
    from rich.console import Console

    from efcil.bench.campaign_file import CampaignFile, check_names, read_campaign
    from efcil.bench.display import summary_table
    from efcil.bench.folders import check_out
    from efcil.bench.launchers import LAUNCHERS
    from efcil.bench.results import read_results, rows_of, stale_rows, summary
    from efcil.bench.states import states_size
    from efcil.bench.tracking import check_trackers

    console = Console(stderr=args.json)
    file = read_campaign(args.file) if args.file else CampaignFile()
    if args.file:
        check_names(args.file, file)
    args.out, args.results = args.out or file.out or OUT, args.results or file.results or RESULTS
    check_out(args.out)
    args.data_root = args.data_root or file.data_root or default_data_root()
    args.workers = file.workers if args.workers is None else args.workers
    args.launcher = args.launcher or file.launcher
    if args.launcher not in (None, *LAUNCHERS):
        raise unknown("launcher", args.launcher, LAUNCHERS)
    if args.slurm and args.launcher != "slurm":
        raise UserError("--slurm says what a job asks Slurm for; it goes with --launcher slurm.")
    args.track = check_trackers(args.track or file.track)
    todo = asked_for(args, file)
    if args.dry_run:
        dry_run(console, args, todo)
        return
    jobs = carry_out(console, args, file, todo)
    results = read_results(args.results)
    lines = summary(rows_of(results, todo))
    for preset, group in groupby(lines, key=itemgetter("preset")):
        console.print(summary_table(preset, list(group)))
    if stale := len(stale_rows(results, todo)):
        console.print(
            f"\nstale rows of these runs in {args.results}: {stale}, made with other settings, defaults or numerics. "
            "They count for nothing; --dry-run lists them.",
            highlight=False,
        )
    if args.keep_states:
        counts, megabytes = zip(*(states_size(job.folder) for job in jobs), strict=True)
        console.print(f"\nkept states of {sum(counts)} steps, {sum(megabytes):.1f} MB in {args.out}", highlight=False)
    if args.json:
        print(json.dumps(lines, indent=2))
    failed = [job for job in jobs if job.status == "failed"]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of {len(jobs)} runs failed: "
            + "; ".join(f"{job.folder.name}: {job.message}" for job in failed)
        )


def asked_for(args: argparse.Namespace, file: CampaignFile) -> list[Cell]:
    """The cells, of what the flags say or else the file."""
    from efcil.bench.campaign import method_and_changes, seed_list
    from efcil.bench.campaign_file import combined
    from efcil.bench.grids import expanded

    presets = args.presets.split(",") if args.presets else file.presets
    methods = [method_and_changes(entry) for entry in expanded(args.methods)] if args.methods else file.methods
    for name, given in (("presets", presets), ("methods", methods)):
        if not given:
            where = f"{args.file} has no {name}" if args.file else f"--{name} is missing"
            raise UserError(f"Nothing to run: {where}; give --{name}, or a campaign file that has them.")
    seeds = seed_list(args.seeds) if args.seeds is not None else file.seeds or [0]
    return combined(presets, methods, seeds, [*file.settings, *args.changes])


def dry_run(console: Any, args: argparse.Namespace, todo: list[Cell]) -> None:
    from rich.progress import track

    from efcil.bench.campaign import jobs_of
    from efcil.bench.display import plan_table
    from efcil.bench.estimates import Estimator, total_sentence
    from efcil.bench.results import planned, read_results

    results = read_results(args.results)
    estimator = Estimator(results, args.data_root)
    jobs = jobs_of(todo, args.out, args.results, args.keep_states)
    waiting = [job.cell for job in jobs if job.status == "waiting"]
    found = {
        (cell.preset, cell.label, cell.seed): estimator.estimate(cell)
        for cell in track(waiting, "estimating", console=console, transient=True)
    }
    plan = planned(results, todo, waiting)
    for line in plan:
        estimate = found.get((line["preset"], line["method"], line["seed"]))
        if line["status"].startswith("to run") and estimate:
            line["hours"] = None if estimate.seconds is None else estimate.seconds / 3600
            line["hours_from"] = estimate.source
    console.print(plan_table(plan))
    for reason in dict.fromkeys(estimate.source for estimate in found.values() if estimate.seconds is None):
        console.print(f"\n{reason}", highlight=False)
    if found:
        seconds = [estimate.seconds for estimate in found.values()]
        workers = len(found) if args.launcher == "slurm" and args.workers is None else at_once(args)
        console.print(f"\n{total_sentence(seconds, min(workers, len(found)))}", highlight=False)
    if args.json:
        print(json.dumps(plan, indent=2))


def carry_out(console: Any, args: argparse.Namespace, file: CampaignFile, todo: list[Cell]) -> list[Job]:
    """With plain processes or with a launcher; returns what became of each run."""
    from rich.live import Live

    from efcil.bench.campaign import campaign
    from efcil.bench.display import CampaignLog, campaign_table
    from efcil.bench.launchers import launch, local_launcher, slurm_launcher, slurm_parameters

    arguments = [word for name in args.track for word in ("--track", name)]

    def carried_out(watch: Callable[[list[Job]], None]) -> list[Job]:
        places = (todo, args.out, args.results, args.data_root)
        if args.launcher is None:
            return campaign(*places, at_once(args), watch, args.keep_states, arguments)
        logs = args.out / "submitit"
        if args.launcher == "local":
            launcher = local_launcher(logs, at_once(args))
        else:
            slurm = {**file.slurm, **slurm_parameters(args.slurm)}
            launcher = slurm_launcher(logs, slurm, args.workers, len(todo))
        return launch(*places, launcher, watch, args.keep_states, arguments)

    if not console.is_terminal:  # a live table would show there only once all is over
        return carried_out(CampaignLog(partial(console.print, markup=False, highlight=False, soft_wrap=True)))
    with Live(console=console, refresh_per_second=1, transient=True) as live:
        return carried_out(lambda jobs: live.update(campaign_table(jobs)))


def at_once(args: argparse.Namespace) -> int:
    """How many runs go on at the same time on this machine."""
    return (os.cpu_count() or 1) if args.workers is None else int(args.workers)
