"""What people hand over as images: torch data sets and iterators become lists, a folder becomes its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from efcil.data.images import extensions
from efcil.errors import UserError


def labelled_items(dataset: Dataset[Any]) -> tuple[list[Any], list[Any]]:
    """The images and labels of a torch data set whose items are pairs of them."""
    places = None if isinstance(dataset, IterableDataset) else range(len(dataset))  # type: ignore[arg-type]
    items = list(dataset) if places is None else [dataset[place] for place in places]  # type: ignore[call-overload]
    if not items or any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise UserError(f"the items of {type(dataset).__name__} must be pairs of an image and its label, at least one.")
    return [image for image, _ in items], [label for _, label in items]


def unlabelled(images: Any) -> Any:
    """Images to be recognised: all files of a folder, what an iterator yields, or as given."""
    if isinstance(images, str | os.PathLike) and Path(images).is_dir():
        return files_inside(Path(images))
    if isinstance(images, Dataset):
        return labelled_items(images)[0]
    if isinstance(images, Iterator):
        return list(images)
    return images


def files_inside(folder: Path) -> list[str]:
    """All images in a folder and in the folders inside it, in name order; hidden ones are not looked at."""
    found = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in extensions() and not any(part[0] == "." for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise UserError(f"There is no image in the folder {folder}.")
    return found
