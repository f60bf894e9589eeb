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
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.errors import UserError

T = TypeVar("T", bound=Training)

LEAST_BATCH = 8
TRIED_IMAGES = 16  # of a step that is timed
TRIALS = 2  # timed after one that warms up


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
        what = f"{self.classes} class{'es' if self.classes > 1 else ''} from {self.images} images"
        how = f"{self.epochs} epochs in batches of {self.batch_size}" if self.epochs else "the network stays as it is"
        return f"learning {what}: {how}, about {duration(self.seconds)}"


def duration(seconds: float) -> str:
    """``40 s``, ``5 min`` or ``2.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def within_steps(training: T, images: int) -> T:
    """Epochs and batch size that make about as many optimiser steps of these images as the settings say, if they do."""
    if training.steps is None:
        return training
    batch_size = min(training.batch_size, max(LEAST_BATCH, images // 4))
    epochs = max(1, round(training.steps / math.ceil(images / batch_size)))
    return replace(training, batch_size=batch_size, epochs=epochs)


def within_minutes(training: Training, images: int, minutes: float, speed: Speed) -> int:
    """As many epochs as fit into the time, at least one and at most those of the settings."""
    if not 0 < minutes < math.inf:
        raise UserError(f"minutes must be a number above 0, not {minutes}.")
    affordable = (60 * minutes - images * speed.after) / (images * speed.training)
    return max(1, min(training.epochs, int(affordable)))


@dataclass(frozen=True)
class Speed:
    """Seconds per image on this machine."""

    training: float  # of one epoch
    after: float  # of everything after the epochs


def planned(ctx: Context, method: Method, training: Training, trains: bool, speed: Speed) -> Plan:
    """What learning the images of this context with these settings comes to."""
    images, classes = len(ctx.images), len(ctx.columns.unique())  # also those that are known and taught again
    epochs = training.epochs if trains else 0
    seconds = images * (epochs * speed.training + speed.after)
    return Plan(images, classes, epochs, training.batch_size, seconds, images * epochs * shown(ctx, method, training))


def shown(ctx: Context, method: Method, training: Training) -> int:
    """How many images a step shows for each of its own."""
    return max(1, training.turns) * (1 if ctx.first else method.shown_per_image)


def measured_speed(ctx: Context, method: Method, training: Training, trains: bool) -> Speed:
    """Time a forward pass and, if the network is trained, a step on a copy of it; nothing of the lesson is changed."""
    model = copy.deepcopy(ctx.model).eval()
    rows = torch.arange(min(TRIED_IMAGES, len(ctx.images)))

    def show() -> torch.Tensor:
        (x,) = ctx.views(ctx.images, [rows], augmented=False)
        return x

    def wait() -> None:
        torch.get_device_module(ctx.device).synchronize()  # a GPU is still at work when a call returns

    def look() -> None:
        with torch.no_grad():
            model.features(show())
        wait()

    def learn() -> None:
        x, y = show(), torch.zeros(len(rows), dtype=torch.int64, device=ctx.device)
        F.cross_entropy(model(x), y).backward()
        if ctx.old is not None:
            ctx.old_features(x)
        wait()

    looking = seconds_of(look) / len(rows)
    learning = seconds_of(learn) / len(rows) if trains else 0.0
    return Speed(learning * shown(ctx, method, training), looking * method.passes_after)


def seconds_of(function: Callable[[], None]) -> float:
    """The shortest of a few calls, after one that warms up."""
    function()
    times = []
    for _ in range(TRIALS):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return min(times)
