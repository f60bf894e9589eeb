"""`efcil predict`: what is on these photos."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model, add_skip_bad


def add(commands: Any) -> None:
    command = add_command(commands, "predict", predict)
    add_model(command)
    command.add_argument(
        "photos", nargs="+", type=Path, metavar="PHOTO", help="image files, or folders or zips of them"
    )
    add_skip_bad(command)
    command.add_argument("--top", type=int, default=1, metavar="K", help="show the K most likely classes (1)")
    command.add_argument(
        "--no-unknown", dest="unknown", action="store_false", help="always name a class, however unlike the photo is"
    )
    add_json(command)
    command.add_argument("--csv", action="store_true", help="as CSV")


def predict(args: argparse.Namespace) -> None:
    """Say what is on photos; one that is unlike every class the model knows is called unknown."""
    from rich.console import Console

    from efcil.errors import UserError
    from efcil.teaching.answers import answered
    from efcil.teaching.photos import list_bad, photo_files
    from efcil.teaching.store import Store

    classifier, console = Store(args.model).load(), Console(stderr=True)
    files = photo_files(args.photos, classifier)
    rows, bad = answered(classifier, files, args.top, args.unknown, console)
    show(args, rows)
    if bad and len(bad) == sum(map(len, files)) == 1:
        raise UserError(bad[0])
    if bad:
        list_bad(bad, sum(map(len, files)), console)
        if not args.skip_bad:
            raise UserError("The others were looked at; mend or remove these files, or add --skip-bad.")


def show(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The answers, in the form that was asked for."""
    if args.json:
        print(json.dumps(rows, indent=2))
    elif args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        places = range(1, args.top + 1)
        writer.writerow(["photo", "answer", *(f"{what}_{k}" for k in places for what in ("class", "probability"))])
        for row in rows:
            guesses = [part for guess in row["guesses"] for part in (guess["class"], f"{guess['probability']:.4f}")]
            writer.writerow([row["photo"], row["answer"], *guesses])
    else:
        width = max((len(row["photo"]) for row in rows), default=0)
        for row in rows:
            named = "  ".join(f"{guess['class']} {guess['probability']:.0%}" for guess in row["guesses"])
            said = f"{row['answer']} (if it had to be one of them: {named})" if row["unknown"] else named
            print(f"{row['photo']:{width}}  {said}")
