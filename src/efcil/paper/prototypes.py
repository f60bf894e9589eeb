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

    def sample(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """The same number of draws from every class: features (m·k, n) and their columns (m·k,)."""
        m, n = self.means.shape
        noise = torch.randn(m, per_class, n, generator=rng).to(self.means)
        drawn = torch.baddbmm(self.means[:, None], noise, self.factors.mT)  # p_c + F_c z
        columns = torch.arange(m, device=self.means.device).repeat_interleave(per_class)
        return drawn.reshape(-1, n), columns

    def sample_classes(self, columns: Tensor, rng: torch.Generator) -> Tensor:
        """One draw from N(p_c, Σ_c) for each entry of ``columns`` (k,), giving (k, n)."""
        noise = torch.randn(len(columns), self.means.shape[1], generator=rng).to(self.means)
        drawn = torch.empty_like(noise)
        for column in columns.unique().tolist():
            rows = columns == column
            drawn[rows] = torch.addmm(self.means[column], noise[rows], self.factors[column].T)
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
    classes = columns.unique().tolist()
    parts = [features[columns == column].double() for column in classes]
    n = features.shape[1]
    own = [part.T.cov() if len(part) > 1 else None for part in parts]
    known = [covariance.reshape(n, n) for covariance in own if covariance is not None]
    typical = torch.stack(known).mean(0) if known else features.new_zeros(n, n, dtype=torch.float64)
    jitter = JITTER * torch.eye(n, dtype=torch.float64, device=features.device)
    factors = [cholesky((typical if covariance is None else covariance.reshape(n, n)) + jitter) for covariance in own]
    return GaussianPrototypes(
        means=torch.stack([part.mean(0) for part in parts]).to(features.dtype),
        factors=torch.stack(factors).to(features.dtype),
        counts=torch.tensor([len(part) for part in parts], device=features.device),
    )
