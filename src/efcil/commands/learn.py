"""`efcil learn`: teach a model the classes of a folder."""

from __future__ import annotations

import argparse
import json
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model, add_photos

BACKBONE = "efficientnet-lite0"
METHOD = "lda"
SHOWN = 5  # confusions


def add(commands: Any) -> None:
    command = add_command(commands, "learn", learn)
    add_model(command)
    add_photos(command)
    command.add_argument("--method", metavar="NAME", help=f"for a new model: a name from `efcil methods` ({METHOD})")
    command.add_argument("--backbone", metavar="NAME", help=f"for a new model: the network ({BACKBONE})")
    command.add_argument(
        "--tune",
        action="store_true",
        help="for a new model: let the network learn in the first lesson; may pay for images unlike photographs",
    )
    command.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE", help="for a new model: any setting"
    )
    command.add_argument("--minutes", type=float, metavar="M", help="train no longer than about so many minutes")
    add_json(command, "print what the lesson came to as JSON on standard output")


def learn(args: argparse.Namespace) -> None:
    """Teach a model the photos of a folder of class folders; a model that is not there yet is made."""
    from rich.console import Console

    from efcil.engine.bar import Bar
    from efcil.teaching.lesson import taught
    from efcil.teaching.new import new_classifier
    from efcil.teaching.photos import read_photos
    from efcil.teaching.store import Store

    console = Console(stderr=args.json)
    store = Store(args.model)
    with store.changing():
        if store.exists:
            classifier = store.existing(args.method, args.backbone, args.tune, args.changes)
        else:
            classifier = new_classifier(args.method, args.backbone, args.tune, args.changes)
        photos = read_photos(args.folder, classifier, args.skip_bad, console)
        with Bar() as classifier.watcher:
            report = taught(classifier, photos, args.minutes)
        store.replace(classifier)
    if args.json:
        print(json.dumps({"model": str(store.path), **report.to_dict()}, indent=2))
    show(console, report, str(store.path), store.path.stat().st_size)


def show(console: Any, report: Any, model: str, size: int) -> None:
    """The report for a person."""
    from rich.filesize import decimal
    from rich.markup import escape
    from rich.table import Table

    from efcil.engine.plan import duration, numbered

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("class", "photos", "named rightly"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for row in report.classes:
        accuracy = "?" if row["accuracy"] is None else f"{row['accuracy']:.0%}"
        table.add_row(escape(row["class"]), str(row["photos"]), accuracy)
    console.print(table, highlight=False)
    told = any(row["accuracy"] is not None for row in report.classes)
    how = f"measured on {report.how}" if told else "too few photos of each class to tell how well it is known"
    console.print(f"[dim]{how}[/]", highlight=False, soft_wrap=True)
    if report.old_before is not None and report.old_after is not None:
        change = f"{report.old_before:.0%} before, {report.old_after:.0%} now"
        console.print(
            f"the classes from before, estimated from what is kept of them: {change}", highlight=False, soft_wrap=True
        )
    for row in report.confusions[:SHOWN]:
        line = f"{row['class']} is taken for {row['taken_for']} ({numbered(row['photos'], 'photo')})"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    line = f"{model}: {decimal(size)}, {duration(report.seconds)}"
    console.print(line, highlight=False, markup=False, soft_wrap=True)
