"""Look at an image set before hours are spent on it: how many images each class has, and whether some can be read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from efcil.config import WORKERS
from efcil.data import LOADERS
from efcil.data.dataset import DataSet
from efcil.data.images import ImageSet
from efcil.errors import UserError, unknown
from efcil.rng import generator

SAMPLE = 2  # images of each class and part that are decoded
LISTED = 10  # sentences of one kind
CHUNK = 64  # images that a thread decodes before it reports


@dataclass(frozen=True)
class Expected:
    """How many images each class of a public set has; empty where they differ."""

    train: int | None = None
    test: int | None = None


EXPECTED = {
    "cifar100": Expected(500, 100),
    "tiny-imagenet": Expected(500, 50),
    "imagenet-subset": Expected(test=50),
    "imagenet-1k": Expected(test=50),
}


@dataclass(frozen=True)
class Report:
    """What check() found; the set can be used when there are no problems."""

    name: str
    classes: int = 0
    train: int = 0
    test: int = 0
    train_per_class: tuple[int, int] = (0, 0)
    """Fewest and most training images of a class."""
    test_per_class: tuple[int, int] = (0, 0)
    """Fewest and most test images of a class."""
    sampled: int = 0
    """Images that were looked at."""
    unreadable: int = 0
    """Those of them that could not be decoded."""
    sources: dict[str, str] = field(default_factory=dict)
    """sha256 of the list files that decide what is in the set."""
    notes: list[str] = field(default_factory=list)
    """Worth knowing, not wrong."""
    problems: list[str] = field(default_factory=list)
    """One sentence each."""


def check(
    name: str,
    root: Path | None,
    sample: int | None = SAMPLE,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Count the images of each class and decode ``sample`` of them, chosen by the seed, from each part.

    Without a ``sample`` all are decoded, and every file that cannot be read is named.
    """
    if name not in LOADERS:
        raise unknown("data set", name, LOADERS)
    try:
        data = LOADERS[name](root, None)
    except UserError as error:  # what cannot even be listed has one problem
        return Report(name, problems=[str(error)])
    expected = EXPECTED.get(name, Expected())
    train, test = data.counts()
    sampled, unreadable = _decode(data, sample, seed, progress)
    problems = _miscounts(data.names, train, expected.train, "training")
    problems += _miscounts(data.names, test, expected.test, "test")
    return Report(
        name=name,
        classes=len(data.names),
        train=len(data.train),
        test=len(data.test),
        train_per_class=_range(train),
        test_per_class=_range(test),
        sampled=sampled,
        unreadable=len(unreadable),
        sources=data.sources,
        notes=[
            *_unequal(train, expected.train, "training"),
            *_unequal(test, expected.test, "test"),
            *data.notes,
        ],
        problems=problems + (unreadable if sample is None else _first(unreadable)),
    )


def _miscounts(names: list[str], counts: Tensor, expected: int | None, part: str) -> list[str]:
    """A sentence for each class with a wrong number of images, or with none."""
    found = list(zip(names, counts.tolist(), strict=True))
    if expected is None:
        return _first([f"Class {name} has no {part} images." for name, count in found if count == 0])
    return _first(
        [f"Class {name} has {count} {part} images instead of {expected}." for name, count in found if count != expected]
    )


def _unequal(counts: Tensor, expected: int | None, part: str) -> list[str]:
    fewest, most = _range(counts)
    if expected is not None or fewest == most:
        return []
    return [f"The classes have unequal numbers of {part} images, from {fewest} to {most}."]


def _decode(
    data: DataSet, sample: int | None, seed: int, progress: Callable[[int, int], None]
) -> tuple[int, list[str]]:
    """How many images were looked at, and a sentence for each that could not be, in the order of the set."""
    chosen: list[tuple[ImageSet, Tensor]] = []
    for part, images, labels in (("train", data.train, data.train_labels), ("test", data.test, data.test_labels)):
        for label in range(len(data.names)):
            rows = (labels == label).nonzero().squeeze(1)
            if sample is not None:
                rows = rows[torch.randperm(len(rows), generator=generator(seed, "check", part, label))[:sample]]
            chosen += [(images, few) for few in rows.split(CHUNK)]
    total, done = sum(len(rows) for _, rows in chosen), 0
    problems: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for (_, rows), found in zip(chosen, pool.map(_unreadable, chosen), strict=True):
            problems += found
            done += len(rows)
            progress(done, total)
    return total, problems


def _unreadable(few: tuple[ImageSet, Tensor]) -> list[str]:
    """A sentence for each of these images that cannot be decoded."""
    images, rows = few
    problems = []
    for row in rows:
        try:
            images.batch(row[None])
        except UserError as error:
            problems.append(str(error))
    return problems


def _first(sentences: list[str]) -> list[str]:
    """Enough of them to see what is wrong."""
    more = len(sentences) - LISTED
    return [*sentences[:LISTED], f"{more} more like the one before."] if more > 0 else sentences


def _range(counts: Tensor) -> tuple[int, int]:
    return int(counts.min()), int(counts.max())
