"""Prototype drift compensation (Eqs. 14-15) against its slow definition, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conftest import normal
from efcil.paper.drift import Kernel, compensate, drift_weights, mean_drift, task_drift
from efcil.paper.efm import empirical_feature_matrix, spectrum

KERNELS: tuple[Kernel, ...] = ("literal", "scaled")
both_kernels = pytest.mark.parametrize("kernel", KERNELS)
quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def problem(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Old features (11, 6), prototypes (3, 6) and an EFM of rank 3 (6, 6)."""
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(11, 6, generator=rng, dtype=torch.float64).abs()
    prototypes = torch.randn(3, 6, generator=rng, dtype=torch.float64).abs()
    weight = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    return features, prototypes, empirical_feature_matrix(features, weight)


def distances(features: Tensor, prototypes: Tensor, efm: Tensor) -> list[list[float]]:
    """(f − p) E (f − p)ᵀ of every prototype and image."""
    return [[float((f - p) @ efm @ (f - p)) for f in features] for p in prototypes]


def weights_by_hand(
    features: Tensor, prototypes: Tensor, efm: Tensor, sigma: float, kernel: Kernel
) -> list[list[float]]:
    """Eq. 15 word by word; ``scaled`` brings the negated distances of all pairs to [0, 1] first."""
    closeness = [[-d for d in row] for row in distances(features, prototypes, efm)]
    if kernel == "scaled":
        everything = [c for row in closeness for c in row]
        low, high = min(everything), max(everything)
        closeness = [[(c - low) / (high - low) for c in row] for row in closeness]
    return [[math.exp(c / (2 * sigma**2)) for c in row] for row in closeness]


@both_kernels
@quick
@given(seed=seeds, sigma=st.floats(0.2, 3))
def test_weights_are_the_normalised_kernel(kernel: Kernel, seed: int, sigma: float) -> None:
    """Eq. 15."""
    features, prototypes, efm = problem(seed)
    by_hand = torch.tensor(weights_by_hand(features, prototypes, efm, sigma, kernel), dtype=torch.float64)
    expected = by_hand / by_hand.sum(1, keepdim=True)
    actual = drift_weights(features, prototypes, efm, sigma, kernel)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@both_kernels
def test_without_an_efm_distances_are_plain(kernel: Kernel) -> None:
    features, prototypes, efm = problem()
    identity = torch.eye(6, dtype=torch.float64)
    by_hand = torch.tensor(weights_by_hand(features, prototypes, identity, 0.7, kernel), dtype=torch.float64)
    expected = by_hand / by_hand.sum(1, keepdim=True)
    torch.testing.assert_close(drift_weights(features, prototypes, None, 0.7, kernel), expected, rtol=0, atol=1e-10)
    assert not torch.allclose(drift_weights(features, prototypes, efm, 0.7, kernel), expected, atol=1e-3)


@both_kernels
@quick
@given(seed=seeds)
def test_prototypes_move_by_the_weighted_mean_drift(kernel: Kernel, seed: int) -> None:
    """Eq. 14."""
    features, prototypes, efm = problem(seed)
    new = features + features.flip(0).sin()
    weights = weights_by_hand(features, prototypes, efm, 0.5, kernel)
    for index, row in enumerate(weights):
        shift = sum(w * (after - before) for w, after, before in zip(row, new, features, strict=True)) / sum(row)
        moved = compensate(prototypes, features, new, efm, 0.5, kernel)[index]
        torch.testing.assert_close(moved, prototypes[index] + shift, rtol=0, atol=1e-10)


@both_kernels
@quick
@given(seed=seeds, sigma=st.floats(1e-3, 1e3))
def test_weights_are_a_distribution_over_images(kernel: Kernel, seed: int, sigma: float) -> None:
    features, prototypes, efm = problem(seed)
    weights = drift_weights(features, prototypes, efm, sigma, kernel)
    assert weights.shape == (3, 11)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))


@both_kernels
def test_nearer_images_weigh_more(kernel: Kernel) -> None:
    features, prototypes, efm = problem()
    weights = drift_weights(features, prototypes, efm, 0.5, kernel)
    by_distance = torch.tensor(distances(features, prototypes, efm)).argsort(dim=1)
    assert torch.equal(weights.argsort(dim=1, descending=True), by_distance)


@both_kernels
def test_zero_drift_leaves_the_prototypes(kernel: Kernel) -> None:
    """Eq. 14 with δ = 0."""
    features, prototypes, efm = problem()
    assert torch.equal(compensate(prototypes, features, features, efm, 0.2, kernel), prototypes)


@both_kernels
@quick
@given(seed=seeds, sigma=st.floats(0.05, 10))
def test_constant_drift_moves_every_prototype_by_exactly_that(kernel: Kernel, seed: int, sigma: float) -> None:
    """Eq. 14 with one δ for all images: the weights cancel."""
    features, prototypes, efm = problem(seed)
    shift = torch.linspace(-3, 3, 6, dtype=torch.float64)
    moved = compensate(prototypes, features, features + shift, efm, sigma, kernel)
    torch.testing.assert_close(moved, prototypes + shift, rtol=0, atol=1e-10)


@both_kernels
@quick
@given(seed=seeds)
def test_no_prototype_moves_further_than_the_images(kernel: Kernel, seed: int) -> None:
    """Eq. 14 is a mean: in every coordinate it lies between the least and the greatest drift."""
    features, prototypes, efm = problem(seed)
    drift = features.flip(0).sin()
    shift = compensate(prototypes, features, features + drift, efm, 0.2, kernel) - prototypes
    assert (shift >= drift.amin(0) - 1e-12).all()
    assert (shift <= drift.amax(0) + 1e-12).all()


@both_kernels
def test_equal_distances_give_the_plain_average(kernel: Kernel) -> None:
    features = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    weights = drift_weights(features, torch.zeros(1, 4).double(), torch.eye(4).double(), 0.2, kernel)
    torch.testing.assert_close(weights, torch.full((1, 8), 1 / 8, dtype=torch.float64))


@both_kernels
def test_a_classifier_that_sees_nothing_gives_the_plain_average(kernel: Kernel) -> None:
    """One class has E = 0: every image is as near as any other."""
    features, prototypes, _ = problem()
    weights = drift_weights(features, prototypes, torch.zeros(6, 6, dtype=torch.float64), 0.2, kernel)
    torch.testing.assert_close(weights, torch.full((3, 11), 1 / 11, dtype=torch.float64))


@both_kernels
def test_directions_the_classifier_ignores_do_not_count(kernel: Kernel) -> None:
    """Eq. 15 measures with E only."""
    features, prototypes, efm = problem()
    _, vectors = spectrum(efm)
    moved = features + torch.arange(11)[:, None] * vectors[:, -1]
    expected = drift_weights(features, prototypes, efm, 0.3, kernel)
    torch.testing.assert_close(drift_weights(moved, prototypes, efm, 0.3, kernel), expected, rtol=0, atol=1e-9)


def test_scaled_kernel_does_not_depend_on_the_size_of_the_efm() -> None:
    features, prototypes, efm = problem()
    expected = drift_weights(features, prototypes, efm, 0.2, "scaled")
    torch.testing.assert_close(drift_weights(features, prototypes, 1e-4 * efm, 0.2, "scaled"), expected)


def test_literal_kernel_depends_on_efm_over_sigma_squared() -> None:
    features, prototypes, efm = problem()
    expected = drift_weights(features, prototypes, efm, 0.4, "literal")
    torch.testing.assert_close(drift_weights(features, prototypes, efm / 4, 0.2, "literal"), expected)


def test_scaled_kernel_uses_one_scale_for_all_classes() -> None:
    """A class far from everything sees its images as equally far: its weights are nearly flat."""
    features, prototypes, efm = problem()
    _, vectors = spectrum(efm)
    far = torch.cat([prototypes[:1], prototypes[:1] + 1e3 * vectors[:, 0]])
    near_row, far_row = drift_weights(features, far, efm, 0.2, "scaled")
    assert far_row.max() / far_row.min() < 1.5
    torch.testing.assert_close(near_row, torch.full_like(near_row, 1 / 11), rtol=0, atol=1e-3)


@both_kernels
def test_distant_classes_do_not_give_nan_in_float32(kernel: Kernel) -> None:
    """Eq. 15 as printed would be 0/0: exp(−d/2σ²) underflows for every image."""
    features, prototypes, efm = (tensor.float() for tensor in problem())
    far = prototypes + 1e3
    assert math.exp(-min(map(min, distances(features, far, efm))) / (2 * 0.2**2)) == 0.0
    moved = compensate(far, features, features + 1, efm, 0.2, kernel)
    assert moved.dtype == torch.float32
    torch.testing.assert_close(moved, far + 1)


def test_the_drift_of_a_task_is_equations_18_to_20_written_out() -> None:
    old, new, root = normal(4, 6), normal(4, 6, seed=1), normal(6, 6, seed=2)
    efm = root @ root.T
    total = 0.0
    for c in range(4):
        delta = [float(new[c, i] - old[c, i]) for i in range(6)]  # Eq. 18
        assert mean_drift(old, new)[c].tolist() == pytest.approx(delta)
        total += sum(delta[i] * float(efm[i, j]) * delta[j] for i in range(6) for j in range(6))  # Eq. 19
    assert float(task_drift(old, new, efm)) == pytest.approx(total / 4)  # Eq. 20
    assert float(task_drift(old, old, efm)) == 0
