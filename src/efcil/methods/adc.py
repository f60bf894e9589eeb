"""ADC: new images, attacked until the old network takes them for an old class, show how its mean has drifted.

ADC is Adversarial Drift Compensation; the classifier is nearest class mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.methods.base import Batch, Context, Method, State, Terms
from efcil.methods.lwf import LwF
from efcil.model import IncrementalModel
from efcil.prototypes import class_means


class ADC(Method):
    name = "adc"
    year = 2024
    idea = "knowledge distillation, nearest class mean, drift measured on new images attacked towards the old means"
    stores = "class means"
    recipe = LwF.recipe

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

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """That of LwF."""
        return LwF(self.options).loss(ctx, batch)

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        means = class_means(features, ctx.columns)
        self.means = means if ctx.first else torch.cat([self.means + self.drift(ctx), means])

    def drift(self, ctx: Context) -> Tensor:
        """How far each old mean has moved, as attacked images show it, (m, n)."""
        assert ctx.old is not None
        (old,) = ctx.extract(ctx.old, augmented=False)
        limits = pixel_limits(ctx)
        moved = []
        for column, mean in enumerate(self.means):
            rows = (old - mean).norm(dim=1).argsort(stable=True)[: self.options.attacked].cpu()
            (x,) = ctx.views(ctx.images, [rows], augmented=False)
            moved.append(self.class_drift(ctx.old, ctx.model, x, column, limits))
        return torch.stack(moved)

    def class_drift(
        self, old: IncrementalModel, new: IncrementalModel, x: Tensor, column: int, limits: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Mean of f_t(x̃) − f_{t−1}(x̃) over the attacked images that succeed, or over x if none does, (n,)."""
        attacked = attack(old, x, self.means[column], self.options.iterations, self.options.alpha, limits)
        with torch.no_grad():
            nearest = torch.cdist(old.features(attacked), self.means).argmin(1)
            shown = attacked[nearest == column] if (nearest == column).any() else x
            return (new.features(shown) - old.features(shown)).mean(0)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return -torch.cdist(F.normalize(features), F.normalize(self.means)).square()

    def state(self) -> State:
        return {"means": self.means}

    def load_state(self, state: State) -> None:
        self.means = state["means"]


def attack(
    model: IncrementalModel, x: Tensor, mean: Tensor, iterations: int, alpha: float, limits: tuple[Tensor, Tensor]
) -> Tensor:
    """x ← clamp(x − α ∇/‖∇‖) with ∇ the gradient of MSE(f(x), μ_c), its norm over all images, (B, 3, S, S)."""
    for _ in range(iterations):
        x = x.detach().requires_grad_()
        features = model.features(x)
        (gradient,) = torch.autograd.grad(F.mse_loss(features, mean.expand_as(features)), x)
        x = (x.detach() - alpha * gradient / gradient.norm().clamp_min(1e-12)).clamp(*limits)
    return x


def pixel_limits(ctx: Context) -> tuple[Tensor, Tensor]:
    """The least and the greatest value of each channel in the current images, (3, 1, 1) each."""
    rows = list(torch.arange(len(ctx.images)).split(256))
    ranges = [(x.amin((0, 2, 3)), x.amax((0, 2, 3))) for x in ctx.views(ctx.images, rows, augmented=False)]
    low, high = (torch.stack(ends) for ends in zip(*ranges, strict=True))
    return low.amin(0)[:, None, None], high.amax(0)[:, None, None]
