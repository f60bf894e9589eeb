"""Frozen backbone and nearest class mean: nothing is forgotten, nothing new is learnt but the means."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from efcil.methods.base import Context, Method
from efcil.model import IncrementalModel
from efcil.prototypes import class_means


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
        self.means = means if ctx.first else torch.cat([self.means, means])

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return -torch.cdist(features, self.means).square()
