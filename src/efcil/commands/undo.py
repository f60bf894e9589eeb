"""`efcil undo`: go back to the model before the last change."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "undo", undo)
    add_model(command)
    command.add_argument(
        "--further", action="store_true", help="go back beyond a class that was forgotten, which does not come back"
    )


def undo(args: argparse.Namespace) -> None:
    """Take the last lesson, renaming or merging back; the last few changes are kept, and forgetting is for good."""
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        lost = store.undo(args.further)
        names = ", ".join(map(str, store.load().classes_))
    print(f"Taken back: {lost}; {args.model} now knows {names}.")
