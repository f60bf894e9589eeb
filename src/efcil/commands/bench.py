"""`efcil bench`: a campaign of runs."""

from __future__ import annotations

import argparse
import json
import os
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_data_root, add_json, add_keep_states, add_out


def add(commands: Any) -> None:
    command = add_command(commands, "bench", bench)
    command.add_argument("--presets", required=True, metavar="A,B", help="presets, separated by commas")
    command.add_argument(
        "--methods",
        required=True,
        nargs="+",
        metavar="METHOD",
        help="methods, each with changes if you like: efc++ efc 'efc++:options.drift=none,options.eta=1'; "
        "@NAME stands for a list from `efcil grids`, module:Class for a method from elsewhere",
    )
    command.add_argument("--seeds", default="0", metavar="0,1,2", help="seeds, as 0,1,2 or 0-4 (0)")
    add_data_root(command)
    add_out(command, "runs")
    command.add_argument(
        "--results",
        type=Path,
        default=Path("results/runs.csv"),
        metavar="CSV",
        help="table of finished runs, made from the records beside it (results/runs.csv)",
    )
    command.add_argument("--workers", type=int, metavar="N", help="runs at the same time (one per core)")
    add_keep_states(command)
    command.add_argument(
        "--dry-run", action="store_true", help="only list what is done, what would be run, and which rows are stale"
    )
    add_json(command, "print the summary as JSON on standard output")


def bench(args: argparse.Namespace) -> None:
    """Run methods × presets × seeds, one process per core; finished runs are skipped, a crashed one stops no other."""
    from rich.console import Console
    from rich.live import Live

    from efcil.bench.campaign import campaign, cells, seed_list
    from efcil.bench.display import campaign_table, plan_table, summary_table
    from efcil.bench.grids import expanded
    from efcil.bench.results import planned, read_results, rows_of, stale_rows, summary
    from efcil.bench.states import states_size

    console = Console(stderr=args.json)
    todo = cells(args.presets.split(","), expanded(args.methods), seed_list(args.seeds))
    if args.dry_run:
        plan = planned(read_results(args.results), todo)
        console.print(plan_table(plan))
        if args.json:
            print(json.dumps(plan, indent=2))
        return
    with Live(console=console, refresh_per_second=1, transient=True) as live:
        jobs = campaign(
            todo,
            args.out,
            args.results,
            args.data_root,
            (os.cpu_count() or 1) if args.workers is None else args.workers,
            lambda jobs: live.update(campaign_table(jobs)),
            args.keep_states,
        )
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
