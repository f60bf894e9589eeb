"""SDC: nearest class mean, the means moved by what the new images moved (Semantic Drift Compensation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, newest_cross_entropy
from efcil.engine.model import IncrementalModel
from efcil.paper.drift import Kernel, compensate
from efcil.paper.prototypes import appended, class_means
from efcil.parts.nearest_mean import nearest_mean_scores


class SDC(Method):
    name = "sdc"
    year = 2020
    idea = "feature distillation, nearest class mean with semantic drift compensation"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}

    @dataclass(frozen=True)
    class Options:
        """Settings of SDC."""

        tradeoff: float = 1.0
        """Weight of the feature distillation."""
        kernel: Kernel = "literal"
        """Distances as they are, or first scaled to [0, 1] over all pairs of mean and image."""
        sigma: float = 0.3
        """Width of the kernel, σ."""

        def __post_init__(self) -> None:
            at_least(self, tradeoff=0.0, sigma=1e-6)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # (m, n)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy of the new classes and ½ tradeoff Σ‖y' − y‖² (E-LwF)."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)
        old_features = ctx.old_features(batch.x)
        drift = F.normalize(features) - F.normalize(old_features)  # y' − y, (B, n)
        return {
            "ce": newest_cross_entropy(ctx, features, batch.y),
            "distillation": self.options.tradeoff / 2 * drift.square().sum(),
        }

    def passes_after(self, ctx: Context) -> int:
        return 1 if ctx.first else 2

    def after_task(self, ctx: Context) -> None:
        (new,) = ctx.extract(ctx.model, augmented=False)
        new = F.normalize(new)  # y'
        if ctx.old is not None:
            (old,) = ctx.extract(ctx.old, augmented=False)
            self.means = self.moved(F.normalize(old), new)
        self.means = appended(self.means, class_means(new, ctx.columns))

    def moved(self, old: Tensor, new: Tensor) -> Tensor:
        """μ_c + Σ_i w_ic (y'_i − y_i) / Σ_i w_ic with w_ic = exp(−‖y_i − μ_c‖² / 2σ²), (m, n)."""
        return compensate(self.means, old, new, None, self.options.sigma, self.options.kernel)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return nearest_mean_scores(F.normalize(features), self.means)
