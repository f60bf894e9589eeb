"""Labels of images: with the images they come with, as columns, and what is written down of those of a lesson."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from efcil.data.given import labelled_items
from efcil.data.images import FILE_SIZE, ImageSet, Interpolation, files, image_set
from efcil.data.sets.folder import class_folders, notes
from efcil.data.zips import zipped_folders
from efcil.errors import Notice, UserError

Labels = Sequence[Any] | npt.NDArray[Any] | Tensor


def label_array(labels: Labels) -> npt.NDArray[Any]:
    """Labels as a flat array of whole numbers or words."""
    listed = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(listed, str | bytes | Set | Mapping) or not isinstance(listed, Iterable):
        raise UserError(f"labels must be a list with one label per image, not {listed!r:.40}.")
    listed = [_alone(label) for label in listed]
    kinds = {type(label) for label in listed}
    if all(issubclass(kind, bool | int | np.integer | np.bool_) for kind in kinds):
        try:
            return np.array(listed, dtype=np.int64)
        except OverflowError:
            largest = str(max(listed, key=abs))
            raise UserError(
                f"labels that are whole numbers must fit into 64 bits, which {largest:.40} does not; name the classes."
            ) from None
    if all(issubclass(kind, str) for kind in kinds):
        if any(label.endswith("\0") for label in listed):  # NumPy would drop it and take two names for one
            raise UserError("labels must not end with the character of code 0; name the classes without it.")
        return np.array(listed, dtype=np.str_)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UserError(f"labels must be a flat list of whole numbers or of words, one kind only, not of {names}.")


def _alone(label: Any) -> Any:
    """A tensor or array of one number, as data sets have it, as that number."""
    return label.item() if isinstance(label, np.ndarray | Tensor) and label.ndim == 0 else label


def labelled_images(
    images: Any, labels: Labels | None, size: int | None, interpolation: Interpolation, cache_mb: int, workers: int
) -> tuple[ImageSet, npt.NDArray[Any]]:
    """Images and the label of each, from whatever was given; read with this side, or as they come."""
    if isinstance(images, Dataset) and labels is None:
        images, labels = labelled_items(images, size, interpolation)
    if isinstance(images, str | os.PathLike) and (labels is None or Path(images).is_dir()):
        if labels is not None:
            raise UserError("A folder of class folders brings its own labels; give no labels with it.")
        if Path(images).suffix.lower() == ".zip":
            zipped, inside = zipped_folders(Path(images), size or FILE_SIZE, interpolation)
            return zipped.in_memory(cache_mb, workers), np.array(inside)
        if not Path(images).is_dir():
            raise UserError(f"{images} is not a folder of class folders; a single photo needs its label.")
        found = class_folders(Path(images))
        for note in notes(Path(images), found.skipped):
            warnings.warn(note, Notice, stacklevel=6)  # where partial_fit is called
        ready = files(found.paths, size or FILE_SIZE, interpolation, cache_mb, workers)
        return ready, np.array(found.names)[found.labels]
    if labels is None:
        raise UserError("labels are missing; give one per image.")
    ready = image_set(images, size, interpolation, cache_mb, workers)
    names = label_array(labels)
    if names.shape != (len(ready),):
        raise UserError(f"{len(ready)} images but labels of shape {names.shape}; give one label per image.")
    if size and ready.size != size:  # only a ready-made ImageSet can differ
        raise UserError(f"these images have {ready.size} pixels a side, the classifier needs {size}.")
    return ready, names


def columns_of(names: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Tensor:
    """The column of each label among the classes."""
    order = np.argsort(classes)
    return torch.from_numpy(order[np.searchsorted(classes, names, sorter=order)])


def counted(names: npt.NDArray[Any]) -> dict[str, int]:
    """How many images each class has."""
    classes, counts = np.unique(names, return_counts=True)
    return {str(name): int(count) for name, count in zip(classes, counts, strict=True)}


def renamed(classes: dict[str, int], old: str, new: str) -> dict[str, int]:
    """The counts of a lesson with one class called by another name, which may be there already."""
    counts: dict[str, int] = {}
    for name, count in classes.items():
        counts[new if name == old else name] = counts.get(new if name == old else name, 0) + count
    return counts


def without(lesson: dict[str, Any], name: str) -> dict[str, Any]:
    """A lesson that says nothing of this class."""
    return {**lesson, "classes": {known: count for known, count in lesson["classes"].items() if known != name}}
