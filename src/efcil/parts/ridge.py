"""What ACIL and DS-AL share: a random expansion of the features, and ridge regression that learns as data come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.numerics import cholesky
from efcil.engine.plan import seconds_at
from efcil.rng import uniform

BATCH = 256  # rows of one recursive step; any number gives the same result


def random_expansion(features: int, size: int, rng: torch.Generator) -> Tensor:
    """R, which expands features to many random ones, (n, D)."""
    return uniform(size, features, rng).T.contiguous()


def batches(features: Tensor, columns: Tensor, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (B, n) and one-hot targets Y (B, m) in float64, a few rows at a time."""
    for rows, labels in zip(features.split(BATCH), columns.split(BATCH), strict=True):
        yield rows, F.one_hot(labels, classes).double()


@dataclass
class RecursiveRidge:
    """Ridge regression W = (Σ xᵀx + γ I)⁻¹ Σ xᵀy that never looks back at earlier rows; all in float64."""

    inverse: Tensor  # A = (Σ xᵀx + γ I)⁻¹, (D, D)
    weight: Tensor  # W, (D, m)

    @classmethod
    def start(cls, size: int, gamma: float, device: torch.device) -> RecursiveRidge:
        """Before any row and any class."""
        identity = torch.eye(size, dtype=torch.float64, device=device)
        return cls(identity.div_(gamma), identity.new_zeros(size, 0))

    def fit(self, x: Tensor, y: Tensor) -> None:
        """Learn the targets y (B, m) of the rows x (B, D), both float64; columns beyond those known are new classes."""
        self.weight = F.pad(self.weight, (0, y.shape[1] - self.weight.shape[1]))
        xa = x @ self.inverse  # (B, D)
        inner = xa @ x.T  # X A Xᵀ, (B, B)
        inner.diagonal().add_(1)
        root = cholesky(inner)  # L Lᵀ = I + X A Xᵀ = K⁻¹
        z = torch.linalg.solve_triangular(root, xa, upper=False)  # L⁻¹ X A, (B, D)
        innovation = torch.linalg.solve_triangular(root, y - x @ self.weight, upper=False)  # L⁻¹ (Y − X W), (B, m)
        self.inverse.addmm_(z.T, z, alpha=-1)  # A ← A − A Xᵀ K X A
        self.weight = self.weight + z.T @ innovation  # W ← W + A Xᵀ (Y − X W), because the new A Xᵀ is A Xᵀ K


def recursive_seconds(rows: int, size: int, device: torch.device) -> float:
    """About how long so many rows of this size take."""

    def fit(tried: int) -> None:
        x = torch.zeros(BATCH, tried, dtype=torch.float64, device=device)
        RecursiveRidge.start(tried, 1.0, device).fit(x, x[:, :1])

    return rows / BATCH * seconds_at(size, fit, power=2)
