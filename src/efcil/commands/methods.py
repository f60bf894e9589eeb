"""`efcil methods`: what there is to choose from."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows
from efcil.errors import UserError


def add(commands: Any) -> None:
    add_json(add_command(commands, "methods", methods))


def methods(args: argparse.Namespace) -> None:
    """List the methods: name, year, idea, and what is kept between tasks (bytes at the paper's 512 features)."""
    from efcil.bench.footprint import footprint
    from efcil.methods import available_methods, method_class

    rows = []
    for name in available_methods():
        try:
            cls = method_class(name)
            per_class, once = footprint(cls.shapes, cls.Options())
        except UserError as error:  # a method of another package does not hide the rest
            print(f"efcil: {error}", file=sys.stderr)
            continue
        rows.append(
            {
                "name": name,
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
                "idea, and what is kept between tasks": f"{row['idea']}\n[dim]keeps {row['stores']}{sizes(row)}[/]",
            }
            for row in rows
        ]
    print_rows(rows, args.json)


def sizes(row: dict[str, Any]) -> str:
    """What a method keeps, in bytes: `` (2.0 kB per class, 131.1 kB once)``."""
    from rich.filesize import decimal

    sizes = {"per class": row["bytes_per_class"], "once": row["bytes_once"]}
    listed = ", ".join(f"{decimal(size)} {what}" for what, size in sizes.items() if size)
    return f" ({listed})" if listed else ""
