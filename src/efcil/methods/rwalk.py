"""RWalk: Riemannian Walk, the Fisher information of EWC and a path integral like that of SI in one penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms, newest_cross_entropy
from efcil.paper.regularizers import (
    fisher_diagonal,
    flat_weights,
    fused,
    quadratic_penalty,
    training_batches,
)
from efcil.parts.path import PathMethod


class RWalk(PathMethod):
    name = "rwalk"
    year = 2018
    idea = "important weights stay where they are; importance is Fisher information plus gain along the way"
    stores = "two importances per weight"
    shapes: ClassVar = {"fisher": "P", "path_scores": "P"}

    @dataclass(frozen=True)
    class Options:
        """Settings of RWalk."""

        lambda_rwalk: float = 1.0
        """Weight of the penalty."""
        alpha: float = 0.5
        """Part of the old Fisher information when the new one is fused in."""
        xi: float = 0.1
        """Damping ξ, which bounds the score of weights that hardly moved."""

        def __post_init__(self) -> None:
            at_least(self, lambda_rwalk=0.0, xi=1e-12)
            part_of_one(self, "alpha")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.fisher = torch.zeros(())  # F, (P,)
        self.path_scores = torch.zeros(())  # S, (P,)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ Σ_i (F_i + S_i) (θ_i − θ*_i)²; the path is that of all classes."""
        features = ctx.model.features(batch.x)
        self.path.begin_step(ctx.model, F.cross_entropy(ctx.model.logits(features), batch.y))
        penalty = quadratic_penalty(self.fisher + self.path_scores, flat_weights(ctx.model), self.path.start)
        return {
            "ce": newest_cross_entropy(ctx, features, batch.y),
            "rwalk": self.options.lambda_rwalk * penalty,
        }

    def after_task(self, ctx: Context) -> None:
        path, way = self.path.end_task(ctx.model)
        fisher = fisher_diagonal(ctx.model, training_batches(ctx))
        self.fisher = fused(self.fisher, fisher, self.options.alpha)
        self.path_scores = (self.path_scores + path_score(path, self.fisher, way, self.options.xi)) / 2


def path_score(path: Tensor, fisher: Tensor, way: Tensor, xi: float) -> Tensor:
    """max(0, ω_i / (F_i (θ_i − θ*_i)² + ξ)), (P,)."""
    return torch.relu(path / (fisher * way + xi))
