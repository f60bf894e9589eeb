"""`efcil undo`: go back to the model before the last change."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_model


def add(commands: Any) -> None:
    add_model(add_command(commands, "undo", undo))


def undo(args: argparse.Namespace) -> None:
    """Take the last lesson, renaming or merging back; the last few changes are kept."""
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        classifier = store.undo()
    names = ", ".join(map(str, classifier.classes_))
    print(f"{args.model} is as it was before the last change; it knows {names}.")
