"""ABD: Always Be Dreaming, a generator inverts the old network and its images are replayed beside the new ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, parameter_groups
from efcil.parts.inversion import Inversion, InversionOptions, replay


class ABD(Method):
    name = "abd"
    year = 2021
    idea = "a generator inverts the old network; its images hold the old outputs and balance all heads"
    stores = "a generator and its optimiser"
    shapes: ClassVar = {
        "generator": "G",
        "generator_statistics": "B",
        "first_moments": "G",
        "second_moments": "G",
        "steps": "int64",
    }
    freezes_batchnorm = False  # the next inversion needs the statistics of this task
    shown_per_image = 2
    recipe: ClassVar = {  # appendix D.2; the schedule is the publication's for ImageNet
        "incremental": {
            **{"optimizer": "sgd", "lr": 0.1, "backbone_lr": None, "momentum": 0.9, "weight_decay": 1e-4},
            **{"epochs": 100, "batch_size": 128, "milestones": [0.3, 0.6, 0.8, 0.9], "gamma": 0.1},
        }
    }

    @dataclass(frozen=True)
    class Options:
        """Settings of ABD."""

        mu: float = 0.1
        """Weight of the distillation, μ."""
        inversion: InversionOptions = field(default_factory=InversionOptions)
        """The generator of old images."""

        def __post_init__(self) -> None:
            at_least(self, mu=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.generated_before = options.inversion.iterations * options.inversion.batch_size
        self.kept: State = {}  # generator and optimiser of the last task; they go on from there
        self.inversion: Inversion | None = None  # while a task is learnt

    def before_task(self, ctx: Context) -> None:
        if ctx.old is not None:
            self.inversion = Inversion(self.options.inversion, ctx.preprocessing.size, ctx.device, ctx.rng)
            if self.kept:
                self.inversion.load_state(self.kept)

    def prepare(self, ctx: Context) -> bool:
        """Train the generator."""
        assert ctx.old is not None and self.inversion is not None
        self.inversion.train(ctx.old, ctx.rng, ctx.report("training the generator"), ctx.keep)
        return True

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone and ALL heads: generated images train the old ones too."""
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Weighted CE among the new classes + weighted CE of all heads, features fixed + μ importance-weighted KD."""
        assert ctx.old is not None and self.inversion is not None
        seen = replay(ctx, self.inversion, batch)
        features = ctx.model.features(seen.x)  # (2B, n)
        weights = image_weights(seen.y, ctx.known, ctx.classes).to(features.dtype)  # (2B,)
        new = features[: seen.real] @ ctx.model.newest.T
        everything = ctx.model.logits(features.detach())
        return {
            "ce": weighted_cross_entropy(new, batch.y - ctx.known, weights[: seen.real]),
            "heads": weighted_cross_entropy(everything, seen.y, weights),
            "kd": self.options.mu * F.mse_loss(features @ ctx.old.weight.detach().T, seen.old_logits),
        }

    def after_task(self, ctx: Context) -> None:
        if self.inversion is not None:
            self.kept, self.inversion = self.inversion.state(), None

    def state(self) -> State:
        return self.kept

    def load_state(self, state: State) -> None:
        self.kept = state

    def progress(self) -> State:
        return {} if self.inversion is None else {**self.inversion.progress(), **self.inversion.state()}

    def load_progress(self, state: State) -> None:
        if self.inversion is not None:
            self.inversion.load_progress(state)
            self.inversion.load_state(state)  # the next task goes on from its optimiser too


def image_weights(columns: Tensor, known: int, classes: int) -> Tensor:
    """r = old classes / all classes for an image of an old class, 1 − r for one of a new class, (B,)."""
    ratio = known / (known + classes)
    old = (columns < known).double()
    return old * ratio + (1 - old) * (1 - ratio)


def weighted_cross_entropy(logits: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
    """Mean over the images of w_x CE(x), not divided by the sum of the weights."""
    return (weights * F.cross_entropy(logits, columns, reduction="none")).mean()
