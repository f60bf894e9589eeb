"""MAS: Memory Aware Synapses, a quadratic penalty on moving weights that the length of the output depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms
from efcil.engine.model import IncrementalModel
from efcil.paper.recipes import COMPARED
from efcil.paper.regularizers import flat_weights, fused, importance, quadratic_penalty, training_batches


class MAS(Method):
    name = "mas"
    year = 2018
    idea = "important weights stay where they are; importance is how much the network's output depends on them"
    stores = "one importance per weight"
    shapes: ClassVar = {"omega": "P"}
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options:
        """Settings of MAS."""

        lambda_mas: float = 1.0
        """Weight of the penalty."""
        alpha: float = 0.5
        """Part of the old importances when new ones are fused in."""

        def __post_init__(self) -> None:
            at_least(self, lambda_mas=0.0)
            part_of_one(self, "alpha")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.omega = torch.zeros(())  # Ω, (P,)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ/2 Σ_i Ω_i (θ_i − θ*_i)²."""
        assert ctx.old is not None
        penalty = quadratic_penalty(self.omega, flat_weights(ctx.model), flat_weights(ctx.old).detach())
        return {**super().loss(ctx, batch), "mas": self.options.lambda_mas / 2 * penalty}

    def after_task(self, ctx: Context) -> None:
        omega = output_sensitivity(ctx.model, training_batches(ctx))
        self.omega = fused(self.omega, omega, self.options.alpha)


def output_sensitivity(model: IncrementalModel, batches: Iterable[Tensor]) -> Tensor:
    """Mean over the images of |∂ mean_x ‖z(x)‖₂ / ∂θ|, z the logits of all heads, the inner mean over a batch (P,)."""
    return importance(model, batches, lambda logits: torch.linalg.vector_norm(logits, dim=1).mean(), torch.abs)
