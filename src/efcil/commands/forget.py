"""`efcil forget`: take a class out of a model."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "forget", forget)
    add_model(command)
    command.add_argument("name", metavar="CLASS", help="the class to forget")


def forget(args: argparse.Namespace) -> None:
    """Forget a class, in the model and in every version that is kept of it; this cannot be undone."""
    from efcil.engine.plan import numbered
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        store.load()
        stay, gone = store.forget(args.name)
    print(f"{args.name} is forgotten, which cannot be undone.")
    if stay:
        print(f"{numbered(stay, 'earlier version')} kept without it.")
    if gone:
        why = "nothing else was known there, or perhaps the class by another name"
        print(f"{numbered(gone, 'earlier version')} removed: {why}.")
