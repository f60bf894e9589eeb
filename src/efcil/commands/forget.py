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
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        store.load()
        forgotten = store.forget(args.name)
    from efcil.engine.plan import numbered

    print(f"{args.name} is forgotten, in the model and its versions ({numbered(forgotten, 'file')}).")
