"""Gaussian prototypes (§4.1): what is remembered of a class instead of its images.

Each class keeps the mean of its features, a factor F of their covariance (F Fᵀ = Σ + 1e-5 I) and its number of
images. The factor is computed once, when the class is learnt, and drawing is then one product per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from efcil.engine.numerics import JITTER, cholesky


@dataclass(frozen=True)
class GaussianPrototypes:
    """N(p_c, Σ_c) for every class seen, in the order of the classifier's columns."""

    means: Tensor  # (m, n)
    factors: Tensor  # (m, n, n), lower triangular
    counts: Tensor  # (m,) images each class was learnt from

    @classmethod
    def none(cls) -> GaussianPrototypes:
        """Before the first task."""
        return cls(torch.zeros(0, 0), torch.zeros(0, 0, 0), torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.means)

    def extended(self, other: GaussianPrototypes) -> GaussianPrototypes:
        """P_{1:t} ← P_{1:t−1} ∪ P_t."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("means", "factors", "counts"))
        return GaussianPrototypes(*(torch.cat(pair) for pair in pairs))

    def covariance(self, index: int) -> Tensor:
        """Σ_c of one class (n, n)."""
        factor = self.factors[index]
        return factor @ factor.T - JITTER * torch.eye(len(factor), dtype=factor.dtype, device=factor.device)

    def sample_classes(self, columns: Tensor, rng: torch.Generator) -> Tensor:
        """One draw p_c + F_c z from N(p_c, Σ_c) for each entry of ``columns`` (k,), giving (k, n)."""
        noise = torch.randn(len(columns), self.means.shape[1], generator=rng).to(self.means)
        drawn = torch.empty_like(noise)
        order = columns.argsort(stable=True)  # all draws of a class are one product
        classes, counts = columns.unique(return_counts=True)
        parts = zip(classes.tolist(), order.split(counts.tolist()), noise.split(counts.tolist()), strict=True)
        for column, rows, z in parts:
            drawn[rows] = torch.addmm(self.means[column], z, self.factors[column].T)
        return drawn


def appended(old: Tensor, new: Tensor) -> Tensor:
    """What is kept of the old classes followed by that of the new ones; before the first task there is none."""
    return torch.cat([old, new]) if len(old) else new


def class_means(features: Tensor, columns: Tensor) -> Tensor:
    """Mean feature vector of each class, classes in the order of their columns, (m, n)."""
    return torch.stack([features[columns == column].mean(0) for column in columns.unique()])


def gaussian_prototypes(features: Tensor, columns: Tensor) -> GaussianPrototypes:
    """Mean and unbiased covariance of each class, classes in the order of their columns.

    A class of one image has no covariance of its own and takes the average of the others in its task.
    """
    classes, counts = columns.unique(return_counts=True)
    n, averaged = features.shape[1], bool((counts == 1).any())
    jitter = JITTER * torch.eye(n, dtype=torch.float64, device=features.device)
    total, known = torch.zeros_like(jitter), 0  # of covariances, summed only where a class needs their average
    means, factors = features.new_empty(len(classes), n), features.new_empty(len(classes), n, n)
    for index, column in enumerate(classes):
        part = features[columns == column].double()
        means[index] = part.mean(0)
        if len(part) > 1:
            covariance = part.T.cov().reshape(n, n)
            factors[index] = cholesky(covariance + jitter)
            if averaged:
                total, known = total + covariance, known + 1
    if averaged:
        factors[counts == 1] = cholesky(total / max(1, known) + jitter).to(factors)
    return GaussianPrototypes(means, factors, counts)
