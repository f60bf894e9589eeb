"""What people hand over as images: torch data sets and iterators become lists, a folder becomes its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from efcil.data.images import Interpolation, brought, extensions
from efcil.errors import UserError


def labelled_items(
    dataset: Dataset[Any], size: int | None, interpolation: Interpolation
) -> tuple[list[Any], list[Any]]:
    """The images and labels of a torch data set whose items are pairs of them; large images are made small at once."""
    images, labels = [], []
    for item in items_of(dataset):
        if not is_pair(item):
            break
        images.append(brought(item[0], size, interpolation))
        labels.append(item[1])
    else:
        if images:
            return images, labels
    raise UserError(f"the items of {type(dataset).__name__} must be pairs of an image and its label, at least one.")


def items_of(dataset: Dataset[Any]) -> Iterator[Any]:
    """All items of a data set of either kind, one after the other."""
    if isinstance(dataset, IterableDataset):
        yield from dataset
    else:
        for place in range(len(dataset)):  # type: ignore[arg-type]
            yield dataset[place]


def is_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2


def unlabelled(images: Any) -> Any:
    """Images to be recognised: all files of a folder, the images of a data set with or without labels, or as given."""
    if isinstance(images, str | os.PathLike) and Path(images).is_dir():
        return files_inside(Path(images))
    if isinstance(images, Dataset):
        return (item[0] if is_pair(item) else item for item in items_of(images))
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
