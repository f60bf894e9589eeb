"""A labelled image set with a training and a test part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from efcil.data.images import ImageSet
from efcil.errors import UserError


@dataclass(frozen=True)
class DataSet:
    """Images and the index of the class of each; ``domains`` names the domain of each class, if there are any."""

    train: ImageSet
    train_labels: Tensor
    test: ImageSet
    test_labels: Tensor
    names: list[str]
    domains: list[str] | None = None

    def limited(self, per_class: int | None) -> DataSet:
        """Only the first ``per_class`` training images of each class."""
        if per_class is None:
            return self
        rows = [(self.train_labels == label).nonzero().squeeze(1)[:per_class] for label in range(len(self.names))]
        kept = torch.cat(rows).sort().values
        return replace(self, train=self.train.subset(kept), train_labels=self.train_labels[kept])


def every_fifth(
    images: ImageSet,
    labels: Sequence[int] | npt.NDArray[np.int64],
    names: list[str],
    domains: list[str] | None = None,
) -> DataSet:
    """Split off every fifth image of a class, in order, as its test image; a class needs at least two images."""
    labels = torch.as_tensor(np.asarray(labels)).long()
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for label, name in enumerate(names):
        rows = (labels == label).nonzero().squeeze(1)
        if len(rows) < 2:
            raise UserError(f"Class {name!r} has {len(rows)} image; at least 2 are needed to keep one for the test.")
        is_test[rows[4::5] if len(rows) >= 5 else rows[-1:]] = True
    train, test = (~is_test).nonzero().squeeze(1), is_test.nonzero().squeeze(1)
    return DataSet(images.subset(train), labels[train], images.subset(test), labels[test], names, domains)


def existing(root: Path | None, inside: str = "", needs: str = "") -> Path:
    """``root/inside``, or ``root`` itself when it already is that folder; a clear sentence when it is not there."""
    if root is None:
        raise UserError("This preset reads images from disk; say where they are with --data-root DIR.")
    for folder in (root / inside, root):
        if folder.is_dir() and (folder / needs).exists():
            return folder
    wanted = root / inside / needs
    raise UserError(f"{wanted} does not exist; check --data-root.")
