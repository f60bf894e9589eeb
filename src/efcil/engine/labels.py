"""Labels of images, and what is written down of those of a lesson."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from efcil.errors import UserError

Labels = Sequence[Any] | npt.NDArray[Any] | Tensor


def label_array(labels: Labels) -> npt.NDArray[Any]:
    """Labels as a flat array of whole numbers or words."""
    listed = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(listed, str | bytes | Set | Mapping) or not isinstance(listed, Iterable):
        raise UserError(f"labels must be a list with one label per image, not {listed!r:.40}.")
    listed = list(listed)
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
