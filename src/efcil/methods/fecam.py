"""FeCAM: frozen backbone and the Mahalanobis distance of each class (Feature Covariance-Aware Metric)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.methods.base import Context, Method
from efcil.model import IncrementalModel
from efcil.prototypes import class_means, gaussian_prototypes

RANK_TOLERANCE = 1e-10  # eigenvalues below this part of the greatest are rounding errors


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
        factors = gaussian_prototypes(tukey(features.double(), self.options.tukey_lambda), ctx.columns).factors
        whitenings = torch.stack([self.whitening(factor @ factor.T).to(features.dtype) for factor in factors])
        self.means = means if ctx.first else torch.cat([self.means, means])
        self.whitenings = whitenings if ctx.first else torch.cat([self.whitenings, whitenings])

    def whitening(self, covariance: Tensor) -> Tensor:
        """A with A Aᵀ = Σ̂⁻¹, for Σ̂ the shrunk and normalised covariance (n, n)."""
        for _ in range(self.options.shrinkages):
            covariance = shrunk(covariance, self.options.gamma1, self.options.gamma2)
        return inverse_root(correlation(covariance))

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance to every class, (N, m)."""
        points = F.normalize(tukey(features, self.options.tukey_lambda))  # x̂
        means = F.normalize(tukey(self.means, self.options.tukey_lambda))  # μ̂
        distances = [
            ((points - mean) @ root).square().sum(1)  # (x̂ − μ̂)ᵀ Σ̂⁻¹ (x̂ − μ̂)
            for mean, root in zip(means, self.whitenings, strict=True)
        ]
        return -torch.stack(distances, dim=1)


def tukey(features: Tensor, power: float) -> Tensor:
    """φ^λ, less skewed than φ; features below zero count as zero."""
    return features if power == 1 else features.clamp_min(0) ** power


def shrunk(covariance: Tensor, gamma1: float, gamma2: float) -> Tensor:
    """Σ + γ1 V1 I + γ2 V2 (1 − I), V1 the mean variance and V2 the mean of the other entries that are not zero."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    off_diagonal = covariance * (1 - identity)
    v1 = covariance.diagonal().mean()
    v2 = off_diagonal.sum() / off_diagonal.count_nonzero().clamp_min(1)
    return covariance + gamma1 * v1 * identity + gamma2 * v2 * (1 - identity)


def correlation(covariance: Tensor) -> Tensor:
    """Σ_ij / (σ_i σ_j)."""
    deviation = covariance.diagonal().sqrt()
    return covariance / torch.outer(deviation, deviation)


def inverse_root(matrix: Tensor) -> Tensor:
    """A with A Aᵀ the pseudo-inverse of the positive part: γ2 can make a shrunk matrix indefinite (n, n)."""
    values, vectors = torch.linalg.eigh(matrix)
    keep = values > values[-1] * RANK_TOLERANCE
    return torch.mul(vectors, torch.where(keep, values, torch.inf).rsqrt())
