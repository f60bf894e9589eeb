"""`efcil grids`: what there is to choose from."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows


def add(commands: Any) -> None:
    add_json(add_command(commands, "grids", grids))


def grids(args: argparse.Namespace) -> None:
    """List the grids, `efcil bench --methods @NAME`: rows of the paper's tables and its searches."""
    from efcil.bench.grids import GRIDS

    rows: list[dict[str, Any]] = [
        {"name": name, "runs": len(grid.methods), "what": grid.what} for name, grid in GRIDS.items()
    ]
    if args.json:
        rows = [{**row, "methods": GRIDS[row["name"]].methods} for row in rows]
    print_rows(rows, args.json)
