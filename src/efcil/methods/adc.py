"""ADC: new images, attacked until the old network takes them for an old class, show how its mean has drifted.

ADC is Adversarial Drift Compensation; the classifier is nearest class mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.paper.prototypes import appended, class_means
from efcil.parts.attacks import mean_drifts
from efcil.parts.distillation import DistillationOptions, Distilling
from efcil.parts.nearest_mean import cosine_mean_scores


class ADC(Distilling):
    name = "adc"
    year = 2024
    idea = "knowledge distillation, nearest class mean, drift measured on new images attacked towards the old means"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}

    @dataclass(frozen=True)
    class Options(DistillationOptions):
        """Settings of ADC."""

        attacked: int = 100
        """Images attacked for each old class, those nearest to its mean."""
        iterations: int = 3
        """Steps of the attack."""
        alpha: float = 25.0
        """Length of a step, over all attacked images together, α."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, attacked=1, iterations=0, alpha=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # (m, n)

    def passes_after(self, ctx: Context) -> int:
        return 1 if ctx.first else 2

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        if not ctx.first:
            o = self.options
            self.means = self.means + mean_drifts(ctx, self.means, o.attacked, o.iterations, o.alpha)
        self.means = appended(self.means, class_means(features, ctx.columns))

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return cosine_mean_scores(features, self.means)
