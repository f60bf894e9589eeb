"""What a lesson is going to do and how long that takes: a few steps are tried on this machine before it begins."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch.nn import functional as F

from efcil.config import Training
from efcil.engine.context import Context, View
from efcil.engine.device import kept_randomness
from efcil.engine.method import Method

T = TypeVar("T", bound=Training)

LEAST_BATCH = 8
TRIED_IMAGES = 4  # of a step that is timed, at least; more would take longer than a small lesson of large images
TRIED_PIXELS = 4 * 224 * 224  # of a step that is timed, if a batch has so many
TRIALS = 2  # timed after one that warms up
CHECKED = 64  # images that a network is shown after its epochs, and again at the end, to see that it gives numbers
TRIED_SIZE = 512  # of a matrix
clock = time.perf_counter


@dataclass(frozen=True)
class Plan:
    """The lesson in numbers; ``seconds`` is an estimate."""

    images: int
    classes: int
    epochs: int  # 0: the network is not trained
    batch_size: int
    seconds: float
    shown: int  # images that pass through all epochs, with rotations, mixes and generated ones

    def __str__(self) -> str:
        what = f"{numbered(self.classes, 'class')} from {numbered(self.images, 'image')}"
        epochs = f"{numbered(self.epochs, 'epoch')} in batches of {self.batch_size}"
        how = epochs if self.epochs else "the network stays as it is"
        return f"learning {what}: {how}, about {duration(self.seconds)}"


def duration(seconds: float) -> str:
    """``40 s``, ``5 min`` or ``2.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def numbered(count: int, noun: str) -> str:
    """``1 photo`` or ``2 photos``, ``1 class`` or ``2 classes``."""
    return f"{count} {noun}{('es' if noun.endswith('s') else 's') if count != 1 else ''}"


def within_steps(training: T, images: int) -> T:
    """Epochs and batch size that make about as many optimiser steps of these images as the settings say, if they do."""
    if training.steps is None:
        return training
    batch_size = min(training.batch_size, max(LEAST_BATCH, images // 4))
    epochs = max(1, round(training.steps / math.ceil(images / batch_size)))
    return replace(training, batch_size=batch_size, epochs=epochs)


@dataclass(frozen=True)
class Costs:
    """Seconds that a lesson takes on this machine."""

    epoch: float  # one of them
    rest: float  # before and after the epochs

    def epochs_within(self, minutes: float, most: int) -> int:
        """As many epochs as fit into the time beside all else, at least one and at most those of the settings."""
        return max(1, min(most, int((60 * minutes - self.rest) / self.epoch)))


def planned(ctx: Context, method: Method, training: Training, trains: bool, costs: Costs) -> Plan:
    """What learning the images of this context with these settings comes to."""
    classes = len(ctx.columns.unique())  # also those that are known and taught again
    epochs = training.epochs if trains else 0
    seconds = epochs * costs.epoch + costs.rest
    return Plan(len(ctx.images), classes, epochs, training.batch_size, seconds, epochs * epoch_images(ctx, method))


def shown(ctx: Context, method: Method, training: Training) -> int:
    """How many images a step shows for each of its own."""
    return max(1, training.turns) * (1 if ctx.first else method.shown_per_image)


def epoch_images(ctx: Context, method: Method) -> int:
    """How many images pass through one epoch of this task, earlier ones included where they are trained on."""
    config = replace(ctx.config, first=replace(ctx.config.first, epochs=1))
    config = replace(config, incremental=replace(config.incremental, epochs=1))
    earlier = 0 if ctx.past is None else len(ctx.past[0])
    return method.work(config, [len(ctx.images)] if ctx.first else [earlier, len(ctx.images)])[-1]


def measured_costs(ctx: Context, method: Method, trains: bool) -> Costs:
    """Time a look and, if the network is trained, a step on a copy of it; nothing of the lesson is changed."""
    model = copy.deepcopy(ctx.model).eval()
    trained = model.learner
    many = max(TRIED_IMAGES, TRIED_PIXELS // ctx.preprocessing.size**2)
    rows = torch.arange(min(many, len(ctx.images), method.training(ctx).batch_size))
    optimizer = torch.optim.Adam(model.parameters())

    def show(seeds: torch.Tensor | None) -> torch.Tensor:
        (x,) = ctx.prepared(ctx.images, [View(rows, seeds)])
        return x

    def wait() -> None:
        torch.get_device_module(ctx.device).synchronize()  # a GPU is still at work when a call returns

    def look() -> None:
        with torch.no_grad():
            trained.features(show(None))
        wait()

    def learn() -> None:
        x, y = show(torch.tensor(0)), torch.zeros(len(rows), dtype=torch.int64, device=ctx.device)
        optimizer.zero_grad()
        F.cross_entropy(trained.features(x), y).backward()  # an anchor takes no part
        if ctx.old is not None:
            ctx.old_features(x)
        optimizer.step()
        wait()

    images = len(ctx.images)
    looking = seconds_of(look) / len(rows)
    learning = seconds_of(learn) / len(rows) if trains else 0.0
    looks = images * method.passes_after(ctx) + (0 if ctx.model.frozen_backbone else 2 * min(CHECKED, images))
    made = 0 if ctx.first else method.generated_before
    with kept_randomness(ctx.device):
        rest = looks * looking + made * learning + method.seconds_after(ctx)
    return Costs(epoch_images(ctx, method) * learning, rest)


def seconds_of(function: Callable[[], object]) -> float:
    """The mean of a few calls, after one that warms up; other programs that slow them down will go on doing so."""
    function()
    begun = clock()
    for _ in range(TRIALS):
        function()
    return max(clock() - begun, 1e-6) / TRIALS  # a clock may go back


def seconds_at(size: int, work: Callable[[int], object], power: int = 3) -> float:
    """Of work with matrices of this size, whose time grows by a power of it, from a size that takes no time to try."""
    tried = min(size, TRIED_SIZE)
    return seconds_of(lambda: work(tried)) * (size / tried) ** power
