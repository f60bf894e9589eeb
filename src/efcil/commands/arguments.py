"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[[argparse.Namespace], None]


def add_command(commands: Any, name: str, function: Command) -> argparse.ArgumentParser:
    """A command whose help is the docstring of its function."""
    text = function.__doc__ or ""
    added: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    added.set_defaults(command=function)
    return added


def add_json(command: argparse.ArgumentParser, what: str = "as JSON") -> None:
    command.add_argument("--json", action="store_true", help=what)


def default_data_root() -> Path:
    """Where image sets are looked for and put when --data-root does not say: EFCIL_DATA, or else the folder data."""
    return Path(os.environ.get("EFCIL_DATA") or "data")


def add_data_root(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data-root",
        type=Path,
        default=default_data_root(),
        metavar="DIR",
        help="folder of image sets, or of your own images (the folder that EFCIL_DATA names, or else data)",
    )


def add_out(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "--out", type=Path, default=Path(default), metavar="DIR", help=f"folder of run folders ({default})"
    )


def add_keep_states(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--keep-states",
        action="store_true",
        help="keep the classifier after every step, for figures that look at it; says how large they are",
    )


def add_changes(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--set", dest="changes", type=change, action="append", default=[], metavar="FIELD=VALUE", help=what
    )


def change(word: str) -> str:
    from efcil.bench.scenarios import short

    return short(word)


def add_computing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", metavar="NAME", help="auto, cpu, cuda, mps, … (auto: the GPU if there is one)")
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16"),
        help="bits of what is computed within the network (fp32); statistics always have 32 or 64",
    )
    command.add_argument("--compile", action="store_true", help="compile the network, which pays on a GPU")
    command.add_argument(
        "--deterministic", action="store_true", help="the same bits every time on the same GPU; a CPU always does that"
    )


def add_track(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--track",
        action="append",
        metavar="tensorboard|mlflow|wandb",
        help="tell an experiment tracker what is measured, too (docs/campaigns.md); repeatable",
    )


def add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, metavar="MODEL", help="a model file, such as pets.efcil")


def add_photos(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of class folders, or a zip of them")
    add_skip_bad(command)


def add_skip_bad(command: argparse.ArgumentParser) -> None:
    command.add_argument("--skip-bad", action="store_true", help="leave files out that cannot be read")
