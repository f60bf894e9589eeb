"""Frozen backbone and nearest class mean: nothing is forgotten, nothing new is learnt but the means."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.paper.prototypes import appended, class_means
from efcil.parts.nearest_mean import nearest_mean_scores


class Freeze(Method):
    name = "freeze"
    year = 2013
    idea = "backbone frozen after the first task, nearest class mean"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}
    freezes_backbone = True

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.means = torch.empty(0)  # (m, n)

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        means = class_means(features, ctx.columns)
        self.means = appended(self.means, means)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return nearest_mean_scores(features, self.means)
