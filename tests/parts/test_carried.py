"""Gaussians that are carried: what is kept of classes, what a map does to it, and the discriminant by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import f_oneway
from torch import Tensor

from conftest import normal
from efcil.parts.affine import fitted
from efcil.parts.carried import FEATURES_PER_DEGREE, CarriedGaussians, common, quadratic_discriminant

COUNTS = (9, 30, 1, 2)
COLUMNS = torch.arange(4).repeat_interleave(torch.tensor(COUNTS))
N = 5


def features(seed: int = 0) -> Tensor:
    """Four classes of unequal size, each with a spread of its own."""
    centres, turns = 4 * normal(4, N, seed=seed), normal(4, N, N, seed=seed + 1)
    drawn = normal(len(COLUMNS), N, seed=seed + 2)
    return torch.stack([centres[c] + row @ turns[c] for row, c in zip(drawn, COLUMNS, strict=True)])


def scatter(rows: Tensor) -> Tensor:
    centred = rows - rows.mean(0)
    return centred.T @ centred


def test_what_is_kept_of_classes() -> None:
    points = features()
    kept = CarriedGaussians.of(points, COLUMNS, rank=3)
    within = sum(scatter(points[c == COLUMNS]) for c in range(4)) / (sum(COUNTS) - 4)
    torch.testing.assert_close(kept.covariance, within)
    torch.testing.assert_close(kept.means, torch.stack([points[c == COLUMNS].mean(0) for c in range(4)]))
    assert kept.counts.tolist() == list(COUNTS) and kept.directions.shape == (4, 3, N)
    values, vectors = torch.linalg.eigh(points[COLUMNS == 1].T.cov())  # more images than directions: the leading ones
    expected = (vectors[:, -3:] * (values[-3:] - values[:2].mean())) @ vectors[:, -3:].T
    torch.testing.assert_close(kept.directions[1].T @ kept.directions[1], expected)
    assert not kept.directions[2].any()  # one image has none
    torch.testing.assert_close(kept.directions[3].T @ kept.directions[3], points[COLUMNS == 3].T.cov())  # two have one


def test_how_far_classes_lie_apart_is_the_f_of_an_analysis_of_variance() -> None:
    """Of one feature it is that of scipy; of several their sums are compared; earlier features do not count."""
    old, new = normal(5, 3, seed=1).double(), normal(4, 2, seed=2).double() + 1
    kept = replace(CarriedGaussians.none(), means=old)
    assert kept.apart(new[:, 1:]) == pytest.approx(f_oneway(old[:, 2], new[:, 1]).statistic)
    between = (old[:, 1:].var(0).sum() * 4 + new.var(0).sum() * 3) / 7
    distance = (old[:, 1:].mean(0) - new.mean(0)).square().sum()
    assert kept.apart(new) == pytest.approx(float(distance / between / (1 / 5 + 1 / 4)))
    assert kept.apart(new - new.mean(0) + old[:, 1:].mean(0)) == pytest.approx(0, abs=1e-12)
    assert replace(kept, means=old[:1]).apart(new[:1]) == 0  # a class on either side is no spread
    alike = replace(kept, means=torch.ones(2, 3))
    assert alike.apart(torch.ones(2, 3).double()) == 0 and 0 < alike.apart(torch.zeros(2, 3).double()) < 1e4


def test_classes_of_two_tasks_are_those_of_one() -> None:
    points, early = features(), COLUMNS < 2
    parts = [CarriedGaussians.of(points[rows], COLUMNS[rows], 3) for rows in (early, ~early)]
    both, at_once = parts[0].extended(parts[1]), CarriedGaussians.of(points, COLUMNS, 3)
    for name in ("means", "directions", "covariance", "counts"):
        torch.testing.assert_close(getattr(both, name), getattr(at_once, name))
    fewer = at_once.removed(1)
    assert fewer.counts.tolist() == [9, 1, 2] and torch.equal(fewer.means, at_once.means[[0, 2, 3]])
    assert torch.equal(fewer.directions, at_once.directions[[0, 2, 3]])
    assert torch.equal(fewer.covariance, at_once.covariance)


def test_what_maps_were_wrong_by_stays_where_no_class_tells_a_spread() -> None:
    single = CarriedGaussians.of(features()[:2], torch.arange(2), 3)
    wider = replace(single, covariance=torch.eye(N))
    assert torch.equal(wider.extended(single).covariance, torch.eye(N))


def test_an_affine_drift_takes_everything_along_and_leaves_what_stands_before() -> None:
    """Images of other classes have moved by the same map, so that nothing is left to be wrong about."""
    before, own = normal(len(COLUMNS), 2, seed=9), features()
    weight, shift = torch.eye(N) + 0.3 * normal(N, N, seed=5), normal(N, seed=6)
    current, classes = 3 * normal(200, N, seed=7), torch.arange(200) % 8
    found = fitted(current, current @ weight + shift, classes, strengths=(0.0,))
    kept = CarriedGaussians.of(torch.cat([before, own], 1), COLUMNS, 40).carried(found)
    true = CarriedGaussians.of(torch.cat([before, own @ weight + shift], 1), COLUMNS, 40)
    torch.testing.assert_close(kept.means, true.means)
    torch.testing.assert_close(kept.covariance, true.covariance)
    torch.testing.assert_close(kept.directions.mT @ kept.directions, true.directions.mT @ true.directions)


def test_the_error_of_the_map_widens_the_common_covariance() -> None:
    current, classes = 3 * normal(200, N, seed=7), torch.arange(200) % 8
    found = fitted(current, current + normal(200, N, seed=8), classes)
    kept = CarriedGaussians.of(torch.cat([normal(len(COLUMNS), 2, seed=9), features()], 1), COLUMNS, 3)
    # two features stand before those of the map
    weight = torch.block_diag(torch.eye(2), found.weight).to(kept.covariance)
    error = torch.block_diag(torch.zeros(2, 2), found.error).to(kept.covariance)
    torch.testing.assert_close(kept.carried(found).covariance, weight.T @ kept.covariance @ weight + error)
    assert float(found.error.trace()) > 0.01


@pytest.mark.parametrize("own_share", [0.0, 0.3])
def test_the_discriminant_is_the_density_of_each_class(own_share: float) -> None:
    kept = CarriedGaussians.of(features(), COLUMNS, 3)
    points = 3 * normal(7, N, seed=4)
    base = 0.9 * (1 - own_share) * kept.covariance
    base = base + 0.1 * (1 - own_share) * kept.covariance.diagonal().mean() * torch.eye(N)
    torch.testing.assert_close(common(kept, own_share, 0.1), base)
    spreads = base + 0.9 * own_share * kept.directions.mT @ kept.directions
    expected = torch.stack(
        [
            torch.distributions.MultivariateNormal(mean, spread).log_prob(points)
            for mean, spread in zip(kept.means, spreads, strict=True)
        ],
        dim=1,
    )
    scores = quadratic_discriminant(kept, own_share, 0.1).scores(points)
    torch.testing.assert_close(scores.log_softmax(1), expected.log_softmax(1))


def test_many_features_are_less_sure_of_themselves() -> None:
    points, columns = normal(40, 2 * FEATURES_PER_DEGREE), torch.arange(40) % 4
    found = quadratic_discriminant(CarriedGaussians.of(points, columns, 3), 0.0, 0.5)
    gaps = points[:, None] - found.centre - found.means
    distances = (gaps @ found.precision * gaps).sum(2)
    torch.testing.assert_close(found.scores(points), -distances / 2 / 2)


def test_one_image_of_each_class_is_nearest_to_itself() -> None:
    points = normal(3, N)
    found = quadratic_discriminant(CarriedGaussians.of(points, torch.arange(3), 4), 0.05, 0.05).scores(points)
    assert torch.isfinite(found).all() and found.argmax(1).tolist() == [0, 1, 2]
