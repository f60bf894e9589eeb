"""LwF: Learning without Forgetting, distillation of the old classes' outputs on new images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from efcil.config import at_least
from efcil.methods.base import Batch, Context, Method, Terms, newest_cross_entropy
from efcil.regularizers import old_head_distillation


class LwF(Method):
    name = "lwf"
    year = 2016
    idea = "on new images the old classes' softened outputs stay as they were (knowledge distillation)"
    recipe: ClassVar = {"incremental": {"lr": 1e-3, "backbone_lr": None, "milestones": [0.45, 0.9]}}  # appendix D.2

    @dataclass(frozen=True)
    class Options:
        """Settings of LwF."""

        lambda_lwf: float = 10.0
        """Weight of the distillation."""
        temperature: float = 2.0
        """T, which softens both outputs."""

        def __post_init__(self) -> None:
            at_least(self, lambda_lwf=0.0, temperature=1e-3)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + λ H(q_old^{1/T}, q^{1/T}) among the old ones."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)
        distillation = old_head_distillation(ctx.old, batch.x, features, self.options.temperature)
        return {
            "ce": newest_cross_entropy(ctx, features, batch.y),
            "kd": self.options.lambda_lwf * distillation,
        }
