"""FeCAM: frozen backbone and the Mahalanobis distance of each class (Feature Covariance-Aware Metric)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.engine.plan import seconds_at
from efcil.paper.prototypes import appended, class_means, gaussian_prototypes
from efcil.parts.mahalanobis import correlation, inverse_root, mahalanobis_scores, shrunk


class FeCAM(Method):
    name = "fecam"
    year = 2023
    idea = "backbone frozen after the first task, Mahalanobis distance with a covariance per class"
    stores = "class means and inverse covariances"
    shapes: ClassVar = {"means": "m n", "whitenings": "m n n"}
    freezes_backbone = True

    @dataclass(frozen=True)
    class Options:
        """Settings of FeCAM."""

        tukey_lambda: float = 0.5
        """Power of Tukey's transformation of the features, λ; 1 leaves them as they are."""
        gamma1: float = 1.0
        """Shrinkage towards the mean variance, γ1."""
        gamma2: float = 1.0
        """Shrinkage towards the mean covariance of two features, γ2."""
        shrinkages: int = 2
        """How often the shrinkage is applied: twice as the authors' implementation does, once as printed, or never."""

        def __post_init__(self) -> None:
            at_least(self, tukey_lambda=1e-6, gamma1=0.0, gamma2=0.0, shrinkages=0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # (m, n), of the features as they are
        self.whitenings = torch.empty(0)  # (m, n, n)

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        means = class_means(features, ctx.columns)
        factors = gaussian_prototypes(tukey(features.double(), self.options.tukey_lambda), ctx.columns).full_factors()
        whitenings = torch.stack([self.whitening(factor @ factor.T).to(features.dtype) for factor in factors])
        self.means = appended(self.means, means)
        self.whitenings = appended(self.whitenings, whitenings)

    def seconds_after(self, ctx: Context) -> float:
        """One decomposition for each class."""

        def whiten(size: int) -> Tensor:
            return self.whitening(torch.eye(size, dtype=torch.float64, device=ctx.device))

        return ctx.classes * seconds_at(ctx.model.feature_dim, whiten)

    def whitening(self, covariance: Tensor) -> Tensor:
        """A with A Aᵀ = Σ̂⁻¹, for Σ̂ the shrunk and normalised covariance (n, n)."""
        for _ in range(self.options.shrinkages):
            covariance = shrunk(covariance, self.options.gamma1, self.options.gamma2)
        return inverse_root(correlation(covariance))

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance to every class, (N, m)."""
        points = F.normalize(tukey(features, self.options.tukey_lambda))  # x̂
        means = F.normalize(tukey(self.means, self.options.tukey_lambda))  # μ̂
        return mahalanobis_scores(points, means, self.whitenings)  # (x̂ − μ̂)ᵀ Σ̂⁻¹ (x̂ − μ̂)


def tukey(features: Tensor, power: float) -> Tensor:
    """φ^λ, less skewed than φ; features below zero count as zero."""
    return features if power == 1 else features.clamp_min(0) ** power
