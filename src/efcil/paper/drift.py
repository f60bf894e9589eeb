"""Prototype drift compensation (§4.3): move the old class means by what the current images moved.

The images of task t go through the old and the new network; a prototype follows the drift of the images that
the old classifier sees as similar to it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from efcil.paper.efm import factor, pseudo_norm

Kernel = Literal["scaled", "literal"]


def drift_weights(old_features: Tensor, prototypes: Tensor, efm: Tensor | None, sigma: float, kernel: Kernel) -> Tensor:
    """Weight of each image for each prototype, rows summing to one (Eq. 15), (classes, N).

    Without an EFM the distances are plain ones, d = ‖f − p‖² (SDC).
    ``literal`` is Eq. 15 as printed, normalised as a softmax so that distant classes do not give 0/0.
    ``scaled`` first brings the negated distances of all pairs to [0, 1]; σ = 0.2 belongs to this one.
    """
    if efm is not None:
        projection = factor(efm)  # (n, rank): d = (f − p)ᵀ E (f − p) = ‖f A − p A‖²
        prototypes, old_features = prototypes @ projection, old_features @ projection
    closeness = -torch.cdist(prototypes.double(), old_features.double()).square()  # −d, (classes, N)
    if kernel == "scaled":
        low, high = closeness.min(), closeness.max()
        closeness = (closeness - low) / (high - low) if high > low else torch.zeros_like(closeness)
    return torch.softmax(closeness / (2 * sigma**2), dim=1).to(old_features.dtype)


def compensate(
    prototypes: Tensor, old_features: Tensor, new_features: Tensor, efm: Tensor | None, sigma: float, kernel: Kernel
) -> Tensor:
    """p ← p + Σ_i w_i δ_i / Σ_i w_i with δ_i the drift of image i (Eqs. 14-15), (classes, n)."""
    weights = drift_weights(old_features, prototypes, efm, sigma, kernel)
    return prototypes + weights @ (new_features - old_features)


# How far class means themselves have moved (§5.3)


def mean_drift(old_means: Tensor, new_means: Tensor) -> Tensor:
    """Δμ^c = μ^c_t − μ^c_{t−1} of each class (Eq. 18), (classes, n)."""
    return new_means - old_means


def task_drift(old_means: Tensor, new_means: Tensor, efm: Tensor) -> Tensor:
    """Mean over the classes of a task of (Δμ)ᵀ E_t Δμ (Eqs. 18-20), ()."""
    return pseudo_norm(mean_drift(old_means, new_means), efm).mean()
