"""The Mahalanobis distance with a covariance per class, made ready by shrinkage and by division by the variances."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from efcil.engine.numerics import above_rounding


def mahalanobis_scores(points: Tensor, means: Tensor, whitenings: Iterable[Tensor]) -> Tensor:
    """−(x − μ_c)ᵀ Σ_c⁻¹ (x − μ_c) with A_c A_cᵀ = Σ_c⁻¹ the whitenings, (N, m)."""
    distances = [((points - mean) @ root).square().sum(1) for mean, root in zip(means, whitenings, strict=True)]
    return -torch.stack(distances, dim=1)


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
    return torch.mul(vectors, torch.where(above_rounding(values), values, torch.inf).rsqrt())
