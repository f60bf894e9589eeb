"""Prototype drift compensation (§4.3): move the old class means by what the current images moved.

The images of task t go through the old and the new network; a prototype follows the drift of the images that
the old classifier sees as similar to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from efcil.paper.efm import factor, pseudo_norm

Kernel = Literal["scaled", "literal"]
PAIRS = 1 << 21  # pairs of a class and an image that are looked at together where images come in chunks


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


class StreamedDrift:
    """compensate() of images that come in chunks: sums over them, the same up to rounding.

    The scaled kernel needs the least and the greatest distance of all pairs before any weight: then every chunk has to
    pass twice, first through look() and then through add(). The literal one needs add() alone.
    """

    def __init__(self, prototypes: Tensor, efm: Tensor | None, sigma: float, kernel: Kernel) -> None:
        self.prototypes, self.kernel, self.width = prototypes, kernel, 2 * sigma**2
        self.projection = None if efm is None else factor(efm)  # (n, rank)
        self.points = self._projected(prototypes)
        infinite = self.points.new_full((len(prototypes), 1), math.inf)
        self.low, self.high = infinite[0, 0], -infinite[0, 0]
        self.greatest = -infinite  # exponent of each class so far, which the sums are relative to (classes, 1)
        self.weights = torch.zeros_like(infinite)  # Σ w_i, (classes, 1)
        self.drifts = torch.zeros_like(prototypes, dtype=torch.float64)  # Σ w_i δ_i, (classes, n)

    def _projected(self, features: Tensor) -> Tensor:
        return (features if self.projection is None else features @ self.projection).double()

    def _pairs(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Some rows at a time and −d of each class and each of them, (classes, rows)."""
        step = max(1, PAIRS // max(1, len(self.points)))
        for start in range(0, len(features), step):
            rows = slice(start, start + step)
            yield rows, -torch.cdist(self.points, self._projected(features[rows])).square()

    def look(self, old_features: Tensor) -> None:
        """The first pass of a chunk."""
        for _, closeness in self._pairs(old_features):
            self.low, self.high = torch.minimum(self.low, closeness.min()), torch.maximum(self.high, closeness.max())

    def add(self, old_features: Tensor, new_features: Tensor) -> None:
        """The second pass of a chunk, or the only one."""
        for rows, closeness in self._pairs(old_features):
            if self.kernel == "scaled":
                span = self.high - self.low
                closeness = (closeness - self.low) / span if span > 0 else torch.zeros_like(closeness)
            exponents = closeness / self.width
            greatest = torch.maximum(self.greatest, exponents.amax(1, keepdim=True))
            shrunk, own = (self.greatest - greatest).exp(), (exponents - greatest).exp()
            drift = (new_features[rows] - old_features[rows]).double()
            self.greatest = greatest
            self.weights = shrunk * self.weights + own.sum(1, keepdim=True)
            self.drifts = shrunk * self.drifts + own @ drift

    def moved(self) -> Tensor:
        """p + Σ_i w_i δ_i / Σ_i w_i (Eqs. 14-15), (classes, n)."""
        return self.prototypes + (self.drifts / self.weights).to(self.prototypes.dtype)


# How far class means themselves have moved (§5.3)


def mean_drift(old_means: Tensor, new_means: Tensor) -> Tensor:
    """Δμ^c = μ^c_t − μ^c_{t−1} of each class (Eq. 18), (classes, n)."""
    return new_means - old_means


def task_drift(old_means: Tensor, new_means: Tensor, efm: Tensor) -> Tensor:
    """Mean over the classes of a task of (Δμ)ᵀ E_t Δμ (Eqs. 18-20), ()."""
    return pseudo_norm(mean_drift(old_means, new_means), efm).mean()
