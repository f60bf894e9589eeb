"""Images attacked until the old network takes them for an old class, and the drift that they then show.

Current images nearest to an old mean are changed, down the gradient of their distance from it. Where the new network
puts the changed images tells how the old class has moved (ADC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import TINY

if TYPE_CHECKING:
    from efcil.engine.context import Context

Limits = tuple[Tensor, Tensor]  # least and greatest value of each channel, (3, 1, 1) each


def attack(
    model: IncrementalModel, x: Tensor, target: Tensor, iterations: int, alpha: float, limits: Limits | None
) -> Tensor:
    """x ← clamp(x − α ∇/‖∇‖) with ∇ the gradient of MSE(f(x), target), its norm over all images, (B, 3, S, S).

    The target is one vector (n,) or one for each image (B, n); without limits nothing is clamped.
    """
    for _ in range(iterations):
        x = x.detach().requires_grad_()
        features = model.features(x)
        (gradient,) = torch.autograd.grad(F.mse_loss(features, target.expand_as(features)), x)
        x = x.detach() - alpha * gradient / gradient.norm().clamp_min(TINY)
        x = x if limits is None else x.clamp(*limits)
    return x


@torch.no_grad()
def taken_for(model: IncrementalModel, x: Tensor, means: Tensor) -> Tensor:
    """The class whose mean is nearest to the features of each image, (B,)."""
    return torch.cdist(model.features(x), means).argmin(1)


def nearest_rows(features: Tensor, mean: Tensor, count: int) -> Tensor:
    """The images whose features are nearest to a mean, nearest first, (count,) or all if there are fewer."""
    distances: Tensor = torch.linalg.vector_norm(features - mean, dim=1)
    return distances.argsort(stable=True)[:count].cpu()


def pixel_limits(ctx: Context) -> Limits:
    """The least and the greatest value of each channel in the current images."""
    rows = list(torch.arange(len(ctx.images)).split(256))
    ranges = [(x.amin((0, 2, 3)), x.amax((0, 2, 3))) for x in ctx.views(ctx.images, rows, augmented=False)]
    low, high = (torch.stack(ends) for ends in zip(*ranges, strict=True))
    return low.amin(0)[:, None, None], high.amax(0)[:, None, None]


def class_drift(
    old: IncrementalModel,
    new: IncrementalModel,
    x: Tensor,
    means: Tensor,
    column: int,
    iterations: int,
    alpha: float,
    limits: Limits | None,
) -> Tensor:
    """Mean of f_t(x̃) − f_{t−1}(x̃) over the attacked images that succeed, or over x if none does, (n,)."""
    attacked = attack(old, x, means[column], iterations, alpha, limits)
    success = taken_for(old, attacked, means) == column
    with torch.no_grad():
        shown = attacked[success] if success.any() else x
        return (new.features(shown) - old.features(shown)).mean(0)


def mean_drifts(ctx: Context, means: Tensor, attacked: int, iterations: int, alpha: float) -> Tensor:
    """How far each old mean has moved, as the attacked images nearest to it show, (m, n)."""
    assert ctx.old is not None
    (old,) = ctx.extract(ctx.old, augmented=False)
    limits = pixel_limits(ctx)
    drifts = []
    for column, mean in enumerate(means):
        (x,) = ctx.views(ctx.images, [nearest_rows(old, mean, attacked)], augmented=False)
        drifts.append(class_drift(ctx.old, ctx.model, x, means, column, iterations, alpha, limits))
    return torch.stack(drifts)
