"""What a method sees of the task that it is learning: images as views, both networks, random numbers of the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from efcil.config import ClassifierConfig
from efcil.data.augment import Augmentation
from efcil.data.images import ImageSet, image_bytes
from efcil.data.prefetch import prefetched
from efcil.engine.model import IncrementalModel
from efcil.engine.phases import Phases
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.progress import Report, Silent, Watcher
from efcil.rng import generator


@dataclass
class Batch:
    """One mini-batch: normalised images (B, 3, S, S) and their columns among all classes seen (B,)."""

    x: Tensor
    y: Tensor
    extra: Batch | None = None  # what the method planned for this step at the start of the epoch


Keep = Callable[[], None]
"""Called by long work wherever it could go on from its progress(); a checkpoint is then written if one is due."""


def unkept() -> None:
    """Nobody keeps anything."""


class View(NamedTuple):
    """Images to be read and changed: all by one seed (), each by its own (B,), or, without seeds, not at all."""

    rows: Tensor
    seeds: Tensor | None


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
    keep: Keep = unkept  # set by the trainer while a method prepares
    phase: Phases = field(default_factory=Phases)  # ``with ctx.phase("drift"):`` counts the time of what is within
    _extracted: tuple[ImageSet, Tensor] | None = None  # features of a frozen backbone, which are computed once

    def __post_init__(self) -> None:
        if self.device.type != "cpu":
            self.phase = Phases(torch.get_device_module(self.device).synchronize)

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
        torch.default_generator.manual_seed(self.rng.initial_seed())
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):  # this one only: other GPUs are nobody's business here
                torch.cuda.manual_seed(self.rng.initial_seed())
        elif self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(self.rng.initial_seed())

    def report(self, stage: str) -> Report:
        """What tells whoever watches how far this stage of the task is."""
        return partial(self.watcher.stage, self.task, stage)

    def view(self, rows: Tensor) -> View:
        """A new random view of these images."""
        return View(rows, torch.randint(2**62, (), generator=self.rng))

    def views(self, images: ImageSet, rows: Sequence[Tensor], augmented: bool = True) -> Iterator[Tensor]:
        """These groups of rows in turn, augmented or not, ready for the network."""
        return self.prepared(images, [self.view(group) if augmented else View(group, None) for group in rows])

    def prepared(self, images: ImageSet, views: Sequence[View]) -> Iterator[Tensor]:
        """These views in turn, ready for the network; threads read, augment and convert them ahead."""
        largest = max((len(view.rows) for view in views), default=0) * 4 * image_bytes(images.size)
        return prefetched([partial(self.shown, images, view) for view in views], self.config.workers, largest)

    def shown(self, images: ImageSet, view: View) -> Tensor:
        """One view, ready for the network; its seeds decide everything, so that it does not matter who computes it."""
        pixels = images.batch(view.rows)
        if view.seeds is None:
            pixels = self.preprocessing.centred(pixels)
        elif view.seeds.ndim == 0:
            pixels = self.augmentation(pixels, torch.Generator().manual_seed(int(view.seeds)))
        else:
            each = zip(pixels.split(1), view.seeds.tolist(), strict=True)
            pixels = torch.cat([self.augmentation(one, torch.Generator().manual_seed(seed)) for one, seed in each])
        return self.preprocessing.normalised(pixels, self.device)

    def draw(self, columns: Tensor) -> Tensor:
        """For each of these columns the row of a random image of its class, all of the current task."""
        order = self.columns.argsort(stable=True).cpu()
        sizes = self.columns.bincount(minlength=int(self.columns.max()) + 1).cpu()
        starts = sizes.cumsum(0) - sizes
        place = (torch.rand(len(columns), generator=self.rng) * sizes[columns]).long()
        return order[starts[columns] + place]

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
