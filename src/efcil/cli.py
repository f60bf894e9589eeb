"""The command line: one small function per command, whose docstring is its help.

torch is imported inside the commands that need it, so that every --help answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from efcil import __version__
from efcil.errors import UserError

Command = Callable[[argparse.Namespace], None]


def run(args: argparse.Namespace) -> None:
    """Learn and evaluate one stream of tasks; everything about it goes to one folder."""
    from rich.console import Console

    from efcil.console import print_results

    console = Console(stderr=args.json)
    metrics, folder = _run(
        console, **{name: value for name, value in vars(args).items() if name not in ("command", "json")}
    )
    print_results(console, metrics, folder)
    if args.json:
        print(json.dumps({"folder": str(folder), **metrics}))


def _run(
    console: Any,
    preset: str,
    method: str,
    out: Path,
    seed: int = 0,
    changes: Sequence[str] = (),
    data_root: Path | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    first_tasks: Path | None = None,
) -> tuple[dict[str, Any], Path]:
    """One run with its display; returns its metrics and its folder."""
    from efcil.console import RunDisplay
    from efcil.runs import run as run_stream
    from efcil.runs import run_name
    from efcil.scenarios import resolve

    config = resolve(preset, method, seed, changes)
    folder = out / run_name(preset, config, changes)
    with RunDisplay(console, folder, method, tensorboard) as display:
        return run_stream(config, preset, folder, display, data_root, resume, first_tasks), folder


def demo(args: argparse.Namespace) -> None:
    """Learn the scikit-learn digits two classes at a time, with EFC++ and with plain fine-tuning beside it."""
    import torch
    from rich.console import Console

    from efcil.console import print_results

    torch.set_num_threads(1)  # a network this small loses more than it wins by sharing its work
    console = Console()
    console.print("Ten handwritten digits arrive two at a time; images of earlier digits are never seen again.\n")
    ours, folder = _run(console, "digits-cold5", "efc++", args.out, resume=True)
    plain, plain_folder = _run(console, "digits-cold5", "finetune", args.out, resume=True)
    console.print()
    print_results(console, ours, folder)
    a, b = ours["per_step_accuracy"], plain["per_step_accuracy"]
    console.print(
        f"\nAfter the last step EFC++ recognises [bold]{a:.1f} %[/] of all ten digits, plain fine-tuning {b:.1f} %: "
        f"[bold]{a - b:+.1f} points[/] (its files are in {plain_folder}).",
        highlight=False,
    )


def bench(args: argparse.Namespace) -> None:
    """Run methods × presets × seeds, one process per core; finished runs are skipped, a crashed one stops no other."""
    from rich.console import Console
    from rich.live import Live

    from efcil.bench.display import campaign_table, summary_table
    from efcil.bench.grids import expanded
    from efcil.bench.results import read_results, rows_of, summary
    from efcil.bench.runner import campaign, cells, seed_list

    console = Console(stderr=args.json)
    todo = cells(args.presets.split(","), expanded(args.methods), seed_list(args.seeds))
    with Live(console=console, refresh_per_second=1, transient=True) as live:
        jobs = campaign(
            todo,
            args.out,
            args.results,
            args.data_root,
            args.workers or os.cpu_count() or 1,
            lambda jobs: live.update(campaign_table(jobs)),
        )
    lines = summary(rows_of(read_results(args.results), todo))
    for preset, group in groupby(lines, key=itemgetter("preset")):
        console.print(summary_table(preset, list(group)))
    if args.json:
        print(json.dumps(lines, indent=2))
    failed = [job for job in jobs if job.status == "failed"]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of {len(jobs)} runs failed: "
            + "; ".join(f"{job.folder.name}: {job.message}" for job in failed)
        )


def data_list(args: argparse.Namespace) -> None:
    """List the image sets: what each is, what must lie under --data-root, whether it can be downloaded."""
    from efcil.data import DATA_SETS

    rows = [
        {"name": name, "download": about.download, "what": about.what, "layout": about.layout}
        for name, about in DATA_SETS.items()
    ]
    _print_rows(rows, args.json)


def data_get(args: argparse.Namespace) -> None:
    """Download a public image set, check it and unpack it; an interrupted download goes on where it stopped."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from efcil.data.download import get

    with Progress(
        "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    ) as bar:
        row = bar.add_task(args.name, total=None)
        fetched = get(args.name, args.data_root, lambda done, total: bar.update(row, completed=done, total=total))
    print(fetched)


def data_check(args: argparse.Namespace) -> None:
    """Count the images of every class, decode a sample of them, and say what is wrong."""
    from dataclasses import asdict

    from efcil.data.check import check

    report = check(args.name, args.data_root)
    if args.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        print(f"{report.name}: {report.classes} classes, {report.train:,} training and {report.test:,} test images")
        for part, (fewest, most) in (("training", report.train_per_class), ("test", report.test_per_class)):
            print(f"  {part} images per class: {fewest if fewest == most else f'{fewest} to {most}'}")
        print(f"  {report.sampled} images decoded")
        for name, digest in report.sources.items():
            print(f"  {name}: sha256 {digest}")
        for note in report.notes:
            print(f"  {note}")
    if report.problems:
        raise UserError(" ".join(report.problems))


def methods(args: argparse.Namespace) -> None:
    """List the methods: name, year, idea, and what is kept between tasks (bytes at the paper's 512 features)."""
    from efcil.footprint import footprint
    from efcil.methods import METHODS

    rows = []
    for cls in METHODS.values():
        per_class, once = footprint(cls.shapes, cls.Options())
        rows.append(
            {
                "name": cls.name,
                "year": cls.year,
                "exemplar_free": cls.exemplar_free,
                "stores": cls.stores,
                "bytes_per_class": per_class if cls.exemplar_free else None,
                "bytes_once": once if cls.exemplar_free else None,
                "idea": cls.idea,
            }
        )
    if not args.json:
        rows = [
            {
                "name": row["name"],
                "year": row["year"],
                "exemplar-\nfree": row["exemplar_free"],
                "idea, and what is kept between tasks": f"{row['idea']}\n[dim]keeps {row['stores']}{_sizes(row)}[/]",
            }
            for row in rows
        ]
    _print_rows(rows, args.json)


def presets(args: argparse.Namespace) -> None:
    """List the presets: data set, stream and machine size."""
    from efcil.scenarios import preset_names, read_preset

    rows = [{"name": name, "description": read_preset(name)["description"]} for name in preset_names()]
    _print_rows(rows, args.json)


def grids(args: argparse.Namespace) -> None:
    """List the grids, `efcil bench --methods @NAME`: rows of the paper's tables and its searches."""
    from efcil.bench.grids import GRIDS

    rows: list[dict[str, Any]] = [
        {"name": name, "runs": len(grid.methods), "what": grid.what} for name, grid in GRIDS.items()
    ]
    if args.json:
        rows = [{**row, "methods": GRIDS[row["name"]].methods} for row in rows]
    _print_rows(rows, args.json)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong usage or bad input, 1 anything else."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # busy waiting makes threads slower on a shared machine
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a campaign that is killed takes its runs with it
    command: Command = args.command
    try:
        command(args)
    except UserError as error:
        print(f"efcil: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = "the same command with --resume" if command is run else "the same command"
        print(f"efcil: interrupted; {again} goes on.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RuntimeError, OSError) as error:
        print(f"efcil: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="efcil", description="Add new classes to an image classifier over time, without keeping old images."
    )
    top.add_argument("--version", action="version", version=f"efcil {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = _add(commands, "run", run)
    command.add_argument("preset", metavar="PRESET", help="a name from `efcil presets`, or a YAML file of your own")
    command.add_argument("--method", default="efc++", help="a name from `efcil methods` (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="seed of class order, initial weights and all else (0)")
    command.add_argument("--data-root", type=Path, metavar="DIR", help="where the images are, for presets that need it")
    command.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of run folders (runs)")
    command.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change any setting, such as incremental.epochs=50, options.lambda_efm=5, stream.steps=20; repeatable",
    )
    command.add_argument("--resume", action="store_true", help="go on with a run that was cut off")
    command.add_argument(
        "--first-tasks", type=Path, metavar="DIR", help="share the trained first task with runs that have the same one"
    )
    command.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")
    command.add_argument("--json", action="store_true", help="print the metrics as JSON on standard output")

    command = _add(commands, "bench", bench)
    command.add_argument("--presets", required=True, metavar="A,B", help="presets, separated by commas")
    command.add_argument(
        "--methods",
        required=True,
        nargs="+",
        metavar="METHOD",
        help="methods, each with changes if you like: efc++ efc 'efc++:options.drift=none,options.eta=1'; "
        "@NAME stands for a list from `efcil grids`",
    )
    command.add_argument("--seeds", default="0", metavar="0,1,2", help="seeds, as 0,1,2 or 0-4 (0)")
    command.add_argument("--data-root", type=Path, metavar="DIR", help="where the images are, for presets that need it")
    command.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of run folders (runs)")
    command.add_argument(
        "--results",
        type=Path,
        default=Path("results/runs.csv"),
        metavar="CSV",
        help="table that finished runs are added to (results/runs.csv)",
    )
    command.add_argument("--workers", type=int, metavar="N", help="runs at the same time (one per core)")
    command.add_argument("--json", action="store_true", help="print the summary as JSON on standard output")

    command = _add(commands, "demo", demo)
    command.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="folder of run folders (runs/demo)"
    )

    group = commands.add_parser("data", help="List, download and check image sets.", description="Image sets.")
    actions = group.add_subparsers(title="actions", required=True, metavar="ACTION")
    _add(actions, "list", data_list).add_argument("--json", action="store_true", help="as JSON")
    for name, function in (("get", data_get), ("check", data_check)):
        command = _add(actions, name, function)
        command.add_argument("name", metavar="NAME", help="a name from `efcil data list`")
        command.add_argument(
            "--data-root", type=Path, default=Path("data"), metavar="DIR", help="folder of image sets (data)"
        )
        if name == "check":
            command.add_argument("--json", action="store_true", help="as JSON")

    for name, function in (("methods", methods), ("presets", presets), ("grids", grids)):
        command = _add(commands, name, function)
        command.add_argument("--json", action="store_true", help="as JSON")
    return top


def _add(commands: Any, name: str, function: Command) -> argparse.ArgumentParser:
    text = function.__doc__ or ""
    added: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    added.set_defaults(command=function)
    return added


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _sizes(row: dict[str, Any]) -> str:
    """What a method keeps, in bytes: `` (2.0 kB per class, 131.1 kB once)``."""
    from rich.filesize import decimal

    sizes = {"per class": row["bytes_per_class"], "once": row["bytes_once"]}
    listed = ", ".join(f"{decimal(size)} {what}" for what, size in sizes.items() if size)
    return f" ({listed})" if listed else ""


def _print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in rows[0]:
        short = all(len(_cell(row[name])) < 24 for row in rows)  # words and numbers stay whole, prose is wrapped
        table.add_column(name.replace("_", "-"), overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
