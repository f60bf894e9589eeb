"""Learned drift compensation: what the current images show of the drift carries the old classes along.

The images of task t go through the old and the new network. A map fitted on these pairs, f_{t−1}(x) → f_t(x), is
applied to the Gaussian of every old class; or attacked images show how far its mean has moved. All compensators have
one signature: features of the current images in the old and in the new network, means and factors of the old classes,
and the task's context for those that need images or random numbers. Features are rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.numerics import JITTER, TINY, above_rounding, cholesky, triangular
from efcil.parts.attacks import mean_drifts
from efcil.rng import uniform

if TYPE_CHECKING:
    from efcil.engine.context import Context

Factors = Sequence[Tensor]  # C_c with CᵀC = Σ_c, n columns and at most as many rows each
Gaussians = tuple[Tensor, tuple[Tensor, ...]]  # means (m, n) and upper triangular factors
Compensator = Callable[[Tensor, Tensor, Tensor, Factors, "Context"], Gaussians]


def linear(old_features: Tensor, new_features: Tensor, means: Tensor, factors: Factors, ctx: Context) -> Gaussians:
    """The least-squares map without bias, p ← p W and Σ ← Wᵀ Σ W (LDC, in closed form)."""
    old, new = old_features.double(), new_features.double()
    return carried(means, factors, regression(old, new, 1e-9))


def ridge(
    old_features: Tensor,
    new_features: Tensor,
    means: Tensor,
    factors: Factors,
    ctx: Context,
    strength: float = 1e-2,
) -> Gaussians:
    """W = I + D with a penalty on D: directions that the current images do not show are taken not to have moved."""
    old, new = old_features.double(), new_features.double()
    identity = torch.eye(old.shape[1], dtype=torch.float64, device=old.device)
    return carried(means, factors, identity + regression(old, new - old, strength))


def mlp(
    old_features: Tensor,
    new_features: Tensor,
    means: Tensor,
    factors: Factors,
    ctx: Context,
    steps: int = 1000,
    lr: float = 1e-3,
    draws_per_feature: int = 4,
) -> Gaussians:
    """A residual network of two layers; each Gaussian becomes the Gaussian of its draws after the map (AdaGauss).

    The map bends what was flat, so that a thin factor comes out with as many rows as there are features.
    """
    weights = fit_mlp(old_features, new_features, steps, lr, ctx.rng)
    noise = standard_draws(draws_per_feature * means.shape[1], means, ctx.rng)  # (k, n)
    return pushed_forward(means, factors, partial(apply_mlp, weights), noise)


def adversarial(
    old_features: Tensor,
    new_features: Tensor,
    means: Tensor,
    factors: Factors,
    ctx: Context,
    attacked: int = 100,
    iterations: int = 3,
    alpha: float = 25.0,
) -> Gaussians:
    """Each mean moves as images attacked towards it; that is a translation, so covariances stay (ADC)."""
    return means + mean_drifts(ctx, means, attacked, iterations, alpha), tuple(factors)


def dual_projection(
    old_features: Tensor,
    new_features: Tensor,
    means: Tensor,
    factors: Factors,
    ctx: Context,
    epsilon: float = 1e-9,
) -> Gaussians:
    """The linear map, then for each class the projection on the directions it has: p ← p P_c and Σ ← P_cᵀ Σ P_c (DPCR).

    Those directions are the span of Σ + pᵀp; a variance below the jitter that draws get counts as none.
    """
    rows = (torch.cat([factor, mean[None]]).double() for mean, factor in zip(means, factors, strict=True))
    moments = (r.T @ r for r in rows)  # Σ + pᵀp, (n, n)
    maps = class_maps(old_features.double(), new_features.double(), moments, epsilon, floor=JITTER)
    moved = [
        carried(mean[None], [factor], class_map) for mean, factor, class_map in zip(means, factors, maps, strict=True)
    ]
    return torch.cat([mean for mean, _ in moved]), tuple(factor for _, (factor,) in moved)


COMPENSATORS: dict[str, Compensator] = {
    "linear": linear,
    "ridge": ridge,
    "mlp": mlp,
    "adversarial": adversarial,
    "dual-projection": dual_projection,
}


def regression(x: Tensor, y: Tensor, strength: float) -> Tensor:
    """(XᵀX + γ I)⁻¹ XᵀY, with γ this part of the mean diagonal of XᵀX, (n, n)."""
    gram = x.T @ x
    gram.diagonal().add_(strength * gram.diagonal().mean().clamp_min(TINY))
    solution: Tensor = torch.linalg.solve(gram, x.T @ y)
    return solution


def class_projector(moment: Tensor, floor: float = 0.0) -> Tensor:
    """U_c U_cᵀ, the projection on the span of a class's features, for U_c the singular vectors of Φ_c, (n, n).

    Φ_c is the uncentred covariance, up to a factor; singular values not above ``floor`` count as zero.
    """
    values, vectors = torch.linalg.eigh(moment)
    u = vectors[:, above_rounding(values) & (values > floor)]
    projection: Tensor = u @ u.T
    return projection


def class_maps(old: Tensor, new: Tensor, moments: Iterable[Tensor], epsilon: float, floor: float = 0.0) -> list[Tensor]:
    """P_c = P U_c U_cᵀ of each class, with the task map P = (X_oᵀX_o + εI)⁻¹ X_oᵀX_n, (n, n) each."""
    task_map = regression(old, new, epsilon)
    return [task_map @ class_projector(moment, floor) for moment in moments]


def carried(means: Tensor, factors: Factors, weight: Tensor) -> Gaussians:
    """p W, and a factor of Wᵀ Σ W for Σ = CᵀC, with no more rows than C has."""
    moved = tuple(triangular(factor.double() @ weight).to(factor.dtype) for factor in factors)
    return (means.double() @ weight).to(means.dtype), moved


def pushed_forward(means: Tensor, factors: Factors, move: Callable[[Tensor], Tensor], noise: Tensor) -> Gaussians:
    """Each Gaussian as that of its draws after the map, for noise (k, n) of which the draws of every class are made."""
    moved = [
        gaussian_of(move(mean + noise[:, : len(factor)] @ factor)) for mean, factor in zip(means, factors, strict=True)
    ]
    return torch.stack([mean for mean, _ in moved]), tuple(factor for _, factor in moved)


def gaussian_of(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (n,) and a factor (n, n) of the unbiased covariance of draws (k, n)."""
    mean = draws.double().mean(0)
    factor = triangular((draws - mean) / (len(draws) - 1) ** 0.5)
    return mean.to(draws.dtype), factor.to(draws.dtype)


def fit_mlp(old: Tensor, new: Tensor, steps: int, lr: float, rng: torch.Generator) -> list[Tensor]:
    """Layers of f + B relu(A f + a) + b with the least squared error, by Adam; it starts as the identity."""
    weights = fresh_mlp(2 * old.shape[1], old, rng)
    optimizer = torch.optim.Adam([weight.requires_grad_() for weight in weights], lr=lr)
    with torch.enable_grad():
        for _ in range(steps):
            rows = torch.randint(len(old), (min(128, len(old)),), generator=rng).to(old.device)
            loss = F.mse_loss(apply_mlp(weights, old[rows]), new[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [weight.detach() for weight in weights]


def fresh_mlp(hidden: int, like: Tensor, rng: torch.Generator) -> list[Tensor]:
    """A, a, B and b of a map of such features that is the identity as yet, with so many hidden units."""
    n = like.shape[1]
    first = uniform(hidden, n, rng).to(like)
    return [first, like.new_zeros(hidden), like.new_zeros(n, hidden), like.new_zeros(n)]


def apply_mlp(weights: list[Tensor], features: Tensor) -> Tensor:
    """f + B relu(A f + a) + b, (N, n)."""
    first, first_bias, second, second_bias = weights
    return features + F.linear(torch.relu(F.linear(features, first, first_bias)), second, second_bias)


def standard_draws(count: int, like: Tensor, rng: torch.Generator) -> Tensor:
    """Normal draws whose mean is exactly zero and whose covariance is exactly the identity, (count, n).

    A map that is linear therefore moves every Gaussian exactly, however few draws there are.
    """
    noise = torch.randn(count, like.shape[1], generator=rng, dtype=torch.float64)
    noise -= noise.mean(0)
    root = cholesky(noise.T.cov().reshape(like.shape[1], -1))
    whitened: Tensor = torch.linalg.solve_triangular(root, noise.T, upper=False).T
    return whitened.to(like)
