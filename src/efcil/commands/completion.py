"""`efcil completion`: what the Tab key offers in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command
from efcil.errors import UserError

SHELLS = ("bash", "zsh", "tcsh")
INSTALL = """once, and again after an update:
  efcil completion bash > ~/.local/share/bash-completion/completions/efcil
  efcil completion zsh > ~/.zfunc/_efcil    (a folder of your $fpath)
  efcil completion tcsh > ~/.efcil.tcsh     (and in ~/.tcshrc: source ~/.efcil.tcsh)"""


def add(commands: Any) -> None:
    command = add_command(commands, "completion", completion)
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = INSTALL
    command.add_argument("shell", choices=SHELLS, help="the shell that is to read it")


def completion(args: argparse.Namespace) -> None:
    """Print a script that lets a shell complete commands, options, presets, methods and files."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise UserError("Shell completion is written by shtab; run: pip install 'efcil[completion]'") from None

    names = known_names()
    for action in walk(args.parser):
        words = choices(action, names)
        if words is not None:
            action.choices = words
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(args.parser, args.shell))


def known_names() -> dict[str, list[str]]:
    """What there is to choose from, by the name of the argument, or by how its help calls it."""
    from efcil.backbones import FROM_SCRATCH, LITE
    from efcil.bench.grids import GRIDS
    from efcil.bench.scenarios import preset_names
    from efcil.data import DATA_SETS
    from efcil.methods import available_methods

    methods, presets = list(available_methods()), preset_names()
    return {
        "preset": presets,
        "presets": presets,
        "method": methods,
        "methods": [*methods, *(f"@{name}" for name in GRIDS)],
        "backbone": [*FROM_SCRATCH, *LITE],
        "SET": list(DATA_SETS),
    }


def choices(action: argparse.Action, names: dict[str, list[str]]) -> list[str] | None:
    """The words that may stand here, if they can be listed; an argument says so by its name or by ``local|slurm``."""
    if action.choices is not None:
        return None
    if isinstance(action.metavar, str) and "|" in action.metavar and action.metavar.islower():
        return action.metavar.split("|")
    return names.get(action.dest) or names.get(str(action.metavar))


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a command and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from walk(inner)
