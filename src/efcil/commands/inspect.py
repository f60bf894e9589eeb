"""`efcil inspect`: what is in a model file."""

from __future__ import annotations

import argparse
import json
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "inspect", inspect)
    add_model(command)
    add_json(command)


def inspect(args: argparse.Namespace) -> None:
    """Show what a model knows: classes and photos of each, when they were taught, size, versions; it holds no image."""
    from rich.console import Console
    from rich.filesize import decimal
    from rich.markup import escape
    from rich.table import Table

    from efcil.engine.plan import numbered
    from efcil.teaching.answers import description
    from efcil.teaching.store import Store

    found = description(Store(args.model))
    if args.json:
        print(json.dumps(found, indent=2))
        return
    console = Console()
    size = decimal(found["bytes"])
    network = decimal(found["network_bytes"])
    console.print(
        f"{args.model}: {found['method']} on {found['backbone']}, {numbered(len(found['classes']), 'class')}, {size} "
        f"({network} of them the network), {'IMAGES' if found['images_inside'] else 'no image'} inside",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("class", "photos", "taught"):
        table.add_column(heading, justify="right" if heading == "photos" else "left")
    for row in found["classes"]:
        table.add_row(escape(row["class"]), str(row["photos"] or "?"), row["taught"] or "")
    console.print(table, highlight=False)
    console.print("\nhistory:", highlight=False, soft_wrap=True)
    for line in found["history"]:
        console.print(f"  {line}", highlight=False, markup=False)
    kept = len(found["versions"])
    back = f"; efcil undo {args.model} goes back" if kept else ""
    console.print(f"\n{numbered(kept, 'earlier version')} kept{back}", highlight=False, soft_wrap=True)
