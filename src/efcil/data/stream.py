"""Streams of tasks over a labelled image set: cold start, warm start and domains (§6, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from efcil.config import StreamConfig
from efcil.data.dataset import DataSet
from efcil.data.images import ImageSet
from efcil.errors import UserError
from efcil.rng import generator


@dataclass(frozen=True)
class Task:
    """The classes that arrive together, with their training and test images and the name of each one's class."""

    classes: list[str]
    train: ImageSet
    train_labels: npt.NDArray[np.str_]
    test: ImageSet
    test_labels: npt.NDArray[np.str_]


class Stream:
    """Tasks with disjoint classes, in a fixed order; ``first_step`` is 0 for a warm start as in the paper."""

    def __init__(self, data: DataSet, config: StreamConfig, seed: int) -> None:
        self.data = data
        learnt = split_classes(data, config, seed)[: config.tasks]
        self.splits = [[data.names[label] for label in split] for split in learnt]
        self.first_step = 0 if config.kind == "warm" else 1
        self._column = {name: label for label, name in enumerate(data.names)}

    def __len__(self) -> int:
        return len(self.splits)

    def __iter__(self) -> Iterator[Task]:
        return (self.task(index) for index in range(len(self)))

    @property
    def classes_per_task(self) -> list[int]:
        return [len(split) for split in self.splits]

    def task(self, index: int) -> Task:
        return self._select(self.splits[index])

    def past(self, index: int) -> Task:
        """All tasks before this one together; only for upper bounds and oracles."""
        return self._select([name for split in self.splits[:index] for name in split])

    def _select(self, classes: list[str]) -> Task:
        wanted = torch.tensor([self._column[name] for name in classes])
        names = np.array(self.data.names)
        parts = []
        for images, labels in (
            (self.data.train, self.data.train_labels),
            (self.data.test, self.data.test_labels),
        ):
            rows = torch.isin(labels, wanted).nonzero().squeeze(1)
            parts.append((images.subset(rows), names[labels[rows].numpy()]))
        (train, train_labels), (test, test_labels) = parts
        return Task(classes, train, train_labels, test, test_labels)


def split_classes(data: DataSet, config: StreamConfig, seed: int) -> list[list[int]]:
    """The class indices of each task."""
    total = len(data.names)
    if config.kind == "domain":
        if data.domains is None:
            raise UserError("A domain stream needs a data set with domains, such as data.name=domains.")
        order = dict.fromkeys(data.domains)  # domains in their own order, as in the paper
        return [[i for i, domain in enumerate(data.domains) if domain == name] for name in order]
    first = config.first_classes
    if (config.kind == "warm") != (first > 0):
        raise UserError("stream.first_classes is the size of step 0: positive for a warm start, 0 for a cold start.")
    skipped = config.skip_classes
    if total - skipped - first < config.steps:
        out = f", {skipped} of them left out" if skipped else ""
        placed = f"{total} classes{out}, {first} of them in step 0"
        raise UserError(f"{placed}, leave too few for {config.steps} steps; lower stream.steps.")
    labels: Tensor = torch.arange(total)
    if config.shuffle:
        labels = torch.randperm(total, generator=generator(seed, "class order"))
    labels = labels[skipped:]
    steps = [part.tolist() for part in labels[first:].tensor_split(config.steps)]
    return [labels[:first].tolist(), *steps] if first else steps
