"""Tiny-ImageNet: 200 classes of 64-pixel images; its labelled validation images are the test images."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from efcil.data.dataset import DataSet, existing
from efcil.data.sets.folder import class_folders, image_names, notes, parts
from efcil.data.sets.lists import read_lines
from efcil.errors import UserError

SIZE = 64
CLASSES = 200
FETCH = "efcil data get tiny-imagenet"
REMEDY = f"delete tiny-imagenet-200 and run: {FETCH}"


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/tiny-imagenet-200`` as its archive unpacks; classes are called by their WordNet number, sorted."""
    folder = existing(root, "tiny-imagenet-200", "wnids.txt", f"check --data-root, or run: {FETCH}")
    names = sorted(set(read_lines(folder / "wnids.txt", REMEDY)))
    if len(names) != CLASSES:
        raise UserError(f"{folder / 'wnids.txt'} names {len(names)} classes instead of {CLASSES}; {REMEDY}.")
    train = class_folders(folder / "train", names, inside="images")
    test_paths, test_labels = _annotated(folder / "val", names)
    data = parts(train.paths, train.labels, test_paths, test_labels, names, size or SIZE)
    return dataclasses.replace(data, notes=notes(folder / "train", train.skipped))


def _annotated(folder: Path, names: list[str]) -> tuple[list[str], list[int]]:
    """Images and labels of ``val_annotations.txt``: file, class and box, separated by tabs."""
    file = folder / "val_annotations.txt"
    column = {name: label for label, name in enumerate(names)}
    there = set(image_names(folder / "images"))
    labels: dict[str, int] = {}
    for line in read_lines(file, REMEDY):
        image, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if name not in column:
            raise UserError(f"{file} gives {image} the class {name!r}, which wnids.txt does not name; {REMEDY}.")
        if image not in there:
            raise UserError(f"{file} names {image}, which is not in {folder / 'images'}; {REMEDY}.")
        if image in labels:
            raise UserError(f"{file} names {image} twice; {REMEDY}.")
        labels[image] = column[name]
    if len(labels) != len(there):
        raise UserError(f"{file} names {len(labels):,} of the {len(there):,} images in {folder / 'images'}; {REMEDY}.")
    return [os.path.join(folder, "images", image) for image in labels], list(labels.values())
