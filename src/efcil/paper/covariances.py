"""How much of a covariance is kept: all of it, its leading directions, one for all classes, or variances alone.

The paper keeps a full Σ_c of every class, a megabyte at 512 features. What is kept here is always rows of numbers, one
for each feature, from which draws are made with one product:

    full      C with CᵀC = Σ, as many rows as the class needs, never more than there are features
    low-rank  k rows C and a number ρ with Σ ≈ CᵀC + ρ I: the k leading directions exactly, and the mean of all other
              variances in every other direction, so that the total variance stays
    shared    C of the average of all classes, each counted by its images
    diagonal  one row, the standard deviation of each feature

In float16 the rows of a class are divided by their greatest number first, so that none is too large for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.engine.numerics import TINY, triangular


@dataclass(frozen=True)
class KeptCovariance:
    """What is kept of the covariance of a class."""

    kind: Literal["full", "low-rank", "shared", "diagonal"] = "full"
    """full: all of it; low-rank: its leading directions and the mean of the rest; shared: one for all classes;
    diagonal: the variance of each feature."""
    rank: int = 32
    """Leading directions, for low-rank."""
    dtype: Literal["float32", "float16"] = "float32"
    """Numbers of 32 bits (or as wide as the features are), or of 16."""

    def __post_init__(self) -> None:
        at_least(self, rank=1)

    @property
    def half(self) -> bool:
        return self.dtype == "float16"

    def shapes(self) -> dict[str, str]:
        """The shapes of what GaussianPrototypes.state() has, in the words of Method.shapes."""
        rows = {"full": "r n", "low-rank": "r n", "shared": "s n", "diagonal": "m n"}[self.kind]
        shapes = {"means": "m n", "covariance_factors": f"{rows} float16" if self.half else rows, "counts": "m int64"}
        if self.kind in ("full", "low-rank"):
            shapes["factor_rows"] = "m int64"
        if self.kind == "low-rank":
            shapes["remaining_variances"] = "m"
        if self.half:
            shapes["factor_scales"] = "1" if self.kind == "shared" else "m"
        return shapes


FULL = KeptCovariance()


def leading(factor: Tensor, rank: int) -> tuple[Tensor, float]:
    """C (rank, n) and ρ: CᵀC + ρ I has the leading directions of Σ with their variances, and its trace.

    ρ is the mean of the other variances. A factor of no more rows is kept as it is.
    """
    rows, features = factor.shape
    if rows <= rank:
        return factor, 0.0
    exact = factor.double()
    values, vectors = torch.linalg.eigh(exact @ exact.T)  # of as many rows as there are; the smallest first
    rest = max(0.0, float(values[:-rank].sum()) / (features - rank))
    scales = ((values[-rank:] - rest).clamp_min(0) / values[-rank:].clamp_min(TINY)).sqrt()
    return (scales[:, None] * (vectors[:, -rank:].T @ exact)).to(factor.dtype), rest


class Pooled:
    """The average of covariances, by their weights; one at a time, as all together are large."""

    def __init__(self, like: Tensor) -> None:
        self.like, self.total, self.weight = like[:0], like[:0].double(), 0.0

    def add(self, factor: Tensor, weight: float) -> None:
        if weight > 0:
            self.total = triangular(torch.cat([self.total, math.sqrt(weight) * factor.double()]))
            self.weight += weight

    def factor(self) -> Tensor:
        """C with CᵀC the average; no rows where there are none."""
        return (self.total / math.sqrt(self.weight or 1.0)).to(self.like.dtype)


def halved(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in float16, and the number () that they have to be multiplied with."""
    scale = rows.abs().amax() if rows.numel() else rows.new_zeros(())
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (rows / scale).half(), scale.float()
