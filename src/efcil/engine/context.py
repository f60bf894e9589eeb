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
from efcil.data.prefetch import from_processes, prefetched, worth_processes
from efcil.engine import distributed
from efcil.engine.model import IncrementalModel
from efcil.engine.phases import Phases
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.progress import Report, Silent, Watcher
from efcil.engine.repeated import Repeated
from efcil.rng import generator

AT_ONCE = 1 << 24  # numbers of features that are in memory together, 64 MB in float32; larger tasks come in chunks


@dataclass
class Batch:
    """One mini-batch: normalised images (B, 3, S, S) and their columns among all classes seen (B,)."""

    x: Tensor
    y: Tensor
    extra: Batch | None = None  # what the method planned for this step at the start of the epoch
    new: int | None = None  # only so many, the first ones, are images of new classes; none: all of them
    planned: Tensor | None = None  # of an extra one y again, as the method planned it: on the CPU, where it can be read


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
    repeated: Repeated = field(default_factory=Repeated)  # set by the trainer
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
        return self.repeated.features(x, self.old.learner.features)

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
        if distributed.world() == 1:
            yield from self.own(images, views)
            return
        side = self.preprocessing.size
        shapes = [(len(view.rows), side, side, 3) for view in views]  # as images lie in memory
        ready = (x.permute(0, 2, 3, 1) for x in self.own(images, views))
        yield from (x.permute(0, 3, 1, 2) for x in distributed.by_turns(ready, shapes, self.device))

    def own(self, images: ImageSet, views: Sequence[View]) -> Iterator[Tensor]:
        """Those of these views that it is this process's turn to make."""
        largest = max((len(view.rows) for view in views), default=0) * 4 * image_bytes(images.size)
        mine, workers = distributed.dealt(views), self.config.workers
        if self.config.worker_processes and worth_processes(len(mine), workers):  # none of which may touch a GPU
            pixels = from_processes([partial(self.changed, images, view) for view in mine], workers, largest)
            return (self.preprocessing.normalised(part, self.device) for part in pixels)
        return prefetched([partial(self.shown, images, view) for view in mine], workers, largest)

    def shown(self, images: ImageSet, view: View) -> Tensor:
        """One view, ready for the network."""
        return self.preprocessing.normalised(self.changed(images, view), self.device)

    def changed(self, images: ImageSet, view: View) -> Tensor:
        """The pixels of one view; its seeds decide everything, so that it does not matter who computes them."""
        pixels = images.batch(view.rows)
        if view.seeds is None:
            return self.preprocessing.centred(pixels)
        if view.seeds.ndim == 0:
            return self.augmentation(pixels, torch.Generator().manual_seed(int(view.seeds)))
        each = zip(pixels.split(1), view.seeds.tolist(), strict=True)
        return torch.cat([self.augmentation(one, torch.Generator().manual_seed(seed)) for one, seed in each])

    def draw(self, columns: Tensor) -> Tensor:
        """For each of these columns the row of a random image of its class, all of the current task."""
        order = self.columns.argsort(stable=True).cpu()
        sizes = self.columns.bincount(minlength=int(self.columns.max()) + 1).cpu()
        starts = sizes.cumsum(0) - sizes
        place = (torch.rand(len(columns), generator=self.rng) * sizes[columns]).long()
        return order[starts[columns] + place]

    @property
    def rows_at_once(self) -> int:
        """How many images may have their features in memory together, however many there are."""
        batch = self.preprocessing.batch
        return max(1, AT_ONCE // self.model.feature_dim // batch) * batch

    def chunks(
        self,
        *models: IncrementalModel,
        augmented: bool,
        images: ImageSet | None = None,
        columns: Tensor | None = None,
    ) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Rows (k,) and the features of these current images (or of these), each model seeing the same view, (k, n).

        All at once where they are few. Otherwise class after class, so that what is summed up for one can be finished
        before the next.
        """
        images, columns = (self.images, self.columns) if images is None or columns is None else (images, columns)
        if len(images) <= self.rows_at_once:
            yield torch.arange(len(images)), self.extract(*models, augmented=augmented, images=images)
            return
        for rows in columns.argsort(stable=True).cpu().split(self.rows_at_once):
            yield rows, self.extract(*models, augmented=augmented, images=images.subset(rows))

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
        views = [self.view(group) if augmented else View(group, None) for group in rows]
        own = (looked(looking, x) for x in self.own(images, views))
        shapes = [(len(group), len(looking), looking[0].feature_dim) for group in rows]
        for part in distributed.by_turns(own, shapes, self.device):
            parts.append(part)
            done += len(part)
            report(done, len(images))
        features = [part.contiguous() for part in torch.cat(parts).unbind(1)]
        if once:
            self._extracted = (images, features[0])
            return [features[0] for _ in models]
        return features


def looked(models: Sequence[IncrementalModel], x: Tensor) -> Tensor:
    """The features of each model, (B, models, n), all of them computed here."""
    with distributed.alone():
        return torch.stack([model.features(x) for model in models], dim=1)
