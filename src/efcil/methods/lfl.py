"""LfL: Less-forgetful Learning, features of new images stay near those of the old network (feature distillation)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, newest_cross_entropy
from efcil.paper.recipes import COMPARED


class LfL(Method):
    name = "lfl"
    year = 2016
    idea = "features of new images stay near those of the old network, old heads are frozen (feature distillation)"
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options:
        """Settings of LfL."""

        lambda_e: float = 1.6e-3
        """Weight of the feature distance."""

        def __post_init__(self) -> None:
            at_least(self, lambda_e=0.0)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ_e ½ ‖f(x; θ_t) − f(x; θ_{t−1})‖²."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)
        old_features = ctx.old_features(batch.x)
        return {
            "ce": newest_cross_entropy(ctx, features, batch.y),
            "features": self.options.lambda_e * half_squared_distance(features, old_features),
        }


def half_squared_distance(features: Tensor, old_features: Tensor) -> Tensor:
    """Mean over the batch of ½ ‖f − f_old‖²."""
    return (features - old_features).square().sum(1).mean() / 2
