"""RanPAC: frozen backbone, random features and ridge regression whose penalty is chosen anew after every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import cholesky
from efcil.engine.plan import seconds_at

PENALTIES = [10.0**power for power in range(-8, 9)]  # λ, as published


class RanPAC(Method):
    name = "ranpac"
    year = 2023
    idea = (
        "backbone frozen after the first task, ridge regression on random ReLU features, its penalty chosen every task"
    )
    stores = "a random matrix, the autocorrelation of random features, their class sums and regression weights"
    shapes: ClassVar = {
        "projection": "n expansion",
        "autocorrelation": "expansion expansion",
        "class_sums": "expansion m",
        "weight": "expansion m",
    }
    freezes_backbone = True
    refines = True

    @dataclass(frozen=True)
    class Options:
        """Settings of RanPAC."""

        expansion: int = 10_000
        """Number of random features, M; memory grows with its square, time with its cube."""
        held_out: float = 0.2
        """Part of a task's images on which the penalty is chosen."""

        def __post_init__(self) -> None:
            at_least(self, expansion=1)
            part_of_one(self, "held_out")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.projection = torch.empty(0)  # R, (n, M)
        self.autocorrelation = torch.empty(0)  # G = Σ hᵀh, (M, M)
        self.class_sums = torch.empty(0)  # Q = Σ hᵀy, (M, m)
        self.weight = torch.empty(0)  # W, (M, m)

    def after_task(self, ctx: Context) -> None:
        size = self.options.expansion
        if ctx.first:
            self.projection = torch.randn(ctx.model.feature_dim, size, generator=ctx.rng).to(ctx.device)
            self.autocorrelation = torch.zeros(size, size, device=ctx.device)
            self.class_sums = torch.zeros(size, 0, device=ctx.device)
        (features,) = ctx.extract(ctx.model, augmented=False)
        self.learn(features, ctx.columns, ctx.known + ctx.classes, ctx.rng)

    def learn(self, features: Tensor, columns: Tensor, classes: int, rng: torch.Generator) -> None:
        """Every feature vector of a task, once; the penalty is the one that serves those held out best."""
        expanded, targets = self.expanded(features), F.one_hot(columns, classes).to(features.dtype)  # H, Y
        self.class_sums = F.pad(self.class_sums, (0, classes - self.class_sums.shape[1]))
        order = torch.randperm(len(features), generator=rng).to(features.device)
        fitted, held_out = order.tensor_split([len(order) - int(self.options.held_out * len(order))])
        self._add(expanded[fitted], targets[fitted])
        penalty = self._penalty(expanded[held_out], targets[held_out])
        self._add(expanded[held_out], targets[held_out])
        self.weight = ridge(self.autocorrelation, self.class_sums, penalty)

    def seconds_after(self, ctx: Context) -> float:
        """One factorisation for each penalty and one at the end, by the cube of their size."""

        def solve(size: int) -> Tensor:
            matrix = torch.eye(size, device=ctx.device)
            return ridge(matrix, matrix[:, :1], 1.0)

        return (len(PENALTIES) + 1) * seconds_at(self.options.expansion, solve)

    def _add(self, expanded: Tensor, targets: Tensor) -> None:
        self.autocorrelation = self.autocorrelation + expanded.T @ expanded
        self.class_sums = self.class_sums + expanded.T @ targets

    def _penalty(self, expanded: Tensor, targets: Tensor) -> float:
        """λ with the least squared error on images held out of G and Q; where none are, the mean of G's diagonal."""
        if not len(expanded):
            return float(self.autocorrelation.diagonal().mean().clamp_min(PENALTIES[0]))
        errors = [
            F.mse_loss(expanded @ ridge(self.autocorrelation, self.class_sums, penalty), targets)
            for penalty in PENALTIES
        ]
        return PENALTIES[int(torch.stack(errors).argmin())]

    def expanded(self, features: Tensor) -> Tensor:
        """h = ReLU(f R), (N, M)."""
        return torch.relu(features @ self.projection)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return self.expanded(features) @ self.weight


def ridge(autocorrelation: Tensor, class_sums: Tensor, penalty: float) -> Tensor:
    """W = (G + λ I)⁻¹ Q, (M, m)."""
    penalised = autocorrelation.clone()
    penalised.diagonal().add_(penalty)
    return torch.cholesky_solve(class_sums, cholesky(penalised)).contiguous()
