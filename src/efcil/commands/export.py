"""`efcil export`: a model as a file for other programs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_json, add_model

MOST = 500  # photos to compare on


def add(commands: Any) -> None:
    command = add_command(commands, "export", export)
    add_model(command)
    command.add_argument(
        "--format", default="onnx", metavar="onnx|torch", help="for any runtime, or for PyTorch (%(default)s)"
    )
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="the file (beside the model, ending in .onnx or .pt2); written over"
    )
    command.add_argument(
        "--check", type=Path, metavar="PHOTOS", help="compare on these photos too: a file, a folder or a zip"
    )
    command.add_argument(
        "--int8", action="store_true", help="compute in eight bits: half the size, faster; measured on --check PHOTOS"
    )
    add_json(command)


def export(args: argparse.Namespace) -> None:
    """Write a model as one file that runs without this package, once it has been seen to answer alike."""
    from rich.console import Console
    from rich.filesize import decimal

    from efcil.engine.plan import numbered
    from efcil.errors import UserError, unknown
    from efcil.export.files import SUFFIXES, export_classifier
    from efcil.teaching.store import Store

    if args.format not in SUFFIXES:
        raise unknown("format", args.format, SUFFIXES)
    store = Store(args.model)
    out = args.out or args.model.with_suffix(SUFFIXES[args.format])
    if out.exists() and args.model.exists() and out.samefile(args.model):
        raise UserError(f"{out} is the model itself; give another --out.")
    classifier = store.load()
    console = Console(stderr=True)
    photos = photos_to_check(args.check, classifier, console)
    with console.status("exporting and comparing"):
        made = export_classifier(classifier, out, args.format, photos=photos, int8=args.int8)
    if args.json:
        print(json.dumps(asdict(made), indent=2))
        return
    print(f"{out}: {decimal(made.bytes)}, {numbered(len(made.about['classes']), 'class')}, no image inside")
    side = made.about["image_size"]
    print(f"input: images, uint8 (batch, {side}, {side}, 3); outputs: {', '.join(made.outputs)}")
    if made.same_answers is not None:
        print(
            f"the answer of {args.model} for {round(made.same_answers * made.photos)} of "
            f"{numbered(made.photos, 'photo')}, in eight bits"
        )
    looked = ((made.made_up_images, "made-up image"), (made.photos, "photo"))
    seen = " and ".join(numbered(count, what) for count, what in looked if count)
    print(f"largest difference to {args.model}: {made.largest_difference:.1g}, on {seen}")


def photos_to_check(source: Path | None, classifier: Any, console: Any) -> Any:
    """The photos that were given, or as many of them, evenly spread, as are looked at; all can be read."""
    import torch

    from efcil.data.images import ImageSet, Pixels
    from efcil.errors import UserError
    from efcil.teaching.photos import decoded, photo_files

    if source is None:
        return None
    (files,) = photo_files([source], classifier)
    if not len(files):
        raise UserError(f"There is no photo in {source}.")
    good, bad = decoded(files, console, range(0, len(files), -(-len(files) // MOST)))
    if bad:
        raise UserError(bad[0])
    return ImageSet(Pixels(torch.stack(list(good.values()))))
