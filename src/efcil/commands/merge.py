"""`efcil merge`: two classes become one."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "merge", merge)
    add_model(command)
    command.add_argument("into", metavar="A", help="the class that stays")
    command.add_argument("other", metavar="B", help="the class that becomes part of it")


def merge(args: argparse.Namespace) -> None:
    """Make two classes one, as if the photos of both had been taught as the first."""
    from efcil.teaching.store import Store

    store = Store(args.model)
    with store.changing():
        classifier = store.load()
        store.replace(classifier.merge(args.into, args.other))
    print(f"{args.other} is now part of {args.into}.")
