"""CARGO: consolidated features, affinely carried Gaussians, and an anchor. A method of this project's own.

It follows Algorithm 1 as EFC++ does and replaces each part (docs/methods/cargo.md): the network is held back by a
squared feature distillation that is measured in units of the features, so that its weight has none; the
Gaussians of the old classes are carried by an affine map whose strength and whose error are measured on the current
classes; the network of the first task stays beside the one that goes on learning, for features that never move, of its
earlier layers too; and classes are told apart by the discriminant of the Gaussians, so that no head is balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.backbones.anchored import Shows, shown
from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import TINY, cholesky
from efcil.engine.plan import seconds_at
from efcil.errors import UserError
from efcil.parts.affine import FOLDS, AffineMap, fitted, means_of
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
        anchor: Literal["layers", "features", "none"] = "layers"
        """Keep the network of the first task beside the one that learns; layers: look at its earlier ones too."""
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
        self.weight = 0.0  # of ‖δ‖², from the Gaussians and the new images at the start of a task
        self._discriminant: QuadraticDiscriminant | None = None  # follows from the Gaussians

    def before_task(self, ctx: Context) -> None:
        """The weight of the drift; more where the new classes lie apart as a whole by more than classes do by chance.

        Images of another kind say little about how the old ones move: what an affine map leaves of a drift grows with
        the squared distance, which Φ is, and its square with the square of that.
        """
        if ctx.old is None or ctx.model.frozen_backbone:
            return
        (features,) = ctx.extract(ctx.old.learner, augmented=False)
        excess = self.gaussians.apart(means_of(features, ctx.columns, ctx.columns.unique())) - 1
        self.weight = self.options.damping * max(1.0, excess**2) / max(self.gaussians.variance(features.shape[1]), TINY)

    def idle(self, frozen: bool, first: bool) -> bool:
        return frozen  # no answer comes from a head

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
        if ctx.first and (shows := self._anchor(ctx)):
            ctx.model.add_anchor(shows)
        (features,) = ctx.extract(ctx.model, augmented=False)
        if not (ctx.first or ctx.model.frozen_backbone):
            with ctx.phase("drift"):
                self._change(self.gaussians.carried(self.drift(ctx, features)))
        new = CarriedGaussians.of(features, ctx.columns, self.options.rank)
        self._change(new if ctx.first else self.gaussians.extended(new))

    def _anchor(self, ctx: Context) -> Shows | None:
        """What is seen of the network of the first task; one that does not go on learning is its own anchor."""
        return None if self.options.anchor == "none" or ctx.model.frozen_backbone else self.options.anchor

    def drift(self, ctx: Context, features: Tensor) -> AffineMap:
        """How the current images, which have these features now, have moved: as they are and in one augmented view."""
        assert ctx.old is not None
        ctx.reseed("drift")
        before, now = ctx.old.learner, ctx.model.learner
        (plain,) = ctx.extract(before, augmented=False)
        seen_before, seen = ctx.extract(before, now, augmented=True)
        old, new = torch.cat([plain, seen_before]), torch.cat([features[:, -now.feature_dim :], seen])
        return fitted(old, new, ctx.columns.repeat(2))

    def passes_after(self, ctx: Context) -> int:
        """The new network sees the images, the anchor does; later both views go through the old one, and one before."""
        if ctx.model.frozen_backbone:
            return 1
        return (1 if ctx.first else 5) + int(self.options.anchor != "none")

    def seconds_after(self, ctx: Context) -> float:
        """What is remembered of each class, the inverse of the covariance, and the decompositions of the map."""
        own, whole, per_class = ctx.model.learner.feature_dim, ctx.model.feature_dim, len(ctx.images) // ctx.classes
        if ctx.first and (shows := self._anchor(ctx)):
            whole += int(shown(ctx.model.backbone, shows).feature_dim)  # type: ignore[arg-type]

        def remember(size: int) -> CarriedGaussians:
            rows = torch.rand(per_class, size, device=ctx.device)
            return CarriedGaussians.of(rows, torch.zeros(len(rows), device=ctx.device), self.options.rank)

        def invert(size: int) -> Tensor:
            return torch.cholesky_inverse(torch.eye(size, dtype=torch.float64, device=ctx.device))

        def decompose(size: int) -> Tensor:
            vectors: Tensor = torch.linalg.eigh(torch.eye(size, dtype=torch.float64, device=ctx.device)).eigenvectors
            return vectors

        maps = 0.0 if ctx.first or ctx.model.frozen_backbone else (1 + FOLDS) * seconds_at(own, decompose)
        return maps + ctx.classes * seconds_at(whole, remember, power=1) + seconds_at(whole, invert)

    @property
    def discriminant(self) -> QuadraticDiscriminant:
        if self._discriminant is None:
            self._discriminant = quadratic_discriminant(self.gaussians, self.options.own_share, self.options.shrinkage)
        return self._discriminant

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """log N(z; μ_c, Σ_c) up to a constant, at a temperature, (N, m)."""
        return self.discriminant.scores(features)

    def class_means(self) -> tuple[Tensor, bool]:
        return self.gaussians.means, False

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
