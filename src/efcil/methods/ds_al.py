"""DS-AL: ACIL with a second regression that learns what the first leaves over (Dual-Stream Analytic Learning)."""

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


class DSAL(Method):
    name = "ds-al"
    year = 2024
    idea = "as acil, with a second stream that learns the residual of the first"
    stores = "a random matrix, two inverse autocorrelation matrices and regression weights"
    shapes: ClassVar = {
        "expansion": "n expansion",
        "main_inverse": "expansion expansion float64",
        "main_weight": "expansion m float64",
        "compensation_inverse": "expansion expansion float64",
        "compensation_weight": "expansion m float64",
    }
    freezes_backbone = True

    @dataclass(frozen=True)
    class Options:
        """Settings of DS-AL."""

        expansion: int = 8192
        """Number of randomly expanded features, D; memory grows with its square."""
        gamma: float = 0.1
        """Weight of the ridge penalty of the main stream, γ."""
        gamma_compensation: float = 0.1
        """Weight of the ridge penalty of the compensation stream."""
        compensation: float = 0.6
        """Weight of the compensation stream in the score, C."""

        def __post_init__(self) -> None:
            at_least(self, expansion=1, gamma=1e-9, gamma_compensation=1e-9, compensation=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.expansion = torch.empty(0)  # R, (n, D)
        self.main = RecursiveRidge(torch.empty(0), torch.empty(0))
        self.compensation = RecursiveRidge(torch.empty(0), torch.empty(0))

    def after_task(self, ctx: Context) -> None:
        size, device = self.options.expansion, ctx.device
        if ctx.first:
            self.expansion = random_expansion(ctx.model.feature_dim, size, ctx.rng).to(device)
            self.main = RecursiveRidge.start(size, self.options.gamma, device)
            self.compensation = RecursiveRidge.start(size, self.options.gamma_compensation, device)
        (features,) = ctx.extract(ctx.model, augmented=False)
        self.learn(features, ctx.columns, ctx.known, ctx.known + ctx.classes)

    def learn(self, features: Tensor, columns: Tensor, known: int, classes: int) -> None:
        """The main stream, then the compensation stream on what is left over of the task's own classes."""
        for rows, targets in batches(features, columns, classes):
            self.main.fit(self.expanded(rows)[0], targets)
        for rows, targets in batches(features, columns, classes):
            main, compensation = self.expanded(rows)
            residual = targets - main @ self.main.weight  # (B, m)
            residual[:, :known] = 0
            self.compensation.fit(compensation, residual)

    def seconds_after(self, ctx: Context) -> float:
        return 2 * recursive_seconds(len(ctx.columns), self.options.expansion, ctx.device)

    def expanded(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """ReLU(f R) and tanh(f R), (N, D) each in float64."""
        projected = features @ self.expansion
        return torch.relu(projected).double(), torch.tanh(projected).double()

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        main, compensation = self.expanded(features)
        c: float = self.options.compensation
        return main @ self.main.weight + c * (compensation @ self.compensation.weight)

    def state(self) -> State:
        return {
            "expansion": self.expansion,
            "main_inverse": self.main.inverse,
            "main_weight": self.main.weight,
            "compensation_inverse": self.compensation.inverse,
            "compensation_weight": self.compensation.weight,
        }

    def load_state(self, state: State) -> None:
        self.expansion = state["expansion"]
        self.main = RecursiveRidge(state["main_inverse"], state["main_weight"])
        self.compensation = RecursiveRidge(state["compensation_inverse"], state["compensation_weight"])
