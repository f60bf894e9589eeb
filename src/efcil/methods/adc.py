"""ADC: new images, attacked until the old network takes them for an old class, show how its mean has drifted.

ADC is Adversarial Drift Compensation; the classifier is nearest class mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.adversarial import mean_drifts
from efcil.config import at_least
from efcil.methods.base import Context
from efcil.methods.lwf import LwF
from efcil.model import IncrementalModel
from efcil.prototypes import class_means


class ADC(LwF):
    name = "adc"
    year = 2024
    idea = "knowledge distillation, nearest class mean, drift measured on new images attacked towards the old means"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}

    @dataclass(frozen=True)
    class Options(LwF.Options):
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

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        means = class_means(features, ctx.columns)
        if not ctx.first:
            o = self.options
            moved = self.means + mean_drifts(ctx, self.means, o.attacked, o.iterations, o.alpha)
            means = torch.cat([moved, means])
        self.means = means

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return -torch.cdist(F.normalize(features), F.normalize(self.means)).square()
