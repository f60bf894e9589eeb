"""`efcil data list|get|check`: image sets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows
from efcil.errors import UserError


def add(commands: Any) -> None:
    group = commands.add_parser("data", help="List, download and check image sets.", description="Image sets.")
    actions = group.add_subparsers(title="actions", required=True, metavar="ACTION")
    add_json(add_command(actions, "list", data_list))
    for name, function in (("get", data_get), ("check", data_check)):
        command = add_command(actions, name, function)
        command.add_argument("name", metavar="NAME", help="a name from `efcil data list`")
        command.add_argument(
            "--data-root", type=Path, default=Path("data"), metavar="DIR", help="folder of image sets (data)"
        )
        if name == "check":
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
    """Count the images of every class, decode a sample of them, and say what is wrong."""
    from dataclasses import asdict

    from efcil.data.fetch.check import check

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
