"""AdaGauss: Gaussians in a small, uncollapsed feature space, adapted task by task, and the Mahalanobis distance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms
from efcil.parts.bottleneck import Bottlenecked, BottleneckOptions, widened_map
from efcil.parts.compensators import Gaussians, mlp


class AdaGauss(Bottlenecked):
    name = "adagauss"
    year = 2024
    idea = "projected feature distillation against collapse in a 64-d space, Gaussians adapted by a learned map"

    @dataclass(frozen=True)
    class Options(BottleneckOptions):
        """Settings of AdaGauss."""

        lambda_distillation: float = 10.0
        """Weight of the projected distillation, λ."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, lambda_distillation=0.0)

    def fresh_maps(self, size: int) -> dict[str, nn.Module]:
        return {"distiller": widened_map(size)}  # φ

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + α L_AC + λ MSE(φ(z_t), z_{t−1})."""
        z = self.projected(ctx.model.features(batch.x))
        missed = F.mse_loss(self.maps["distiller"](z), self.old_projected(ctx, batch.x))
        distillation = self.options.lambda_distillation * missed
        return {**self.shared_terms(z, batch.y - ctx.known), "distillation": distillation}

    def moved(self, ctx: Context, bottleneck: Tensor) -> Gaussians:
        """By a map fitted on one view of the current images."""
        old, new = self.views(ctx, bottleneck)
        return mlp(old, new, self.means, self.covariance_factors.mT.unbind(), ctx)
