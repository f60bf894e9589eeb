"""`efcil report`: one HTML file about runs, or about a model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_data_root, add_json


def add(commands: Any) -> None:
    command = add_command(commands, "report", report)
    command.add_argument(
        "given",
        nargs="+",
        type=Path,
        metavar="RUN|MODEL",
        help="folders of finished runs, folders of such folders (all finished runs in them), or one model file",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (report.html, or pets.report.html beside the model pets.efcil); written over",
    )
    command.add_argument(
        "--photos", type=Path, metavar="FOLDER", help="for a model: measure it on these photos, in class folders"
    )
    command.add_argument("--skip-bad", action="store_true", help="leave photos out that cannot be read")
    add_data_root(command)
    add_json(command, "print where the page is and what is in it as JSON")


def report(args: argparse.Namespace) -> None:
    """Write one HTML file about finished runs, or about a taught model; it opens without a network."""
    from efcil.errors import UserError

    models = [path for path in args.given if path.is_file()]
    if models and len(args.given) > 1:
        raise UserError(f"{models[0]} is a model; a report is on one model, or on folders of runs.")
    if args.photos and not models:
        raise UserError("--photos is for a model file; runs were measured when they were made.")
    args.out = args.out or (models[0].with_suffix(".report.html") if models else Path("report.html"))
    if args.out.is_dir():
        raise UserError(f"{args.out} is a folder; give a file such as {args.out / 'report.html'}.")
    made = of_model(args) if models else of_runs(args)
    if args.json:
        print(json.dumps(made, indent=2))
        return
    for sentence in made.get("left_out", []):
        print(f"left out: {sentence}")
    if len(made.get("scenarios", [])) > 1:
        several = ", ".join(made["scenarios"])
        print(f"These runs are of {len(made['scenarios'])} scenarios, each with a part of its own: {several}.")
    print(f"{made['report']}: open it in a browser")


def of_runs(args: argparse.Namespace) -> dict[str, Any]:
    from efcil.report.page import runs_report

    return runs_report(args.given, args.out, args.data_root)


def of_model(args: argparse.Namespace) -> dict[str, Any]:
    from efcil.report.page import environment, write_page

    environment()  # before anything takes long
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from efcil.report.model import model_page
    from efcil.teaching.photos import read_photos
    from efcil.teaching.store import Store

    store = Store(args.given[0])
    console = Console(stderr=True)
    classifier = store.load()
    photos = read_photos(args.photos, classifier, args.skip_bad, console) if args.photos else None
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        known = 0 if photos is None else int(np.isin(photos.names, [str(name) for name in classifier.classes_]).sum())
        work = 0 if photos is None else len(photos) + known * len(store.versions())
        row = bar.add_task("looking at photos", total=work or None)
        page = model_page(store, photos, lambda count: bar.advance(row, count))
    write_page("model.html", args.out, page=page)
    return {"report": str(args.out), "model": str(store.path), "photos": 0 if photos is None else len(photos)}
