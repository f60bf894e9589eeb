"""SI: Synaptic Intelligence, a quadratic penalty on moving weights whose way has brought the loss down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms
from efcil.paper.regularizers import flat_weights, quadratic_penalty
from efcil.parts.path import PathMethod


class SI(PathMethod):
    name = "si"
    year = 2017
    idea = "important weights stay where they are; importance is what moving them gained while they learnt"
    stores = "one importance per weight"
    shapes: ClassVar = {"omega": "P"}

    @dataclass(frozen=True)
    class Options:
        """Settings of SI."""

        c: float = 0.1
        """Weight of the penalty."""
        xi: float = 0.1
        """Damping ξ, which bounds the importance of weights that hardly moved."""

        def __post_init__(self) -> None:
            at_least(self, c=0.0, xi=1e-12)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.omega = torch.zeros(())  # Ω, (P,)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + c Σ_i Ω_i (θ_i − θ*_i)²."""
        terms = super().loss(ctx, batch)
        self.path.begin_step(ctx.model, terms["ce"])
        penalty = quadratic_penalty(self.omega, flat_weights(ctx.model), self.path.start)
        return {**terms, "si": self.options.c * penalty}

    def after_task(self, ctx: Context) -> None:
        path, way = self.path.end_task(ctx.model)
        self.omega = self.omega + gain_per_way(path, way, self.options.xi)


def gain_per_way(path: Tensor, way: Tensor, xi: float) -> Tensor:
    """ω_i / ((θ_i − θ*_i)² + ξ), (P,)."""
    return path / (way + xi)
