"""What SI and RWalk share: following how much each weight, on its way, has brought the loss down."""

from __future__ import annotations

from typing import Any

from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms
from efcil.paper.recipes import COMPARED
from efcil.paper.regularizers import PathIntegral


class PathMethod(Method):
    """Fine-tuning whose path is integrated; what is made of the path is for the method to say."""

    shares_first_task = False  # the path is followed from the first step on
    recipe = COMPARED

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.path = PathIntegral()  # ω and θ*

    def before_task(self, ctx: Context) -> None:
        self.path.begin_task(ctx.model)

    def first_loss(self, ctx: Context, batch: Batch) -> Terms:
        terms = super().first_loss(ctx, batch)
        self.path.begin_step(ctx.model, terms["ce"])
        return terms

    def after_step(self, ctx: Context) -> None:
        self.path.end_step(ctx.model)

    def progress(self) -> State:
        return self.path.progress()

    def load_progress(self, state: State) -> None:
        self.path.load_progress(state)
