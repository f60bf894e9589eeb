"""The affine map that carries Gaussians: its formula, its choice of strength, and what it does to a class."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from efcil.parts.affine import FOLDS, STRENGTHS, Fold, PairSums, Regression, chosen, fitted, total

Pairs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def drifted(rng: torch.Generator, classes: int = 8, each: int = 40, n: int = 6, noise: float = 0.0) -> Pairs:
    """Old and new features of some classes, where the new ones are an affine map of the old ones, and noise."""
    columns = torch.arange(classes).repeat_interleave(each)
    centres = 3 * torch.randn(classes, n, generator=rng, dtype=torch.float64)
    old = centres[columns] + torch.randn(classes * each, n, generator=rng, dtype=torch.float64)
    weight = torch.eye(n, dtype=torch.float64) + 0.3 * torch.randn(n, n, generator=rng, dtype=torch.float64)
    new = old @ weight + torch.randn(n, generator=rng, dtype=torch.float64)
    return old, new + noise * torch.randn(new.shape, generator=rng, dtype=torch.float64), columns


def by_hand(old: Tensor, new: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """P = (Σ_o + ρI)⁻¹ (C_on + ρI) and b = μ_n − μ_o P, written down as they stand."""
    x, y = old - old.mean(0), new - new.mean(0)
    sigma, cross = x.T @ x / len(x), x.T @ y / len(x)
    rho = strength * sigma.trace() / len(sigma)
    identity = torch.eye(len(sigma), dtype=torch.float64)
    weight = torch.linalg.inv(sigma + rho * identity) @ (cross + rho * identity)
    return weight, new.mean(0) - old.mean(0) @ weight


@pytest.mark.parametrize("strength", [1e-4, 0.1, 10.0])
def test_the_map_is_the_regression_pulled_towards_the_identity(rng: torch.Generator, strength: float) -> None:
    old, new, _ = drifted(rng, noise=0.5)
    weight, bias = by_hand(old, new, strength)
    regression = Regression.of(PairSums.of(old, new))
    torch.testing.assert_close(regression.weight(strength), weight)
    torch.testing.assert_close(regression.moved(old[:5], strength), old[:5] @ weight + bias)


def test_a_drift_that_is_affine_is_undone_for_classes_that_were_never_seen_again(rng: torch.Generator) -> None:
    old, new, columns = drifted(rng, classes=12)
    now, before = columns >= 6, columns < 6
    found = fitted(old[now], new[now], columns[now])
    torch.testing.assert_close(found.moved(old[before]), new[before], rtol=1e-2, atol=2e-2)
    steps = (rows[before][1:] - rows[before][:-1] for rows in (old, new))
    torch.testing.assert_close(found.turned(next(steps)), next(steps), rtol=1e-2, atol=2e-2)
    assert float(found.error.trace()) < 1e-3


def test_the_strength_is_the_one_that_serves_left_out_classes_best(rng: torch.Generator) -> None:
    old, new, columns = drifted(rng, classes=7, each=5, noise=3.0)
    errors = []
    for strength in STRENGTHS:
        error = 0.0
        for fold in range(FOLDS):
            held = torch.isin(columns, torch.arange(7)[fold::FOLDS])
            weight, bias = by_hand(old[~held], new[~held], strength)
            for column in columns[held].unique():
                own = columns == column
                error += float((old[own].mean(0) @ weight + bias - new[own].mean(0)).square().sum())
        errors.append(error)
    found = fitted(old, new, columns)
    assert found.strength == STRENGTHS[errors.index(min(errors))]
    assert float(found.error.trace()) == pytest.approx(min(errors) / 7)  # what a mean is expected to be off by
    left = found.moved(old) - new
    spread = left.T @ left
    torch.testing.assert_close(found.error / found.error.trace(), spread / spread.trace())
    assert 0 < errors.index(min(errors)) < len(STRENGTHS) - 1, "the case would not tell the choice from a constant"


def test_without_drift_nothing_moves(rng: torch.Generator) -> None:
    old, _, columns = drifted(rng)
    found = fitted(old, old, columns)
    torch.testing.assert_close(found.moved(old), old)
    assert float(found.error.abs().max()) < 1e-12


def test_a_single_class_moves_the_others_by_its_own_way(rng: torch.Generator) -> None:
    old, _, columns = drifted(rng)
    one = columns == 0
    shift = torch.tensor([1.0, -2.0, 0.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    noise = torch.randn(old[one].shape, generator=rng, dtype=torch.float64)
    noise = noise - noise.mean(0)
    found = fitted(old[one], old[one] + shift + noise, columns[one])
    torch.testing.assert_close(found.moved(old[~one]), old[~one] + shift, rtol=0, atol=0.3)
    torch.testing.assert_close(found.error, noise.T @ noise / len(noise), rtol=0.05, atol=0.05)  # as an image is off


def test_images_that_are_all_alike_move_the_others_by_their_own_way(rng: torch.Generator) -> None:
    """A class left out of two leaves one image: nothing but rounding tells a direction."""
    old = 100 * torch.rand(2, 64, generator=rng)
    new = old + 3 * torch.randn(2, 64, generator=rng)
    found = fitted(old, new, torch.tensor([0, 1]))
    (first, second) = new.double() - old.double()
    assert float(found.error.trace()) == pytest.approx(float((first - second).square().sum()), rel=0.01)


def test_two_images_of_two_classes_give_numbers(rng: torch.Generator) -> None:
    old, new = torch.randn(2, 6, generator=rng), torch.randn(2, 6, generator=rng)
    found = fitted(old, new, torch.tensor([0, 1]))
    assert torch.isfinite(found.weight).all()


def test_sums_of_parts_add_up(rng: torch.Generator) -> None:
    old, new, columns = drifted(rng)
    folds = [Fold.of(old, new, columns, column[None]) for column in columns.unique()]
    whole = total([fold.sums for fold in folds])
    rest = whole.without(folds[0].sums)
    torch.testing.assert_close(whole.cross, PairSums.of(old, new).cross)
    torch.testing.assert_close(rest.gram, PairSums.of(old[columns > 0], new[columns > 0]).gram)
    assert (whole.count, rest.count) == (320, 280)
    assert chosen(folds, whole, [1e-4, 100.0])[0] == 1e-4


def test_features_before_those_of_the_map_stay_as_they_are() -> None:
    rng = torch.Generator().manual_seed(0)
    old, columns = torch.randn(60, 3, generator=rng), torch.arange(60) % 4
    new = old @ torch.randn(3, 3, generator=rng) + 1
    longer = torch.cat([torch.randn(60, 2, generator=rng), old], 1)
    moved = fitted(old, new, columns, strengths=(0.0,)).moved(longer)
    torch.testing.assert_close(moved, torch.cat([longer[:, :2], new], 1), rtol=1e-4, atol=1e-4)
