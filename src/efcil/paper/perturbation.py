"""Noise along the directions that a classifier looks at, and across them (§3.3, Fig. 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from efcil.engine.numerics import above_rounding
from efcil.paper.efm import spectrum


def perturbed(features: Tensor, efm: Tensor, sigma: float, along: bool, rng: torch.Generator) -> Tensor:
    """f + U ε with ε ∼ N(0, σ²) in the first k entries and 0 elsewhere, k the rank of E (Eq. 11), (N, n).

    With ``along`` false it is the complement: noise in the other n − k entries only. The sum is in float64, so that
    a direction outside the range of E stays outside.
    """
    values, vectors = spectrum(efm)  # columns of U, greatest eigenvalue first
    within = above_rounding(values, efm.dtype)
    basis = vectors[:, within if along else ~within]  # (n, k) or (n, n − k)
    noise = torch.randn(len(features), basis.shape[1], generator=rng, dtype=torch.float64)
    return features.double() + sigma * noise.to(basis) @ basis.T
