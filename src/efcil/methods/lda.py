"""LDA: class sums of the features of a frozen backbone, and a discriminant with one covariance for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Context
from efcil.engine.method import Method, State
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import cholesky
from efcil.engine.plan import seconds_at
from efcil.parts.discriminant import (
    TEMPERATURES,
    Discriminant,
    calibration_losses,
    discriminant,
    likeness,
    temperature,
)
from efcil.parts.sums import ClassSums


class LDA(Method):
    name = "lda"
    year = 2020
    idea = (
        "backbone frozen after the first task, linear discriminant from sums; classes can grow, merge and go, exactly"
    )
    stores = "class counts, means and thin covariance factors, calibration losses"
    shapes: ClassVar = {"counts": "m int64", "means": "m n float64", "factors": "r n float64", "losses": "m 41 float64"}
    freezes_backbone = True
    refines = True
    validates = True

    @dataclass(frozen=True)
    class Options:
        """Settings of LDA."""

        shrinkage: float | None = None
        """Part of the identity in the covariance, ρ; empty: by the formula OAS, but at least 0.6."""
        heaviest: int = 10
        """No class weighs more in the covariance than so many images."""

        def __post_init__(self) -> None:
            at_least(self, heaviest=1)
            if self.shrinkage is not None:
                part_of_one(self, "shrinkage")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.sums = ClassSums.none()
        self.losses = torch.zeros(0, len(TEMPERATURES), dtype=torch.float64)  # leave-one-out, by class and temperature
        self._fitted: Discriminant | None = None  # follows from the sums

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        self.learn(unit(features), ctx.columns)

    def learn(self, points: Tensor, columns: Tensor) -> None:
        """Points (N, n) of classes that are known or come next."""
        self._change(self.sums.added(points, columns))
        more = len(self.sums) - len(self.losses)
        self.losses = F.pad(self.losses.to(points.device), (0, 0, 0, more))
        rest = self.sums.counts[columns] > 1  # a class of one image has nothing without it
        if rest.any():
            points, columns = points[rest], columns[rest]
            scores = self.discriminant.leave_one_out(points, columns)
            self.losses = self.losses + calibration_losses(scores, columns, len(self.sums))
        self.validation = (scores, columns) if rest.any() else None

    def seconds_after(self, ctx: Context) -> float:
        """The inverse of a covariance is what takes its time."""

        def invert(size: int) -> Tensor:
            matrix = torch.eye(size, dtype=torch.float64, device=ctx.device)
            return torch.cholesky_inverse(cholesky(matrix @ matrix))

        return seconds_at(ctx.model.feature_dim, invert)

    @property
    def discriminant(self) -> Discriminant:
        if self._fitted is None:
            self._fitted = discriminant(self.sums, self.options.shrinkage, self.options.heaviest)
        return self._fitted

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Logarithms of calibrated probabilities, (N, m)."""
        scores = self.discriminant.scores(unit(features))
        return torch.log_softmax(scores / temperature(self.losses.sum(0), features.shape[1]), dim=1)

    def familiarity(self, model: IncrementalModel, features: Tensor) -> Tensor:
        points = unit(features)
        chosen = self.discriminant.scores(points).argmax(1)
        return likeness(self.sums).familiarity(points, chosen)

    def drawn(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """From the Gaussian of every class, N(μ_c, Σ), brought to unit length."""
        means = self.sums.means
        root = torch.linalg.cholesky(self.discriminant.precision)  # A = L Lᵀ, so rows ε L⁻¹ have the covariance A⁻¹ = Σ
        noise = torch.randn(len(means) * per_class, means.shape[1], generator=rng, dtype=torch.float64).to(means)
        spread: Tensor = torch.linalg.solve_triangular(root, noise, upper=False, left=False)
        columns = torch.arange(len(means), device=self.sums.counts.device).repeat_interleave(per_class)
        return unit(means[columns] + spread), columns

    def remove_class(self, column: int) -> None:
        self._change(self.sums.removed(column))
        self.losses = torch.cat([self.losses[:column], self.losses[column + 1 :]])

    def merge_classes(self, into: int, column: int) -> None:
        self._change(self.sums.merged(into, column))
        self.losses = self.losses.index_add(0, torch.tensor([into]).to(self.losses.device), self.losses[[column]])
        self.losses = torch.cat([self.losses[:column], self.losses[column + 1 :]])

    def state(self) -> State:
        return {**self.sums.state(), "losses": self.losses}

    def load_state(self, state: State) -> None:
        self._change(ClassSums.from_state(state))
        self.losses = state["losses"]

    def _change(self, sums: ClassSums) -> None:
        self.sums, self._fitted, self.validation = sums, None, None


def unit(features: Tensor) -> Tensor:
    """Features of length one, in float64; a vector of zeros stays."""
    return F.normalize(features.double())
