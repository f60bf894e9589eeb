"""How commands show lists: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
from typing import Any

NARROW = 16  # characters that a column of words needs at least


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=box.SIMPLE)
    taken, wrapped = 0, 0
    for name in rows[0]:
        cells = [_cell(row[name]) for row in rows]
        short = all(len(cell) < (24 if " " in cell else 40) for cell in cells)  # words stay whole, prose is wrapped
        table.add_column(name.replace("_", "-"), overflow="fold", no_wrap=short)
        taken += 3 + max(map(len, [name, *cells])) if short else 0
        wrapped += not short
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    if wrapped and console.width - taken < NARROW * wrapped:  # too little room for words: a paragraph for each row
        for row in rows:
            (_, head), *rest = row.items()
            console.print(_cell(head), highlight=False, soft_wrap=True)
            console.print("  " + ", ".join(f"{name} {_cell(value)}" for name, value in rest), highlight=False)
        return
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
