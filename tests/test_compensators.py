"""Learned drift compensation: a known drift is found, and Gaussians are carried as the map says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from efcil.compensators import COMPENSATORS, carried, linear, mlp, regression, ridge, standard_draws

every_compensator = pytest.mark.parametrize("name", COMPENSATORS)


def problem(images: int = 300, n: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features before and after a linear drift W with a little noise, and means and factors of three old classes."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    weight = torch.eye(n, dtype=torch.float64) + 0.3 * normal(n, n)
    old = 1 + normal(images, n)
    means = 1 + normal(3, n)
    factors = torch.linalg.cholesky(torch.stack([root @ root.T / 9 + 0.1 * torch.eye(n) for root in normal(3, n, n)]))
    return old, old @ weight + 0.01 * normal(images, n), means, factors, weight


def covariances(factors: Tensor) -> Tensor:
    return factors @ factors.mT


@every_compensator
def test_a_linear_drift_is_followed(name: str) -> None:
    old, new, means, factors, weight = problem()
    moved_means, moved_factors = COMPENSATORS[name](old, new, means, factors, torch.Generator().manual_seed(1))
    true_means, true_covariances = means @ weight, weight.T @ covariances(factors) @ weight
    assert (moved_means - true_means).norm() < 0.2 * (means - true_means).norm()
    missed = (covariances(moved_factors) - true_covariances).norm()
    assert missed < 0.25 * (covariances(factors) - true_covariances).norm()
    assert torch.equal(moved_factors, moved_factors.tril())


@every_compensator
def test_without_drift_nothing_moves(name: str) -> None:
    old, _, means, factors, _ = problem()
    moved_means, moved_factors = COMPENSATORS[name](old, old, means, factors, torch.Generator().manual_seed(1))
    torch.testing.assert_close(moved_means, means, rtol=0, atol=1e-6)
    torch.testing.assert_close(covariances(moved_factors), covariances(factors), rtol=0, atol=2e-5)


@every_compensator
def test_fewer_images_than_features_and_float32(name: str) -> None:
    old, new, means, factors, _ = (tensor.float() for tensor in problem(images=2))
    rng = torch.Generator().manual_seed(1)
    for moved, before in zip(COMPENSATORS[name](old, new, means, factors, rng), (means, factors), strict=True):
        assert moved.dtype == torch.float32 and moved.shape == before.shape
        assert torch.isfinite(moved).all()


def test_linear_is_the_least_squares_map() -> None:
    old, new, means, factors, _ = problem()
    weight = torch.linalg.lstsq(old, new).solution
    moved_means, moved_factors = linear(old, new, means, factors, torch.Generator())
    torch.testing.assert_close(moved_means, means @ weight)
    for moved, factor in zip(moved_factors, factors, strict=True):
        torch.testing.assert_close(moved @ moved.T, weight.T @ factor @ factor.T @ weight)


def test_regression_is_ridge_regression_with_a_relative_penalty() -> None:
    old, new, *_ = problem()
    gamma = 0.1 * sum(float(old[:, i] @ old[:, i]) for i in range(5)) / 5
    expected = torch.linalg.inv(old.T @ old + gamma * torch.eye(5, dtype=torch.float64)) @ old.T @ new
    torch.testing.assert_close(regression(old, new, 0.1), expected)
    torch.testing.assert_close(regression(7 * old, 7 * new, 0.1), expected)


def test_ridge_leaves_directions_alone_that_no_image_shows() -> None:
    old, new, means, factors, _ = problem()
    old[:, 4] = new[:, 4] = 0
    unseen = torch.zeros(1, 5, dtype=torch.float64)
    unseen[0, 4] = 2
    torch.testing.assert_close(ridge(old, new, unseen, factors[:1], torch.Generator())[0], unseen)
    torch.testing.assert_close(linear(old, new, unseen, factors[:1], torch.Generator())[0], torch.zeros_like(unseen))
    moved, _ = ridge(old, new, means, factors, torch.Generator(), strength=1e9)
    torch.testing.assert_close(moved, means, rtol=0, atol=1e-6)


def test_a_map_that_loses_a_direction_is_no_problem() -> None:
    _, _, means, factors, weight = problem()
    weight[:, 0] = 0
    _, moved = carried(means, factors, weight)
    torch.testing.assert_close(covariances(moved), weight.T @ covariances(factors) @ weight)


def test_standard_draws_have_exact_moments() -> None:
    draws = standard_draws(24, torch.zeros(1, 6, dtype=torch.float64), torch.Generator().manual_seed(3))
    torch.testing.assert_close(draws.mean(0), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(draws.T.cov(), torch.eye(6, dtype=torch.float64))


def test_mlp_depends_on_its_generator_only() -> None:
    old, new, means, factors, _ = problem(images=20)
    one, same, other = (mlp(old, new, means, factors, torch.Generator().manual_seed(s), steps=5) for s in (1, 1, 2))
    assert torch.equal(one[0], same[0]) and torch.equal(one[1], same[1])
    assert not torch.equal(one[0], other[0])
