"""EWC: Elastic Weight Consolidation, a quadratic penalty on moving weights with much Fisher information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms
from efcil.paper.recipes import COMPARED
from efcil.paper.regularizers import fisher_diagonal, flat_weights, fused, quadratic_penalty, training_batches


class EWC(Method):
    name = "ewc"
    year = 2017
    idea = "important weights stay where they are; importance is the diagonal of the Fisher information"
    stores = "one importance per weight"
    shapes: ClassVar = {"fisher": "P"}
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options:
        """Settings of EWC."""

        lambda_efim: float = 5000.0
        """Weight of the penalty."""
        alpha: float = 0.5
        """Part of the old importances when new ones are fused in."""

        def __post_init__(self) -> None:
            at_least(self, lambda_efim=0.0)
            part_of_one(self, "alpha")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.fisher = torch.zeros(())  # F, (P,)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ/2 Σ_i F_i (θ_i − θ*_i)²."""
        assert ctx.old is not None
        penalty = quadratic_penalty(self.fisher, flat_weights(ctx.model), flat_weights(ctx.old).detach())
        return {**super().loss(ctx, batch), "ewc": self.options.lambda_efim / 2 * penalty}

    def after_task(self, ctx: Context) -> None:
        fisher = fisher_diagonal(ctx.model, training_batches(ctx))
        self.fisher = fused(self.fisher, fisher, self.options.alpha)
