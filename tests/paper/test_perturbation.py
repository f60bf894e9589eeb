"""Noise along and across the EFM, against Eq. 11 written out."""

from __future__ import annotations

import pytest
import torch

from conftest import normal, rng_of
from efcil.paper.efm import empirical_feature_matrix
from efcil.paper.perturbation import perturbed

FEATURES, WEIGHT = normal(40, 7), normal(3, 7, seed=1)
EFM = empirical_feature_matrix(FEATURES, WEIGHT)


@pytest.mark.parametrize("along", [True, False])
def test_perturbed_features_are_those_of_equation_11(along: bool) -> None:
    """f + U ε, ε zero outside the first k = m − 1 entries or within them, one feature vector at a time."""
    values, vectors = torch.linalg.eigh(EFM)
    u = vectors[:, values.argsort(descending=True)]  # eigenvectors as columns, greatest eigenvalue first
    k = 2
    noise = torch.randn(40, k if along else 7 - k, generator=rng_of(3), dtype=torch.float64)
    got = perturbed(FEATURES, EFM, 0.7, along, rng_of(3))
    for row, drawn in enumerate(noise):
        epsilon = torch.zeros(7, dtype=torch.float64)
        epsilon[:k] = 0.7 * drawn if along else 0.0
        if not along:
            epsilon[k:] = 0.7 * drawn
        expected = FEATURES[row] + u @ epsilon
        # The signs and, among equal eigenvalues, the choice of eigenvectors are free: compare what they span.
        within = u[:, :k] @ u[:, :k].T
        moved = got[row] - FEATURES[row]
        assert torch.allclose(moved.norm(), (expected - FEATURES[row]).norm())
        assert torch.allclose(within @ moved, moved if along else torch.zeros(7).double(), atol=1e-10)


def test_outside_the_range_of_the_efm_no_output_moves() -> None:
    before = torch.softmax(FEATURES @ WEIGHT.T, dim=1)
    across, along = (perturbed(FEATURES, EFM, 10.0, way, rng_of()) for way in (False, True))
    assert torch.allclose(torch.softmax(across @ WEIGHT.T, dim=1), before, atol=1e-10)
    assert (torch.softmax(along @ WEIGHT.T, dim=1) - before).abs().max() > 0.5
    assert (across - FEATURES).norm() > 100  # and yet the features have moved far
