"""R-DFCIL: generated images keep the old outputs, relations among new images keep the old geometry, heads refined last.

R-DFCIL is Relation-guided representation learning for Data-Free Class-Incremental Learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import Training, at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, newest_cross_entropy, parameter_groups
from efcil.parts.inversion import Inversion, InversionOptions, Replay, replay
from efcil.rng import uniform


@dataclass(frozen=True)
class Refining(Training):
    """Training whose last epochs have a learning rate of their own."""

    refining_epochs: int = 0
    """Epochs at the end in which only the heads learn."""
    refining_lr: float = 0.005
    """Their constant learning rate."""

    def lr_factor(self, epoch: int, part: float = 0.0) -> float:
        if epoch >= self.epochs - self.refining_epochs and self.lr > 0:
            return self.refining_lr / self.lr
        return super().lr_factor(epoch, part)


class RDFCIL(Method):
    name = "r-dfcil"
    year = 2022
    idea = "old outputs kept on generated images, angles among new images kept, then all heads refined"
    freezes_batchnorm = False  # the next inversion needs the statistics of this task
    shown_per_image = 2
    recipe: ClassVar = {  # appendix D.2; the schedule is the publication's for ImageNet
        "incremental": {
            **{"optimizer": "sgd", "lr": 0.1, "backbone_lr": None, "momentum": 0.9, "weight_decay": 1e-4},
            **{"epochs": 120, "batch_size": 128, "milestones": [0.25, 0.5], "gamma": 0.1},
        }
    }

    @dataclass(frozen=True)
    class Options:
        """Settings of R-DFCIL."""

        lambda_ce: float = 0.5
        """Weight of the cross-entropies, λ_ce."""
        lambda_hkd: float = 0.15
        """Weight of the hard knowledge distillation on generated images, λ_hkd."""
        lambda_rkd: float = 0.5
        """Weight of the relational knowledge distillation on new images, λ_rkd."""
        refinement: float = 0.25
        """Part of the epochs, the last ones, in which only the heads learn."""
        refinement_lr: float = 0.005
        """Learning rate in that part."""
        inversion: InversionOptions = field(default_factory=InversionOptions)
        """The generator of old images."""

        def __post_init__(self) -> None:
            at_least(self, lambda_ce=0.0, lambda_hkd=0.0, lambda_rkd=0.0, refinement_lr=0.0)
            part_of_one(self, "refinement")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.generated_before = options.inversion.iterations * options.inversion.batch_size
        self.inversion: Inversion | None = None  # while a task is learnt, as all that follows
        self.projections = nn.ParameterDict()  # of the features that are learnt and of the old ones, (2n, n) each
        self.counts = torch.empty(0)  # real and generated images shown of each class (m,)
        self.epoch = 0

    def training(self, ctx: Context) -> Training:
        """The optimiser settings, with the learning rate of the refinement at the end."""
        training = super().training(ctx)
        if ctx.first:
            return training
        settings = {f.name: getattr(training, f.name) for f in fields(Training)}
        last = round(self.options.refinement * training.epochs)
        return Refining(**settings, refining_epochs=last, refining_lr=self.options.refinement_lr)

    def before_task(self, ctx: Context) -> None:
        if ctx.old is None:
            return
        self.inversion = Inversion(self.options.inversion, ctx.preprocessing.size, ctx.device, ctx.rng)
        n = ctx.model.feature_dim
        for name in ("student", "teacher"):
            self.projections[name] = nn.Parameter(uniform(2 * n, n, ctx.rng).to(ctx.device))
        self.counts = torch.zeros(ctx.known + ctx.classes, device=ctx.device)
        self.epoch = 0

    def prepare(self, ctx: Context) -> bool:
        """Train the generator."""
        assert ctx.old is not None and self.inversion is not None
        self.inversion.train(ctx.old, ctx.rng, ctx.report("training the generator"), ctx.keep)
        return True

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone, ALL heads and the two projections."""
        return parameter_groups(ctx, self.training(ctx), [*ctx.model.heads, *self.projections.parameters()])

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """The loss of the phase that this epoch belongs to."""
        assert self.inversion is not None
        seen = replay(ctx, self.inversion, batch)
        # A bincount would have to wait for the greatest of the columns.
        self.counts = self.counts.index_add(0, seen.y, torch.ones_like(seen.y, dtype=self.counts.dtype))
        training = self.training(ctx)
        assert isinstance(training, Refining)
        refining = self.epoch >= training.epochs - training.refining_epochs
        return self.refinement(ctx, seen) if refining else self.representation(ctx, seen)

    def representation(self, ctx: Context, seen: Replay) -> Terms:
        """λ_ce (1 + 1/α)/β CE(new) + λ_hkd αβ |z − z_old| (generated) + λ_rkd αβ |angles − old angles| (new)."""
        alpha, beta = self.adaptation(ctx)
        features = ctx.model.features(seen.x)  # (2B, n)
        real = features[: seen.real]
        relations = relational_distillation(
            real @ self.projections["student"].T, seen.old_features[: seen.real] @ self.projections["teacher"].T
        )
        ce = newest_cross_entropy(ctx, real, seen.y[: seen.real])
        return {
            "ce": self.options.lambda_ce * (1 + 1 / alpha) / beta * ce,
            "hkd": self.hard_distillation(ctx, seen, features),
            "rkd": self.options.lambda_rkd * alpha * beta * relations,
        }

    def refinement(self, ctx: Context, seen: Replay) -> Terms:
        """λ_ce CE over all classes, rare ones weighing more + λ_hkd αβ |z − z_old|; the backbone is frozen."""
        ctx.model.eval()  # BatchNorm is part of what is frozen
        with torch.no_grad():
            features = ctx.model.features(seen.x)
        weight = class_weights(self.counts.to(features.dtype))
        return {
            "ce": self.options.lambda_ce * F.cross_entropy(ctx.model.logits(features), seen.y, weight),
            "hkd": self.hard_distillation(ctx, seen, features),
        }

    def hard_distillation(self, ctx: Context, seen: Replay, features: Tensor) -> Tensor:
        """λ_hkd αβ times the mean of |z − z_old| over generated images and old classes."""
        alpha, beta = self.adaptation(ctx)
        logits = ctx.model.logits(features[seen.real :])[:, : ctx.known]
        distance: Tensor = F.l1_loss(logits, seen.old_logits[seen.real :])
        weight: float = self.options.lambda_hkd * alpha * beta
        return weight * distance

    def adaptation(self, ctx: Context) -> tuple[float, float]:
        """α = log₂(k/2 + 1) and β = √(o/k) for k new and o old classes."""
        return math.log2(ctx.classes / 2 + 1), math.sqrt(ctx.known / ctx.classes)

    def after_epoch(self, ctx: Context) -> None:
        self.epoch += 1

    def after_task(self, ctx: Context) -> None:
        self.inversion, self.projections, self.counts = None, nn.ParameterDict(), torch.empty(0)

    def progress(self) -> State:
        generator = {} if self.inversion is None else self.inversion.progress()
        return {**generator, **self.projections.state_dict(), "counts": self.counts, "epoch": torch.tensor(self.epoch)}

    def load_progress(self, state: State) -> None:
        if self.inversion is not None:
            self.inversion.load_progress(state)
        self.projections.load_state_dict({name: state[name] for name in self.projections})
        self.counts, self.epoch = state["counts"].to(self.counts.device), int(state["epoch"])


def relational_distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over all i, j, k of |cos(s_j − s_i, s_k − s_i) − cos(t_j − t_i, t_k − t_i)|; features (B, p) each."""
    return F.l1_loss(angles(student), angles(teacher)).to(student.dtype)


def angles(points: Tensor) -> Tensor:
    """cos(x_j − x_i, x_k − x_i) for all i, j, k, (B, B, B); 0 where a point has no distance to x_i.

    By way of inner products, which are B³ numbers and not B² vectors, in float64 because they cancel.
    """
    points = points.double()
    points = points - points.mean(0)
    gram = points @ points.T  # (B, B)
    norms = gram.diagonal()
    inner = gram[None] - gram[:, :, None] - gram[:, None, :] + norms[:, None, None]  # (x_j − x_i)·(x_k − x_i)
    squares = norms[None] + norms[:, None] - 2 * gram  # ‖x_j − x_i‖² (B, B)
    apart = squares > 1e-12 * norms.mean()  # no direction, and no gradient, for points that coincide
    inverse = torch.where(apart, squares, 1.0).rsqrt() * apart
    return inner * inverse[:, :, None] * inverse[:, None, :]


def class_weights(counts: Tensor) -> Tensor:
    """Σ counts / count_c, divided so that the least is 1, (m,)."""
    return counts.max() / counts.clamp_min(1)
