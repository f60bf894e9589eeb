"""The Empirical Feature Matrix (§3.3, appendix B): which directions of feature space the classifier looks at.

Features are rows f (N, n) and the classifier is W (m, n), one row per class; p = softmax(W f). The mean of
Eq. 8 over the samples is exactly

    E = Wᵀ ( mean_x[ diag(p) − p pᵀ ] ) W

because the gradient of log p_y is W_y − pᵀW. So one m×m sum and one product suffice: no backward pass, no
n×n matrix per sample. The sum over samples can be added across processes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from efcil.engine.numerics import above_rounding

CHUNK = 4096  # rows whose probabilities are in memory at once


def softmax_covariance_sum(features: Tensor, weight: Tensor) -> Tensor:
    """Σ_x diag(p_x) − p_x p_xᵀ, the m×m core of the EFM, (m, m)."""
    classes = weight.shape[0]
    total = torch.zeros(classes, classes, dtype=weight.dtype, device=weight.device)
    for chunk in features.split(CHUNK):
        p = torch.softmax(chunk @ weight.T, dim=1)  # (N, m)
        total -= p.T @ p
    # Every row sums to zero, so its diagonal entry is minus the others. Summed up like this nothing cancels, as
    # p − p² would where the classifier is sure of itself, and float32 is enough.
    diagonal = total.diagonal().zero_()
    diagonal.copy_(-total.sum(1))
    return total


def empirical_feature_matrix(features: Tensor, weight: Tensor) -> Tensor:
    """E_t, the mean local feature matrix of these samples under this classifier (Eqs. 6-8), (n, n)."""
    return matrix_of(softmax_covariance_sum(features, weight), len(features), weight)


def matrix_of(core: Tensor, count: int, weight: Tensor) -> Tensor:
    """E_t from the sum of its core over so many samples (Eq. 8), (n, n)."""
    matrix = weight.T @ (core / count) @ weight
    return (matrix + matrix.T) / 2  # exactly symmetric, whatever the rounding


def efm_loss(delta: Tensor, efm: Tensor, lambda_efm: float, eta: float) -> Tensor:
    """Mean over the batch of δᵀ(λ E + η I)δ, for the drifts δ (B, n) (Eq. 10)."""
    along_efm = (delta @ efm * delta).sum(1)
    return (lambda_efm * along_efm + eta * delta.square().sum(1)).mean()


def normalised(efm: Tensor) -> Tensor:
    """E with the mean of its non-zero eigenvalues brought to one, so that λ means the same at any head size."""
    values, _ = spectrum(efm)
    positive = values[above_rounding(values, efm.dtype)]
    return efm / positive.mean().to(efm.dtype) if len(positive) else efm


def spectrum(efm: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, greatest first and never negative, and eigenvectors as columns, in float64 (Fig. 10)."""
    values, vectors = torch.linalg.eigh(efm.double())
    return values.flip(0).clamp_min(0), vectors.flip(1)


def factor(efm: Tensor) -> Tensor:
    """A thin A with A Aᵀ = E, (n, rank): EFM distances become plain distances between rows f A."""
    values, vectors = torch.linalg.eigh(efm)
    keep = above_rounding(values)
    return torch.mul(vectors[:, keep], values[keep].sqrt())


def pseudo_norm(delta: Tensor, efm: Tensor) -> Tensor:
    """δᵀ E δ for each row (Eq. 19)."""
    return (delta @ efm * delta).sum(-1)
