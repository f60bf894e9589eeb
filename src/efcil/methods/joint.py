"""Joint training: at every step all images so far are trained on together (upper bound, not exemplar-free).

Each step goes on from the last network with the first task's recipe: its optimiser, its rotations, BatchNorm in
training mode, and cross-entropy over all classes.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch

from efcil.config import ClassifierConfig, Training
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, parameter_groups


class Joint(Method):
    name = "joint"
    year = 2024
    idea = "upper bound: all images so far are kept and trained on together"
    stores = "every image"
    exemplar_free = False
    freezes_batchnorm = False

    def training(self, ctx: Context) -> Training:
        return ctx.config.first

    def work(self, config: ClassifierConfig, images: list[int]) -> list[int]:
        return [count * config.first.epochs * max(1, config.first.turns) for count in accumulate(images)]

    def before_task(self, ctx: Context) -> None:
        if ctx.past is not None:
            past, columns = ctx.past
            ctx.images, ctx.columns = past.joined(ctx.images), torch.cat([columns, ctx.columns])
            ctx.classes += ctx.known

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        return self.first_loss(ctx, batch)
