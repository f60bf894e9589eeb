"""ACIL: frozen backbone, random expansion and recursive least squares (Analytic Class-Incremental Learning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.method import Method, State
from efcil.engine.model import IncrementalModel
from efcil.parts.ridge import RecursiveRidge, batches, random_expansion, recursive_seconds


class ACIL(Method):
    name = "acil"
    year = 2022
    idea = "backbone frozen after the first task, recursive ridge regression on randomly expanded features"
    stores = "a random matrix, an inverse autocorrelation matrix and regression weights"
    shapes: ClassVar = {
        "expansion": "n expansion",
        "inverse": "expansion expansion float64",
        "weight": "expansion m float64",
    }
    freezes_backbone = True
    refines = True

    @dataclass(frozen=True)
    class Options:
        """Settings of ACIL."""

        expansion: int = 8192
        """Number of randomly expanded features, D; memory grows with its square."""
        gamma: float = 0.1
        """Weight of the ridge penalty, γ."""

        def __post_init__(self) -> None:
            at_least(self, expansion=1, gamma=1e-9)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.expansion = torch.empty(0)  # R, (n, D)
        self.ridge = RecursiveRidge(torch.empty(0), torch.empty(0))

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            self.expansion = random_expansion(ctx.model.feature_dim, self.options.expansion, ctx.rng).to(ctx.device)
            self.ridge = RecursiveRidge.start(self.options.expansion, self.options.gamma, ctx.device)
        (features,) = ctx.extract(ctx.model, augmented=False)
        self.learn(features, ctx.columns, ctx.known + ctx.classes)

    def learn(self, features: Tensor, columns: Tensor, classes: int) -> None:
        """Every feature vector of a task, once."""
        for rows, targets in batches(features, columns, classes):
            self.ridge.fit(self.expanded(rows), targets)

    def seconds_after(self, ctx: Context) -> float:
        return recursive_seconds(len(ctx.columns), self.options.expansion, ctx.device)

    def expanded(self, features: Tensor) -> Tensor:
        """h = ReLU(f R), (N, D) in float64."""
        return torch.relu(features @ self.expansion).double()

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return self.expanded(features) @ self.ridge.weight

    def state(self) -> State:
        return {"expansion": self.expansion, "inverse": self.ridge.inverse, "weight": self.ridge.weight}

    def load_state(self, state: State) -> None:
        self.expansion = state["expansion"]
        self.ridge = RecursiveRidge(state["inverse"], state["weight"])
