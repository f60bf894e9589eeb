"""What LwF and its relatives share: the old classes' softened outputs on new images stay as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, newest_cross_entropy
from efcil.paper.recipes import COMPARED
from efcil.paper.regularizers import old_head_distillation


@dataclass(frozen=True)
class DistillationOptions:
    """Weight and temperature of knowledge distillation."""

    lambda_lwf: float = 10.0
    """Weight of the distillation."""
    temperature: float = 2.0
    """T, which softens both outputs."""

    def __post_init__(self) -> None:
        at_least(self, lambda_lwf=0.0, temperature=1e-3)


class Distilling(Method):
    """Fine-tuning with knowledge distillation; what is kept and how classes are scored is for the method to say."""

    recipe = COMPARED
    options: Any

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ H(q_old^{1/T}, q^{1/T}) among the old ones."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)
        distillation = old_head_distillation(ctx.old, batch.x, features, self.options.temperature)
        return {
            "ce": newest_cross_entropy(ctx, features[: batch.new], batch.y[: batch.new]),  # others only distil
            "kd": self.options.lambda_lwf * distillation,
        }
