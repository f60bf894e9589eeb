"""Gaussian prototypes (§4.1): what is remembered of a class instead of its images.

Each class keeps the mean of its features, a factor C of their covariance (CᵀC = Σ) and its number of images. A class
of N images has a factor of N − 1 rows, never more than there are features: it says exactly what the matrix Σ says, and
30 images of 1,280 features need 0.15 MB where the matrix needs 6.5 MB. Drawing is one product per class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from efcil.engine.numerics import JITTER, above_rounding, cholesky, contrasts, triangular
from efcil.errors import UserError

FULL_FACTORS: dict[str, str | None] = {"covariance_factors": "m n n", "factor_rows": None}  # in files of version 1


@dataclass(frozen=True)
class GaussianPrototypes:
    """N(p_c, Σ_c + 1e-5 I) for every class seen, in the order of the classifier's columns."""

    means: Tensor  # (m, n)
    factors: tuple[Tensor, ...]  # C_c, upper triangular, at most (n, n) each
    counts: Tensor  # (m,) images each class was learnt from

    @classmethod
    def none(cls) -> GaussianPrototypes:
        """Before the first task."""
        return cls(torch.zeros(0, 0), (), torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.means)

    def extended(self, other: GaussianPrototypes) -> GaussianPrototypes:
        """P_{1:t} ← P_{1:t−1} ∪ P_t."""
        means, counts = (torch.cat([getattr(one, name) for one in (self, other)]) for name in ("means", "counts"))
        return GaussianPrototypes(means, self.factors + other.factors, counts)

    def removed(self, column: int) -> GaussianPrototypes:
        """As if this class had never been learnt."""
        kept = [index for index in range(len(self)) if index != column]
        return GaussianPrototypes(self.means[kept], tuple(self.factors[index] for index in kept), self.counts[kept])

    def covariance(self, index: int) -> Tensor:
        """Σ_c of one class (n, n)."""
        return self.factors[index].T @ self.factors[index]

    def full_factors(self) -> Tensor:
        """Lower triangular F_c with F Fᵀ = Σ_c + 1e-5 I, for methods that need an invertible one, (m, n, n)."""
        jitter = JITTER * torch.eye(self.means.shape[1], dtype=torch.float64, device=self.means.device)
        factors = (factor.double() for factor in self.factors)
        return torch.stack([cholesky(factor.T @ factor + jitter).to(self.means) for factor in factors])

    def sample_classes(self, columns: Tensor, rng: torch.Generator) -> Tensor:
        """One draw p_c + z C_c + √1e-5 ε from N(p_c, Σ_c + 1e-5 I) for each entry of ``columns`` (k,), so (k, n)."""
        noise = torch.randn(len(columns), self.means.shape[1], generator=rng).to(self.means)  # ε
        drawn = noise.mul_(math.sqrt(JITTER)).add_(self.means[columns])
        order = columns.argsort(stable=True)  # all draws of a class are one product
        classes, counts = columns.unique(return_counts=True)
        for column, rows in zip(classes.tolist(), order.split(counts.tolist()), strict=True):
            factor = self.factors[column]
            z = torch.randn(len(rows), len(factor), generator=rng).to(factor)
            drawn[rows] = torch.addmm(drawn[rows], z, factor)
        return drawn

    def state(self) -> dict[str, Tensor]:
        """As named tensors; the factors one under the other."""
        rows = torch.tensor([len(factor) for factor in self.factors], device=self.counts.device)
        factors = torch.cat([self.means[:0], *self.factors])
        return {"means": self.means, "covariance_factors": factors, "factor_rows": rows, "counts": self.counts}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> GaussianPrototypes:
        """The inverse of state(); files of version 1 have a lower triangular F with F Fᵀ = Σ + 1e-5 I of each class."""
        factors = state["covariance_factors"]
        if "factor_rows" not in state:
            return cls(state["means"], tuple(without_jitter(factor) for factor in factors), state["counts"])
        rows = state["factor_rows"].tolist()
        if min(rows, default=0) < 0 or sum(rows) != len(factors):
            raise UserError(f"factor_rows must share out {len(factors)} rows, not {rows!s:.60}; restore the file.")
        return cls(state["means"], factors.split(rows), state["counts"])


def without_jitter(full: Tensor) -> Tensor:
    """C with CᵀC = Σ, no more rows than Σ has directions, for F with F Fᵀ = Σ + 1e-5 I, (n, n)."""
    values, vectors = torch.linalg.eigh(full.double() @ full.double().T)
    values = values - JITTER
    kept = above_rounding(values, full.dtype)
    return triangular((vectors[:, kept] * values[kept].sqrt()).T).to(full.dtype)


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
    means, factors = features.new_empty(len(classes), features.shape[1]), []
    for index, column in enumerate(classes):
        part = features[columns == column].double()
        mean = part.mean(0)
        rows = contrasts(part - mean) / math.sqrt(max(1, len(part) - 1))
        means[index] = mean
        factors.append(triangular(rows).to(features.dtype))
    if (counts == 1).any():
        average = average_factor([factor for factor in factors if len(factor)], like=features)
        factors = [factor if len(factor) else average for factor in factors]
    return GaussianPrototypes(means, tuple(factors), counts)


def average_factor(factors: list[Tensor], like: Tensor) -> Tensor:
    """C with CᵀC the average of the covariances of these factors; no rows where there are none."""
    total = like[:0].double()
    for factor in factors:  # one at a time: all factors together are large
        total = triangular(torch.cat([total, factor.double()]))
    return (total / math.sqrt(max(1, len(factors)))).to(like.dtype)
