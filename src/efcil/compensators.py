"""Learned drift compensation: a map from old to new features, fitted on the current images, carries old classes along.

The images of task t go through the old and the new network. A map fitted on these pairs, f_{t−1}(x) → f_t(x), is
applied to the Gaussian of every old class. All maps have one signature; features are rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.prototypes import gaussian_prototypes

Gaussians = tuple[Tensor, Tensor]  # means (m, n) and lower triangular factors of the covariances (m, n, n)
Compensator = Callable[[Tensor, Tensor, Tensor, Tensor, torch.Generator], Gaussians]


def linear(
    old_features: Tensor, new_features: Tensor, means: Tensor, factors: Tensor, rng: torch.Generator
) -> Gaussians:
    """The least-squares map without bias, p ← p W and Σ ← Wᵀ Σ W (LDC, in closed form)."""
    old, new = old_features.double(), new_features.double()
    return carried(means, factors, regression(old, new, 1e-9))


def ridge(
    old_features: Tensor,
    new_features: Tensor,
    means: Tensor,
    factors: Tensor,
    rng: torch.Generator,
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
    factors: Tensor,
    rng: torch.Generator,
    steps: int = 1000,
    lr: float = 1e-3,
    draws_per_feature: int = 4,
) -> Gaussians:
    """A residual network of two layers; each Gaussian becomes the Gaussian of its draws after the map (AdaGauss)."""
    weights = fit_mlp(old_features, new_features, steps, lr, rng)
    noise = standard_draws(draws_per_feature * means.shape[1], means, rng)  # (k, n)
    moved = [
        gaussian_prototypes(apply_mlp(weights, mean + noise @ factor.T), torch.zeros(len(noise), device=means.device))
        for mean, factor in zip(means, factors, strict=True)
    ]
    return torch.cat([gaussian.means for gaussian in moved]), torch.cat([gaussian.factors for gaussian in moved])


COMPENSATORS: dict[str, Compensator] = {"linear": linear, "ridge": ridge, "mlp": mlp}


def regression(x: Tensor, y: Tensor, strength: float) -> Tensor:
    """(XᵀX + γ I)⁻¹ XᵀY, with γ this part of the mean diagonal of XᵀX, (n, n)."""
    gram = x.T @ x
    gram.diagonal().add_(strength * gram.diagonal().mean().clamp_min(1e-12))
    solution: Tensor = torch.linalg.solve(gram, x.T @ y)
    return solution


def carried(means: Tensor, factors: Tensor, weight: Tensor) -> Gaussians:
    """p W, and a factor of Wᵀ Σ W for Σ = F Fᵀ; by QR, which needs no positive definite matrix."""
    triangles = torch.linalg.qr(factors.double().mT @ weight, mode="r").R  # Fᵀ W = Q R, so Wᵀ Σ W = Rᵀ R
    return (means.double() @ weight).to(means.dtype), triangles.mT.contiguous().to(factors.dtype)


def fit_mlp(old: Tensor, new: Tensor, steps: int, lr: float, rng: torch.Generator) -> list[Tensor]:
    """Layers of f + B relu(A f + a) + b with the least squared error, by Adam; it starts as the identity."""
    n = old.shape[1]
    bound = 1 / math.sqrt(n)
    first = torch.empty(2 * n, n).uniform_(-bound, bound, generator=rng).to(old)
    weights = [first, old.new_zeros(2 * n), old.new_zeros(n, 2 * n), old.new_zeros(n)]  # A, a, B, b
    optimizer = torch.optim.Adam([weight.requires_grad_() for weight in weights], lr=lr)
    with torch.enable_grad():
        for _ in range(steps):
            rows = torch.randint(len(old), (min(128, len(old)),), generator=rng).to(old.device)
            loss = F.mse_loss(apply_mlp(weights, old[rows]), new[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [weight.detach() for weight in weights]


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
    root = torch.linalg.cholesky(noise.T.cov().reshape(like.shape[1], -1))
    whitened: Tensor = torch.linalg.solve_triangular(root, noise.T, upper=False).T
    return whitened.to(like)
