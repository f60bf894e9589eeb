"""`efcil evaluate`: how good a model is on photos whose classes are known."""

from __future__ import annotations

import argparse
import json
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model, add_photos


def add(commands: Any) -> None:
    command = add_command(commands, "evaluate", evaluate)
    add_model(command)
    add_photos(command)
    command.add_argument("--worst", type=int, default=5, metavar="K", help="list the K worst photos (5)")
    add_json(command)


def evaluate(args: argparse.Namespace) -> None:
    """Measure a model on photos in class folders: accuracy, per class, what is taken for what, and the worst photos."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from efcil.teaching.answers import evaluation
    from efcil.teaching.photos import read_photos
    from efcil.teaching.store import Store

    classifier = Store(args.model).load()
    console = Console(stderr=args.json)
    photos = read_photos(args.folder, classifier, args.skip_bad, console)
    found = evaluation(classifier, photos, args.worst)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    console.print(
        f"[bold]{found['accuracy']:.1%}[/] of {found['photos']} photos are named rightly",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("class", "photos", "right", "mostly taken for"):
        table.add_column(heading, justify="right" if heading in ("photos", "right") else "left")
    for row in found["classes"]:
        cells = str(row["photos"]), f"{row['accuracy']:.0%}", escape(row["taken_for"])
        table.add_row(escape(row["class"]), *cells)
    console.print(table, highlight=False)
    if found["never_taught"]:
        names = ", ".join(f"{row['class']} ({row['photos']})" for row in found["never_taught"])
        console.print(f"\nnever taught, so not measured: {names}", highlight=False, soft_wrap=True, markup=False)
    if found["worst"]:
        console.print("\nthe worst photos:", highlight=False, soft_wrap=True)
        for row in found["worst"]:
            line = f"  {row['photo']}: {row['answer']} {row['probability']:.0%}, is {row['class']}"
            console.print(line, highlight=False, soft_wrap=True, markup=False)
