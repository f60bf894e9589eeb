"""How commands show lists: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
from typing import Any


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
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


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
