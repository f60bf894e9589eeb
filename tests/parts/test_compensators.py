"""Learned drift compensation: a known drift is found, and Gaussians are carried as the map says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from efcil.config import ClassifierConfig
from efcil.data.augment import AUGMENTATIONS
from efcil.data.images import ImageSet, Pixels
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import JITTER
from efcil.engine.preprocessing import Preprocessing
from efcil.paper.drift import compensate
from efcil.paper.efm import empirical_feature_matrix
from efcil.parts.compensators import (
    COMPENSATORS,
    adversarial,
    apply_mlp,
    carried,
    dual_projection,
    fit_mlp,
    linear,
    mlp,
    regression,
    ridge,
    standard_draws,
)

MAPS = ("linear", "ridge", "mlp", "dual-projection")  # these look at features only
every_map = pytest.mark.parametrize("name", MAPS)


def context(seed: int = 1) -> Any:
    """All that a map may look at besides the features."""
    return SimpleNamespace(rng=torch.Generator().manual_seed(seed))


def problem(images: int = 300, n: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Features before and after a linear drift W with a little noise, and means and factors of three old classes."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    weight = torch.eye(n, dtype=torch.float64) + 0.3 * normal(n, n)
    old = 1 + normal(images, n)
    means = 1 + normal(3, n)
    roots = torch.linalg.cholesky(torch.stack([root @ root.T / 9 + 0.1 * torch.eye(n) for root in normal(3, n, n)]))
    factors = roots.mT
    return old, old @ weight + 0.01 * normal(images, n), means, factors, weight


def covariances(factors: Any) -> Tensor:
    return torch.stack([factor.T @ factor for factor in factors])


@every_map
def test_a_linear_drift_is_followed(name: str) -> None:
    old, new, means, factors, weight = problem()
    moved_means, moved_factors = COMPENSATORS[name](old, new, means, factors, context())
    true_means, true_covariances = means @ weight, weight.T @ covariances(factors) @ weight
    assert (moved_means - true_means).norm() < 0.2 * (means - true_means).norm()
    missed = (covariances(moved_factors) - true_covariances).norm()
    assert missed < 0.25 * (covariances(factors) - true_covariances).norm()
    assert all(torch.equal(factor, factor.triu()) for factor in moved_factors)


@every_map
def test_a_thin_factor_is_carried_as_the_full_one_and_stays_thin(name: str) -> None:
    """Two rows of five: what is stored of three images. Only the bent map makes it full."""
    old, new, means, factors, _ = problem()
    thin = [factor[3:] for factor in factors]
    full = [torch.cat([0 * factor[:3], factor[3:]]) for factor in factors]
    moved, from_thin = COMPENSATORS[name](old, new, means, thin, context())
    expected, from_full = COMPENSATORS[name](old, new, means, full, context())
    assert [len(factor) for factor in from_thin] == [5 if name == "mlp" else 2] * 3
    if name == "mlp":  # which sees other draws of the same Gaussian
        assert (covariances(from_thin) - covariances(from_full)).norm() < 0.05 * covariances(from_full).norm()
    else:
        torch.testing.assert_close(moved, expected)
        torch.testing.assert_close(covariances(from_thin), covariances(from_full))


@every_map
def test_without_drift_nothing_moves(name: str) -> None:
    old, _, means, factors, _ = problem()
    moved_means, moved_factors = COMPENSATORS[name](old, old, means, factors, context())
    torch.testing.assert_close(moved_means, means, rtol=0, atol=1e-6)
    torch.testing.assert_close(covariances(moved_factors), covariances(factors), rtol=0, atol=2e-5)


@every_map
def test_fewer_images_than_features_and_float32(name: str) -> None:
    old, new, means, factors, _ = (tensor.float() for tensor in problem(images=2))
    moved, moved_factors = COMPENSATORS[name](old, new, means, factors, context())
    for after, before in zip((moved, *moved_factors), (means, *factors), strict=True):
        assert after.dtype == torch.float32 and after.shape == before.shape
        assert torch.isfinite(after).all()


def test_linear_is_the_least_squares_map() -> None:
    old, new, means, factors, _ = problem()
    weight = torch.linalg.lstsq(old, new).solution
    moved_means, moved_factors = linear(old, new, means, factors, context())
    torch.testing.assert_close(moved_means, means @ weight)
    for moved, factor in zip(moved_factors, factors, strict=True):
        torch.testing.assert_close(moved.T @ moved, weight.T @ factor.T @ factor @ weight)


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
    torch.testing.assert_close(ridge(old, new, unseen, factors[:1], context())[0], unseen)
    torch.testing.assert_close(linear(old, new, unseen, factors[:1], context())[0], torch.zeros_like(unseen))
    moved, _ = ridge(old, new, means, factors, context(), strength=1e9)
    torch.testing.assert_close(moved, means, rtol=0, atol=1e-6)


def test_dual_projection_is_the_task_map_within_the_span_of_each_class() -> None:
    """Σ and p of the DPCR that keeps uncentred covariances, for a class that spans three of five directions."""
    old, new, means, factors, _ = problem()
    rng = torch.Generator().manual_seed(4)
    basis = torch.linalg.qr(torch.randn(5, 3, generator=rng, dtype=torch.float64)).Q  # (n, 3)
    features = (1 + torch.randn(40, 3, generator=rng, dtype=torch.float64)) @ basis.T
    flat = (features - features.mean(0)) / 39**0.5
    noisy = torch.cat([flat, 0.5 * JITTER**0.5 * torch.eye(5, dtype=torch.float64)])  # a variance that is not one
    task_map = torch.linalg.inv(old.T @ old) @ old.T @ new
    moved_means, moved_factors = dual_projection(
        old, new, torch.stack([features.mean(0), means[0]]), [noisy, factors[0]], context()
    )
    for index, (mean, factor, class_map) in enumerate(
        [(features.mean(0), flat, task_map @ basis @ basis.T), (means[0], factors[0], task_map)]
    ):
        torch.testing.assert_close(moved_means[index], mean @ class_map, rtol=1e-6, atol=1e-6)
        expected = class_map.T @ factor.T @ factor @ class_map
        torch.testing.assert_close(covariances(moved_factors)[index], expected, rtol=1e-6, atol=1e-5)


def test_a_map_that_loses_a_direction_is_no_problem() -> None:
    _, _, means, factors, weight = problem()
    weight[:, 0] = 0
    _, moved = carried(means, factors, weight)
    torch.testing.assert_close(covariances(moved), weight.T @ covariances(factors) @ weight)


def test_standard_draws_have_exact_moments() -> None:
    draws = standard_draws(24, torch.zeros(1, 6, dtype=torch.float64), torch.Generator().manual_seed(3))
    torch.testing.assert_close(draws.mean(0), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(draws.T.cov(), torch.eye(6, dtype=torch.float64))


def test_mlp_is_a_residual_network_and_carries_draws_of_each_class() -> None:
    old, new, means, factors, _ = problem(images=20)
    rng = context().rng
    first, bias, second, last = weights = fit_mlp(old, new, 50, 1e-3, rng)
    noise = standard_draws(4 * 5, means, rng)

    def mapped(f: Tensor) -> Tensor:
        hidden = [max(float(row @ f + b), 0.0) for row, b in zip(first, bias, strict=True)]
        return torch.stack(
            [f[i] + sum(w * h for w, h in zip(second[i], hidden, strict=True)) + last[i] for i in range(5)]
        )

    torch.testing.assert_close(apply_mlp(weights, old), torch.stack([mapped(f) for f in old]))
    moved, moved_factors = mlp(old, new, means, factors, context(), steps=50)
    for c in range(3):
        draws = torch.stack([mapped(means[c] + e @ factors[c]) for e in noise])
        torch.testing.assert_close(moved[c], draws.mean(0))
        torch.testing.assert_close(covariances(moved_factors)[c], draws.T.cov())


def test_mlp_does_not_widen_a_class_from_task_to_task() -> None:
    """The jitter is no part of what is kept: nothing drifts here, so Σ is the same after thirty tasks."""
    old, _, means, factors, _ = problem(images=20)
    narrow = 1e-2 * factors
    moved: Any = narrow
    for _ in range(30):
        _, moved = mlp(old, old, means, moved, context(), steps=0)
    torch.testing.assert_close(covariances(moved), covariances(narrow), rtol=1e-6, atol=1e-9)


def test_mlp_depends_on_its_generator_only() -> None:
    old, new, means, factors, _ = problem(images=20)
    one, same, other = (mlp(old, new, means, factors, context(s), steps=5) for s in (1, 1, 2))
    assert torch.equal(one[0], same[0]) and torch.equal(covariances(one[1]), covariances(same[1]))
    assert not torch.equal(one[0], other[0])


# A network whose features are known to drift linearly


class Turned(nn.Module):
    """Features (x A + a) W of an image x of 2×2 pixels."""

    feature_dim = 12

    def __init__(self, drift: Tensor) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(2)
        self.mixing = nn.Parameter(torch.linalg.qr(torch.randn(12, 12, generator=rng, dtype=torch.float64)).Q)
        self.drift = nn.Parameter(drift)

    def forward(self, x: Tensor) -> Tensor:
        return (x.double().flatten(1) @ self.mixing + 0.5) @ self.drift  # type: ignore[no-any-return]


def turning_network() -> tuple[Context, Tensor, Tensor]:
    """The context of a task whose new network is the old one and then W; two old means (2, 12), and W."""
    rng = torch.Generator().manual_seed(3)
    identity = torch.eye(12, dtype=torch.float64)
    drift = identity + 0.4 * torch.randn(12, 12, generator=rng, dtype=torch.float64)
    pixels = torch.randint(0, 256, (400, 3, 2, 2), generator=rng, dtype=torch.uint8)
    ctx = Context(
        config=ClassifierConfig(),
        task=1,
        model=IncrementalModel(Turned(drift)),
        old=IncrementalModel(Turned(identity)),
        images=ImageSet(Pixels(pixels)),
        columns=torch.full((400,), 2),
        classes=1,
        preprocessing=Preprocessing(stored=2, size=2, mean=(0.5,) * 3, std=(0.3,) * 3),
        augmentation=AUGMENTATIONS["none"],
        device=torch.device("cpu"),
        rng=rng,
    )
    old_images = torch.tensor([[1.2, -1.2], [-1.2, 1.2]], dtype=torch.float64).repeat(1, 6).reshape(2, 3, 2, 2)
    assert ctx.old is not None
    return ctx, ctx.old.features(old_images).detach(), drift


@pytest.mark.parametrize("name", ["efm", "kernel", *COMPENSATORS])
def test_every_compensator_follows_a_network_that_turns_its_features(name: str) -> None:
    ctx, means, drift = turning_network()
    assert ctx.old is not None
    old, new = ctx.extract(ctx.old, ctx.model, augmented=True)
    head = torch.randn(4, 12, generator=ctx.rng, dtype=torch.float64)
    kernels = {"efm": empirical_feature_matrix(old, head), "kernel": None}
    if name in kernels:
        moved = compensate(means, old, new, kernels[name], 0.2, "scaled")
    else:
        factors = torch.eye(12, dtype=torch.float64).repeat(2, 1, 1)
        moved, _ = COMPENSATORS[name](old, new, means, factors, ctx)
    without = (means - means @ drift).norm()
    assert (moved - means @ drift).norm() < (0.8 if name in kernels else 0.3) * without


def test_the_attack_is_what_makes_images_show_the_drift() -> None:
    ctx, means, drift = turning_network()
    factors = torch.eye(12, dtype=torch.float64).repeat(2, 1, 1)
    missed = []
    for iterations in (0, 3):
        moved, kept = adversarial(means, means, means, factors, ctx, attacked=20, iterations=iterations, alpha=4.0)
        missed.append((moved - means @ drift).norm())
        assert torch.equal(torch.stack(kept), factors)  # a translation moves no covariance
    assert missed[1] < 0.5 * missed[0]
