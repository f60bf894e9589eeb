"""`efcil run`: one stream of tasks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efcil.commands.arguments import (
    add_changes,
    add_command,
    add_computing,
    add_data_root,
    add_json,
    add_keep_states,
    add_out,
    add_track,
)


def add(commands: Any) -> None:
    command = add_command(commands, "run", run)
    command.add_argument("preset", metavar="PRESET", help="a name from `efcil presets`, or a YAML file of your own")
    command.add_argument("--method", default="efc++", help="a name from `efcil methods`, or module:Class (%(default)s)")
    command.add_argument("--seed", type=int, default=0, help="seed of class order, initial weights and all else (0)")
    add_data_root(command)
    add_out(command, "runs")
    add_changes(
        command,
        "change any setting, such as incremental.epochs=50, options.lambda_efm=5, stream.steps=20; repeatable",
    )
    add_computing(command)
    command.add_argument("--resume", action="store_true", help="go on with a run that was cut off")
    command.add_argument(
        "--first-tasks", type=Path, metavar="DIR", help="share the trained first task with runs that have the same one"
    )
    add_keep_states(command)
    add_track(command)
    command.add_argument(
        "--tensorboard",
        dest="track",
        action="append_const",
        const="tensorboard",
        help="the same as --track tensorboard",
    )
    add_json(command, "print the metrics as JSON on standard output")


def run(args: argparse.Namespace) -> None:
    """Learn and evaluate one stream of tasks; everything about it goes to one folder."""
    from rich.console import Console

    from efcil.bench.console import print_results
    from efcil.bench.states import states_size
    from efcil.engine.distributed import is_first, processes

    console = Console(stderr=args.json)
    with processes():
        given = {name: value for name, value in vars(args).items() if name not in ("command", "json")}
        metrics, folder = run_one(console, **given)
        if not is_first():
            return
    print_results(console, metrics, folder)
    if args.keep_states:
        count, megabytes = states_size(folder)
        console.print(f"kept states of {count} steps, {megabytes:.1f} MB", highlight=False)
    if args.json:
        print(json.dumps({"folder": str(folder), **metrics}))


def run_one(
    console: Any,
    preset: str,
    method: str,
    out: Path,
    seed: int = 0,
    changes: Sequence[str] = (),
    data_root: Path | None = None,
    resume: bool = False,
    first_tasks: Path | None = None,
    keep_states: bool = False,
    track: Sequence[str] | None = None,
    device: str | None = None,
    precision: str | None = None,
    compile: bool = False,
    deterministic: bool = False,
) -> tuple[dict[str, Any], Path]:
    """One run with its display; returns its metrics and its folder."""
    from efcil.bench.console import RunDisplay
    from efcil.bench.folders import check_out
    from efcil.bench.run_folder import run_name
    from efcil.bench.runs import Unwatched
    from efcil.bench.runs import run as run_stream
    from efcil.bench.scenarios import resolve
    from efcil.bench.tracking import About, Tracked
    from efcil.config import to_dict
    from efcil.engine.distributed import is_first

    check_out(out)
    if precision is not None and precision != resolve(preset, method, seed, changes).classifier.precision:
        changes = [*changes, f"precision={precision}"]  # moves numbers, so it is a change like any other
    where = [] if device is None else [f"device={device}"]
    how = [f"{name}=true" for name, wanted in (("compile", compile), ("deterministic", deterministic)) if wanted]
    config = resolve(preset, method, seed, [*changes, *where, *how])
    folder = out / run_name(preset, config, changes)
    if not is_first():
        return run_stream(config, preset, folder, Unwatched(), data_root, resume, first_tasks, keep_states), folder
    about = About(folder, preset, method, seed, to_dict(config))
    with RunDisplay(console, folder, method) as display:
        watcher = Tracked(display, track or (), about)
        return run_stream(config, preset, folder, watcher, data_root, resume, first_tasks, keep_states), folder
