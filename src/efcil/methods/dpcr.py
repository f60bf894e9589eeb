"""DPCR: uncentred covariances carried by a task map and class projectors, classifier reconstructed by ridge regression.

DPCR is Dual-Projection shift estimation and Classifier Reconstruction. Features are rows; everything is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.parts.compensators import class_maps
from efcil.parts.distillation import DistillationOptions, Distilling


class DPCR(Distilling):
    name = "dpcr"
    year = 2025
    idea = "knowledge distillation, ridge classifier rebuilt from uncentred covariances that two projections carry"
    stores = "class means, uncentred covariances and counts, classifier weights"
    shapes: ClassVar = {
        "means": "m n float64",
        "uncentred_covariances": "m n n float64",
        "counts": "m int64",
        "weight": "n m float64",
    }

    @dataclass(frozen=True)
    class Options(DistillationOptions):
        """Settings of DPCR."""

        epsilon: float = 1e-9
        """Ridge penalty of the task map, as a part of the mean diagonal of X_oᵀX_o."""
        gamma: float = 200.0
        """Ridge penalty of the classifier, γ."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, epsilon=1e-12, gamma=1e-9)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # μ_c, (m, n)
        self.uncentred_covariances = torch.empty(0)  # Φ_c = Σ fᵀf, (m, n, n)
        self.counts = torch.empty(0, dtype=torch.int64)  # n_c, (m,)
        self.weight = torch.empty(0)  # Ŵ, (n, m)

    def passes_after(self, ctx: Context) -> int:
        return 2 if ctx.first else 3

    def after_task(self, ctx: Context) -> None:
        if ctx.old is None:
            n = ctx.model.feature_dim
            self.means = torch.zeros(0, n, dtype=torch.float64, device=ctx.device)
            self.uncentred_covariances = self.means.new_zeros(0, n, n)
            self.counts = self.means.new_zeros(0, dtype=torch.int64)
            (new,) = ctx.extract(ctx.model, augmented=True)
        else:
            old, new = ctx.extract(ctx.old, ctx.model, augmented=True)
            self.transport(old.double(), new.double())
        self.weight = self.reconstructed(new.double(), ctx.columns)
        (features,) = ctx.extract(ctx.model, augmented=False)
        self.remember(features.double(), ctx.columns)

    def transport(self, old: Tensor, new: Tensor) -> None:
        """Φ_c ← P_cᵀ Φ_c P_c and μ_c ← μ_c P_c for every old class, with P_c = P U_c U_cᵀ."""
        maps = class_maps(old, new, self.uncentred_covariances, self.options.epsilon)
        self.means = torch.stack([mean @ p for mean, p in zip(self.means, maps, strict=True)])
        self.uncentred_covariances = torch.stack(
            [p.T @ phi @ p for phi, p in zip(self.uncentred_covariances, maps, strict=True)]
        )

    def reconstructed(self, new: Tensor, columns: Tensor) -> Tensor:
        """W = (Σ Φ_c + X_nᵀX_n + γI)⁻¹ (Σ n_c μ_cᵀ 1_c + X_nᵀY), every class of length one, (n, m)."""
        r = self.uncentred_covariances.sum(0) + new.T @ new  # (n, n)
        r.diagonal().add_(self.options.gamma)
        q = new.T @ F.one_hot(columns).double()  # (n, m)
        q[:, : len(self.means)] += (self.counts[:, None] * self.means).T
        return F.normalize(torch.linalg.solve(r, q), dim=0)

    def remember(self, features: Tensor, columns: Tensor) -> None:
        """Mean, uncentred covariance and number of images of each new class."""
        parts = [features[columns == column] for column in columns.unique()]
        self.means = torch.cat([self.means, torch.stack([part.mean(0) for part in parts])])
        self.uncentred_covariances = torch.cat(
            [self.uncentred_covariances, torch.stack([part.T @ part for part in parts])]
        )
        self.counts = torch.cat([self.counts, self.counts.new_tensor([len(part) for part in parts])])

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return features.double() @ self.weight
