"""What PASS and its relatives share: class means rehearsed with noise as wide as a class of the first task."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from efcil.config import at_least
from efcil.engine.numerics import JITTER
from efcil.paper.prototypes import gaussian_prototypes
from efcil.paper.regularizers import feature_distillation


@dataclass(frozen=True)
class RehearsalOptions:
    """Weights of distillation and rehearsal."""

    lambda_fd: float = 10.0
    """Weight of the feature distillation, λ_FD."""
    lambda_pr: float = 10.0
    """Weight of the prototypes, λ_pr."""
    temperature: float = 1.0
    """T, which divides all outputs in the cross-entropies."""

    def __post_init__(self) -> None:
        at_least(self, lambda_fd=0.0, lambda_pr=0.0, temperature=1e-3)


def whole_batch_distance(features: Tensor, old_features: Tensor) -> Tensor:
    """‖F − F_old‖, one norm over all images of the batch together."""
    return feature_distillation(features.reshape(1, -1), old_features.reshape(1, -1))


def noise_radius(features: Tensor, columns: Tensor) -> Tensor:
    """r of the classes that these features belong to."""
    return gaussian_radius(gaussian_prototypes(features.double(), columns).full_factors()).to(features.dtype)


def gaussian_radius(factors: Tensor) -> Tensor:
    """r = √(mean_c trace(Σ_c) / n), with F Fᵀ = Σ + 1e-5 I."""
    variance = factors.double().square().sum((1, 2)).mean() / factors.shape[1] - JITTER
    return variance.clamp_min(0).sqrt().to(factors.dtype)
