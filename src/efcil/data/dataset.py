"""A labelled image set with a training and a test part."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from efcil.config import CACHE_MB, WORKERS
from efcil.data.images import ImageSet
from efcil.data.packed import packed
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
    sources: dict[str, str] = field(default_factory=dict)
    """sha256 of each list file that decided what is in the set, so that a run can record it."""
    notes: list[str] = field(default_factory=list)
    """A sentence on what lies among the images and was left out, if anything does."""

    def limited(self, per_class: int | None) -> DataSet:
        """Only the first ``per_class`` training images of each class."""
        if per_class is None:
            return self
        rows = [(self.train_labels == label).nonzero().squeeze(1)[:per_class] for label in range(len(self.names))]
        kept = torch.cat(rows).sort().values
        return replace(self, train=self.train.subset(kept), train_labels=self.train_labels[kept])

    def holding_out(self, count: int) -> DataSet:
        """The last ``count`` training images of each class in the place of the test images, which nobody looks at."""
        if count == 0:
            return self
        fewest = int(self.counts()[0].min())
        if fewest <= count:
            raise UserError(f"A class has only {fewest} training images; data.held_out={count} leaves none to learn.")
        rows = [(self.train_labels == label).nonzero().squeeze(1) for label in range(len(self.names))]
        kept = torch.cat([row[:-count] for row in rows]).sort().values
        held = torch.cat([row[-count:] for row in rows]).sort().values
        return replace(
            self,
            train=self.train.subset(kept),
            train_labels=self.train_labels[kept],
            test=self.train.subset(held),
            test_labels=self.train_labels[held],
        )

    def packed(self, folder: Path, workers: int = WORKERS) -> DataSet:
        """The same set, the pixels of each part in a file of this folder; parts of one folder of images share it."""
        train = packed(self.train, folder, workers)
        shared = self.test.source is self.train.source
        test = ImageSet(train.source, self.test.rows) if shared else packed(self.test, folder, workers)
        return replace(self, train=train, test=test)

    def in_memory(self, cache_mb: int = CACHE_MB, workers: int = WORKERS) -> DataSet:
        """The same set, each part decoded once if it is small enough."""
        train, test = (part.in_memory(cache_mb, workers) for part in (self.train, self.test))
        return replace(self, train=train, test=test)

    def counts(self) -> tuple[Tensor, Tensor]:
        """Training and test images of each class."""
        train, test = (
            torch.bincount(part, minlength=len(self.names)) for part in (self.train_labels, self.test_labels)
        )
        return train, test


def every_fifth(images: ImageSet, labels: Sequence[int] | npt.NDArray[np.int64], names: list[str]) -> DataSet:
    """Split off every fifth image of a class, in order, as its test image: for sets that never change."""
    owner = torch.as_tensor(np.asarray(labels)).long()
    is_test = torch.zeros(len(owner), dtype=torch.bool)
    for label in range(len(names)):
        is_test[(owner == label).nonzero().squeeze(1)[4::5]] = True
    return _split(images, owner, is_test, names)


def split_by_name(
    images: ImageSet, files: Sequence[str], labels: Sequence[int], names: list[str], domains: list[str] | None = None
) -> DataSet:
    """Split off about a fifth of each class as test images, by the names of its files; it needs at least two."""
    owner = torch.tensor(labels)
    is_test = torch.zeros(len(owner), dtype=torch.bool)
    for label, name in enumerate(names):
        rows = (owner == label).nonzero().squeeze(1)
        if len(rows) < 2:
            raise UserError(f"Class {name!r} has {len(rows)} image; at least 2 are needed to keep one for the test.")
        is_test[rows] = torch.tensor(kept_for_test([files[row] for row in rows.tolist()]))
    return _split(images, owner, is_test, names, domains)


def kept_for_test(files: Sequence[str]) -> list[bool]:
    """Which of the files of a class are for the test: those whose name has a hash in the lowest fifth.

    So a file stays on its side when others come and go. Where no hash is that low, the lowest of all is for the test,
    and where none is higher, the highest is for training.
    """
    hashes = [_hash(file) for file in files]
    order = sorted(range(len(files)), key=lambda row: (hashes[row], files[row]))
    low = sum(value < 2**64 // 5 for value in hashes)
    chosen = set(order[: min(max(low, 1), len(files) - 1)])
    return [row in chosen for row in range(len(files))]


def _hash(file: str) -> int:
    """A number below 2⁶⁴ that depends on the name alone; é counts the same in either way that disks write it."""
    name = unicodedata.normalize("NFC", file).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8])


def _split(
    images: ImageSet, owner: Tensor, is_test: Tensor, names: list[str], domains: list[str] | None = None
) -> DataSet:
    train, test = (~is_test).nonzero().squeeze(1), is_test.nonzero().squeeze(1)
    return DataSet(images.subset(train), owner[train], images.subset(test), owner[test], names, domains)


def found(root: Path, inside: str, needs: str) -> Path | None:
    """``root/inside``, or ``root`` itself when it already is that folder; nothing when ``needs`` is in neither."""
    for folder in (root / inside, root):
        if folder.is_dir() and (folder / needs).exists():
            return folder
    return None


def existing(root: Path | None, inside: str = "", needs: str = "", remedy: str = "check --data-root") -> Path:
    """The folder that found() finds; a clear sentence when it is not there."""
    if root is None:
        raise UserError("These images are read from disk; say where they are with --data-root DIR.")
    if root.is_file():
        raise UserError(f"{root} is a file; give the folder that the images are in, with --data-root.")
    folder = found(root, inside, needs)
    if folder is None:
        raise UserError(f"{root / inside / needs} does not exist; {remedy}.")
    return folder
