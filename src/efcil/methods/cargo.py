"""CARGO: consolidated features, affinely carried Gaussians, and an anchor. A method of this project's own.

It goes the way of EFC++ (Algorithm 1) with other means (docs/methods/cargo.md): the network is held back by a squared
feature distillation that is measured in units of the features, so that one weight serves everywhere; the Gaussians of
the old classes are carried by an affine map whose strength and whose error are measured on the current classes; the
network of the first task stays beside the one that goes on learning, for features that never move; and classes are told
by the discriminant that follows from the Gaussians, so that no head has to be balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import TINY, cholesky
from efcil.engine.plan import seconds_at
from efcil.errors import UserError
from efcil.parts.affine import FOLDS, fitted
from efcil.parts.carried import CarriedGaussians, QuadraticDiscriminant, common, quadratic_discriminant


class Cargo(Method):
    name = "cargo"
    year = 2026
    idea = "squared distillation without a unit, Gaussians carried by a validated map, the first network as an anchor"
    stores = "class means and leading directions, one covariance, the first network"
    shapes: ClassVar = {"means": "m n", "directions": "m rank n", "covariance": "n n", "counts": "m int64"}

    @dataclass(frozen=True)
    class Options:
        """Settings of CARGO."""

        damping: float = 1.0
        """Weight of the squared drift of a feature vector, which is divided by the variance within a class."""
        anchor: bool = True
        """Keep the network of the first task beside the one that learns: twice the features, half of them for good."""
        rank: int = 32
        """Leading directions that are kept of each class."""
        own_share: float = 0.05
        """How much of the covariance of a class is its own, α; the rest is that of all classes."""
        shrinkage: float = 0.05
        """Part of the identity in the covariance, s."""

        def __post_init__(self) -> None:
            at_least(self, damping=0.0, rank=1, shrinkage=1e-6)  # network and anchor may see the same at first
            part_of_one(self, "own_share")
            part_of_one(self, "shrinkage")
            if self.own_share == 1:
                raise UserError("own_share must be below 1: directions of their own do not fill the space.")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.gaussians = CarriedGaussians.none()
        self.weight = 0.0  # of ‖δ‖², from the Gaussians at the start of a task
        self._discriminant: QuadraticDiscriminant | None = None  # follows from the Gaussians

    def before_task(self, ctx: Context) -> None:
        if ctx.first:
            return
        if self._anchors(ctx) and len(ctx.model.networks()) == 1:
            ctx.model.add_anchor()
            self._change(self.gaussians.twice())
        own = ctx.model.learner.feature_dim
        self.weight = self.options.damping / max(self.gaussians.variance(own), TINY)

    def _anchors(self, ctx: Context) -> bool:
        """Whether a network that goes on learning has one beside it."""
        return self.options.anchor and not ctx.first and not ctx.model.frozen_backbone

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        return [] if ctx.model.frozen_backbone else super().parameters(ctx)  # no answer comes from a head

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes, and the drift from the old features in units of a class's spread.

        The anchor takes no part: its features do not move, and a step costs what it costs without.
        """
        features, old_features = ctx.model.learner.features(batch.x), ctx.old_features(batch.x)
        newest = ctx.model.newest[:, -features.shape[1] :]
        return {
            "ce": F.cross_entropy(features @ newest.T, batch.y - ctx.known),
            "drift": self.weight * (features - old_features).square().sum(1).mean(),
        }

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            ctx.reseed("statistics")
            (features,) = ctx.extract(ctx.model, augmented=True)
        else:
            with ctx.phase("drift"):
                features = self.carry(ctx)
        new = CarriedGaussians.of(features, ctx.columns, self.options.rank)
        self._change(new if ctx.first else self.gaussians.extended(new))

    def carry(self, ctx: Context) -> Tensor:
        """Take the Gaussians of all old classes along with the features of the current images, plain and augmented.

        Returns the features of the augmented view, from which those of the new classes are made.
        """
        assert ctx.old is not None
        ctx.reseed("drift")
        *anchor, learner = ctx.model.networks()
        plain = ctx.extract(ctx.old.learner, learner, augmented=False)
        *kept, seen_old, seen = ctx.extract(*anchor, ctx.old.learner, learner, augmented=True)
        old, new = torch.cat([plain[0], seen_old]), torch.cat([plain[1], seen])
        self._change(self.gaussians.carried(fitted(old, new, ctx.columns.repeat(2))))
        return torch.cat([*kept, seen], dim=1)

    def passes_after(self, first: bool) -> int:
        return 1 if first else 4 + self.options.anchor  # both views, old and new network; one through the anchor

    def seconds_after(self, ctx: Context) -> float:
        """A decomposition for each class and the inverse of the covariance, and those of the map."""

        def decompose(size: int) -> Tensor:
            vectors: Tensor = torch.linalg.eigh(torch.eye(size, dtype=torch.float64, device=ctx.device)).eigenvectors
            return vectors

        own = ctx.model.learner.feature_dim
        maps = 0.0 if ctx.first else (1 + FOLDS) * seconds_at(own, decompose)
        return maps + (1 + ctx.classes) * seconds_at((1 + self._anchors(ctx)) * own, decompose)

    @property
    def discriminant(self) -> QuadraticDiscriminant:
        if self._discriminant is None:
            self._discriminant = quadratic_discriminant(self.gaussians, self.options.own_share, self.options.shrinkage)
        return self._discriminant

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """log N(f; μ_c, Σ_c) up to a constant, at a temperature, (N, m)."""
        return self.discriminant.scores(features)

    def drawn(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """From N(μ_c, Σ_c) of every class."""
        own, kept = self.options.own_share, self.gaussians
        columns = torch.arange(len(kept)).repeat_interleave(per_class)
        root = cholesky(common(kept, own, self.options.shrinkage)).to(kept.means)
        shared = torch.randn(len(columns), kept.means.shape[1], generator=rng).to(kept.means) @ root.T
        z = torch.randn(len(kept), per_class, self.options.rank, generator=rng).to(kept.means)
        apart = (own * (1 - self.options.shrinkage)) ** 0.5 * (z @ kept.directions).flatten(0, 1)
        columns = columns.to(kept.means.device)
        return kept.means[columns] + shared + apart, columns

    def remove_class(self, column: int) -> None:
        self._change(self.gaussians.removed(column))

    def state(self) -> State:
        return {name: getattr(self.gaussians, name) for name in self.shapes}

    def load_state(self, state: State) -> None:
        self._change(CarriedGaussians(**state))

    def _change(self, gaussians: CarriedGaussians) -> None:
        self.gaussians, self._discriminant = gaussians, None
