"""`efcil rename`: call a class by another name."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "rename", rename)
    add_model(command)
    command.add_argument("old", metavar="OLD", help="the name now")
    command.add_argument("new", metavar="NEW", help="the name from now on")


def rename(args: argparse.Namespace) -> None:
    """Give a class another name; nothing else changes."""
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        classifier = store.load()
        store.replace(classifier.rename(args.old, args.new))
    print(f"{args.old} is now called {args.new}.")
