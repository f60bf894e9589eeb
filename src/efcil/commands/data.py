"""`efcil data list|get|check`: image sets."""

from __future__ import annotations

import argparse
import json
from typing import Any

from efcil.commands.arguments import add_command, add_data_root, add_json
from efcil.commands.output import print_rows
from efcil.errors import UserError


def add(commands: Any) -> None:
    group = commands.add_parser("data", help="List, download and check image sets.", description="Image sets.")
    actions = group.add_subparsers(title="actions", required=True, metavar="ACTION")
    add_json(add_command(actions, "list", data_list))
    for name, function in (("get", data_get), ("check", data_check)):
        command = add_command(actions, name, function)
        command.add_argument("name", metavar="SET", help="a name from `efcil data list`")
        add_data_root(command)
        if name == "check":
            command.add_argument("--all", action="store_true", help="decode every image and name each that is damaged")
            add_json(command)


def data_list(args: argparse.Namespace) -> None:
    """List the image sets: what each is, what must lie under --data-root, whether it can be downloaded."""
    from efcil.data import DATA_SETS

    rows = [
        {"name": name, "download": about.download, "what": about.what, "layout": about.layout}
        for name, about in DATA_SETS.items()
    ]
    print_rows(rows, args.json)


def data_get(args: argparse.Namespace) -> None:
    """Download a public image set, check it and unpack it; an interrupted download goes on where it stopped."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from efcil.data.fetch.download import get

    with Progress(
        "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    ) as bar:
        row = bar.add_task(args.name, total=None)
        fetched = get(args.name, args.data_root, lambda done, total: bar.update(row, completed=done, total=total))
    print(fetched)


def data_check(args: argparse.Namespace) -> None:
    """Count the images of every class, decode a sample of them or all, and say what is wrong."""
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from efcil.data.fetch.check import SAMPLE, check

    columns = ("{task.description}", BarColumn(10), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not args.all) as bar:
        row = bar.add_task(args.name, total=None)
        report = check(
            args.name,
            args.data_root,
            None if args.all else SAMPLE,
            progress=lambda done, total: bar.update(row, completed=done, total=total),
        )
    if args.json:
        print(json.dumps(asdict(report), indent=2))
    elif report.classes:
        print(f"{report.name}: {report.classes} classes, {report.train:,} training and {report.test:,} test images")
        for part, (fewest, most) in (("training", report.train_per_class), ("test", report.test_per_class)):
            print(f"  {part} images per class: {fewest if fewest == most else f'{fewest} to {most}'}")
        which = f"{report.sampled - report.unreadable} of {report.sampled}" if report.unreadable else report.sampled
        print(f"  {which} images decoded")
        for name, digest in report.sources.items():
            print(f"  {name}: sha256 {digest}")
        for note in report.notes:
            print(f"  {note}")
    if args.all and len(report.problems) > 1:
        if not args.json:
            print("\n".join(report.problems))
        raise UserError(f"{args.name} has {len(report.problems)} problems, each named above; put them right.")
    if report.problems:
        raise UserError(" ".join(report.problems))
