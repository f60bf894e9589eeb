"""`efcil compare`: which method would be best on these photos."""

from __future__ import annotations

import argparse
import json
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model, add_photos

FEW = 20  # photos; of fewer than that each is worth more than methods differ


def add(commands: Any) -> None:
    command = add_command(commands, "compare", compare)
    add_model(command)
    add_photos(command)
    command.add_argument("--methods", nargs="+", metavar="NAME", help="names from `efcil methods` (a few quick ones)")
    add_json(command)


def compare(args: argparse.Namespace) -> None:
    """Try several methods on photos, with the network of a model: taught four fifths of them, tested on the rest."""
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    from efcil.engine.plan import duration, numbered
    from efcil.teaching.comparison import METHODS, compared
    from efcil.teaching.photos import read_photos
    from efcil.teaching.store import Store

    console = Console(stderr=args.json)
    classifier = Store(args.model).load()
    photos = read_photos(args.folder, classifier, args.skip_bad, console)
    rows = []
    methods = args.methods or METHODS
    with console.status(f"0 of {len(methods)} methods tried") as status:
        for place, row in enumerate(compared(classifier, photos, methods)):
            rows.append(row)
            status.update(f"{place + 1} of {len(methods)} methods tried")
    rows.sort(key=lambda row: -row["accuracy"])
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("method", "named rightly", "time", "file"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    tested, lessons = rows[0]["photos_tested"], rows[0]["lessons"]
    for row in rows:
        right = f"{round(row['accuracy'] * tested)} of {tested}"
        cells = right, duration(row["seconds"]), decimal(row["bytes"])
        table.add_row(row["method"] + (" (this model)" if row["method"] == classifier.config.method else ""), *cells)
    console.print(table, highlight=False)
    done = f"{numbered(tested, 'photo')} tested after {numbered(lessons, 'lesson')}"
    console.print(f"{done}; the model itself was not changed", highlight=False, soft_wrap=True)
    if tested < FEW:
        console.print(f"With fewer than {FEW} photos a single one decides; give more.", highlight=False, soft_wrap=True)
