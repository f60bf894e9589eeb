"""LDC: Learnable Drift Compensation, class means carried by a linear map from old to new features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.paper.prototypes import appended, class_means
from efcil.parts.compensators import regression
from efcil.parts.distillation import DistillationOptions, Distilling
from efcil.parts.nearest_mean import cosine_mean_scores


class LDC(Distilling):
    name = "ldc"
    year = 2024
    idea = "knowledge distillation, nearest class mean, old means carried by a linear map fitted on the new images"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}

    @dataclass(frozen=True)
    class Options(DistillationOptions):
        """Settings of LDC."""

        epsilon: float = 1e-9
        """Ridge penalty of the map, as a part of the mean diagonal of XᵀX."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, epsilon=1e-12)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # (m, n)

    def passes_after(self, ctx: Context) -> int:
        return 1 if ctx.first else 3

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        if ctx.old is not None:
            old, new = ctx.extract(ctx.old, ctx.model, augmented=True)
            self.means = self.moved(old, new)
        self.means = appended(self.means, class_means(features, ctx.columns))

    def moved(self, old: Tensor, new: Tensor) -> Tensor:
        """μ_c P with P the least-squares map from old to new features, (m, n)."""
        linear_map = regression(old.double(), new.double(), self.options.epsilon)  # (n, n)
        return (self.means.double() @ linear_map).to(self.means.dtype)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return cosine_mean_scores(features, self.means)
