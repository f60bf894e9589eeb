"""What a method sees of the task that it is learning: images as views, both networks, random numbers of the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from efcil.config import ClassifierConfig
from efcil.data.augment import Augmentation
from efcil.data.images import ImageSet
from efcil.engine.model import IncrementalModel
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.progress import Report, Silent, Watcher
from efcil.rng import generator


@dataclass
class Batch:
    """One mini-batch: normalised images (B, 3, S, S) and their columns among all classes seen (B,)."""

    x: Tensor
    y: Tensor


@dataclass
class Context:
    """What a method sees of the task it is learning."""

    config: ClassifierConfig
    task: int  # 0 is the first task
    model: IncrementalModel  # M_t, being trained
    old: IncrementalModel | None  # M_{t−1}, frozen
    images: ImageSet  # X_t
    columns: Tensor  # (N,) the column of each image's class among all classes seen
    classes: int  # |C_t|
    preprocessing: Preprocessing
    augmentation: Augmentation
    device: torch.device
    identity: str = ""  # fingerprint of the task and all settings, which a checkpoint must match
    saved_seconds: float = 0.0  # time that what was found in a checkpoint had taken
    past: tuple[ImageSet, Tensor] | None = None  # earlier images, only for methods that say they need them
    rng: torch.Generator = torch.default_generator  # set anew by the trainer for every epoch and stage
    watcher: Watcher = field(default_factory=Silent)
    _extracted: tuple[ImageSet, Tensor] | None = None  # features of a frozen backbone, which are computed once

    @property
    def first(self) -> bool:
        return self.task == 0

    @property
    def known(self) -> int:
        """Number of classes learnt in earlier tasks."""
        return len(self.model.weight) - self.classes

    @torch.no_grad()
    def old_features(self, x: Tensor) -> Tensor:
        """f(x; θ_{t−1}), which nothing is learnt from, (B, n)."""
        assert self.old is not None
        return self.old.features(x)

    def reseed(self, *place: int | str) -> None:
        """Give this place in the task its own random numbers; dropout in a backbone draws from torch's own."""
        self.rng = generator(self.config.seed, "task", self.task, *place)
        torch.manual_seed(self.rng.initial_seed())

    def report(self, stage: str) -> Report:
        """What tells whoever watches how far this stage of the task is."""
        return partial(self.watcher.stage, self.task, stage)

    def views(self, images: ImageSet, rows: list[Tensor], augmented: bool = True) -> Iterator[Tensor]:
        """These groups of rows in turn, augmented or not, ready for the network."""
        for pixels in images.batches(rows):
            view = self.augmentation(pixels, self.rng) if augmented else self.preprocessing.centred(pixels)
            yield self.preprocessing.normalised(view, self.device)

    def draw(self, columns: Tensor) -> Batch:
        """For each of these columns a random augmented image of its class, all of the current task."""
        order = self.columns.argsort(stable=True).cpu()
        sizes = self.columns.bincount(minlength=int(self.columns.max()) + 1).cpu()
        starts = sizes.cumsum(0) - sizes
        place = (torch.rand(len(columns), generator=self.rng) * sizes[columns]).long()
        rows = order[starts[columns] + place]
        return Batch(next(self.views(self.images, [rows])), self.columns[rows])

    @torch.no_grad()
    def extract(self, *models: IncrementalModel, augmented: bool, images: ImageSet | None = None) -> list[Tensor]:
        """Features of all current images (or of these), each model seeing the same view, (N, n) each.

        A frozen backbone gives the same features for the same images, so they are computed once in a task.
        """
        images = self.images if images is None else images
        once = not augmented and all(model.frozen_backbone for model in models)
        if once and self._extracted is not None and self._extracted[0] is images:
            return [self._extracted[1] for _ in models]
        looking = models[:1] if once else models
        for model in models:
            model.eval()
        parts, done, report = [], 0, self.report("extracting features")
        rows = list(torch.arange(len(images)).split(self.preprocessing.batch))
        for x in self.views(images, rows, augmented):
            parts.append([model.features(x) for model in looking])
            done += len(x)
            report(done, len(images))
        features = [torch.cat(part) for part in zip(*parts, strict=True)]
        if once:
            self._extracted = (images, features[0])
            return [features[0] for _ in models]
        return features
