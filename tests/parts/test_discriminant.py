"""The discriminant from sums against slow literal definitions: leave-one-out is checked by leaving one out."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.covariance import oas as sklearn_oas
from torch import Tensor
from torch.nn import functional as F

from conftest import normal
from efcil.parts.discriminant import (
    TEMPERATURES,
    calibration_losses,
    discriminant,
    likeness,
    oas,
    predictive,
    temperature,
)
from efcil.parts.sums import ClassSums

N = 6


def clusters(*sizes: int, seed: int = 0, spread: float = 0.3) -> tuple[Tensor, Tensor]:
    """Unit vectors around one centre per class."""
    columns = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    points = normal(len(sizes), N, seed=1)[columns] + spread * normal(len(columns), N, seed=seed)
    return F.normalize(points), columns


def literal_covariance(points: Tensor, columns: Tensor, rho: float, weights: Tensor) -> Tensor:
    """(1−ρ) times the weighted covariances of the classes, plus ρ τ I, written out."""
    parts = [points[columns == column] for column in columns.unique()]
    within = sum(
        (weight * part.T.cov() for weight, part in zip(weights, parts, strict=True)), start=torch.zeros(N, N).double()
    ) / float(weights.sum())
    images = float(weights.sum()) ** 2 / sum(float(w) ** 2 / (len(p) - 1) for w, p in zip(weights, parts, strict=True))
    spread = (images * float(within.trace()) + 2 * 0.5) / (images + 2)
    return (1 - rho) * within + rho * spread / N * torch.eye(N, dtype=torch.float64)


def test_scores_are_those_of_the_literal_definition() -> None:
    points, columns = clusters(4, 30, 9)
    fitted = discriminant(ClassSums.none().added(points, columns), shrinkage=0.3)
    inverse = torch.linalg.inv(literal_covariance(points, columns, 0.3, torch.tensor([3.0, 10.0, 8.0])))
    for z, scores in zip(clusters(2, 2, 2, seed=5)[0], fitted.scores(clusters(2, 2, 2, seed=5)[0]), strict=True):
        for c, size in enumerate((4, 30, 9)):
            delta = z - points[columns == c].mean(0)
            assert float(scores[c]) == pytest.approx(-0.5 * size / (size + 1) * float(delta @ inverse @ delta))


def test_leave_one_out_is_leaving_one_out() -> None:
    """The statistics without the point, the weights of the classes in Σ and the scale of the identity being kept."""
    points, columns = clusters(2, 5, 12)
    sums = ClassSums.none().added(points, columns)
    fitted = discriminant(sums, shrinkage=0.3)
    fast = fitted.leave_one_out(points, columns)
    scatter = sum(
        (share * factor.T @ factor for share, factor in zip(fitted.shares, sums.factors, strict=True)),
        start=torch.zeros(N, N).double(),
    )
    identity = torch.linalg.inv(fitted.precision) - scatter
    for row in range(len(points)):
        kept = torch.arange(len(points)) != row
        means = torch.stack([points[kept & (columns == c)].mean(0) for c in range(3)])
        counts = columns[kept].bincount().double()
        offsets = points[kept] - means[columns[kept]]
        covariance = (fitted.shares[columns[kept]][:, None] * offsets).T @ offsets + identity
        inverse = torch.linalg.inv(covariance)
        distances = torch.stack([(points[row] - mean) @ inverse @ (points[row] - mean) for mean in means])
        torch.testing.assert_close(fast[row], predictive(distances, counts), rtol=1e-8, atol=1e-8)


def test_the_shrinkage_is_that_of_scikit_learn() -> None:
    points = normal(25, 60) * torch.arange(1, 61)  # theirs leaves out terms of 2 by the number of features
    centred = points - points.mean(0)
    covariance = centred.T @ centred / len(points)
    assert oas(covariance, len(points)) == pytest.approx(sklearn_oas(points.numpy())[1], rel=0.05)
    assert oas(torch.zeros(N, N), 5) == 1 and oas(torch.eye(N), 5) == 1


def test_classes_of_5_and_of_500_images_are_judged_alike() -> None:
    """Without the factor n/(n+1) the class of few images, whose mean is less exact, would lose its own images."""
    rng = torch.Generator().manual_seed(0)
    directions = F.normalize(torch.randn(2, 200, generator=rng, dtype=torch.float64))
    centres = torch.stack([directions[0], directions[0] + 0.55 * directions[1]])

    def draw(column: int, size: int) -> Tensor:
        return F.normalize(centres[column] + 0.1 * torch.randn(size, 200, generator=rng, dtype=torch.float64))

    points = torch.cat([draw(0, 5), draw(1, 500)])
    fitted = discriminant(ClassSums.none().added(points, torch.tensor([0] * 5 + [1] * 500)))
    tests = torch.cat([draw(0, 300), draw(1, 300)])
    truth = torch.arange(2).repeat_interleave(300)
    missed = (fitted.scores(tests).argmax(1) != truth).view(2, 300).double().mean(1)
    plain = (fitted.distances(tests).argmin(1) != truth).view(2, 300).double().mean(1)
    assert plain[0] > 0.1  # of the class of five
    assert missed.max() < 0.05


def test_one_image_is_enough_to_start() -> None:
    sums = ClassSums.none().added(*clusters(1))
    fitted, like = discriminant(sums), likeness(sums)
    assert torch.isfinite(fitted.scores(sums.means)).all()
    familiar = like.familiarity(torch.stack([sums.means[0], -sums.means[0]]), torch.tensor([0, 0]))
    assert familiar[0] > 0.9 and familiar[1] < 0.001


def test_equal_images_have_a_covariance_too() -> None:
    points = F.normalize(torch.ones(5, N, dtype=torch.float64))
    sums = ClassSums.none().added(points, torch.zeros(5, dtype=torch.int64))
    assert torch.isfinite(discriminant(sums).scores(points)).all()
    assert torch.isfinite(likeness(sums).familiarity(points, torch.zeros(5, dtype=torch.int64))).all()


# How sure


def test_the_temperature_is_the_one_the_scores_were_made_with() -> None:
    logits = 4 * normal(20_000, 3)
    columns = torch.multinomial(torch.softmax(logits, 1), 1, generator=torch.Generator().manual_seed(9))[:, 0]
    losses = calibration_losses(7.3 * logits, columns, 3)
    assert temperature(losses.sum(0), N) == pytest.approx(7.3, rel=0.05)
    expected = F.cross_entropy(7.3 * logits[columns == 1] / TEMPERATURES[20], columns[columns == 1], reduction="sum")
    torch.testing.assert_close(losses[1, 20], expected)


def test_without_losses_the_temperature_is_the_usual_one() -> None:
    assert temperature(torch.zeros(len(TEMPERATURES)).double(), 1280) == pytest.approx(1280 / 30, rel=0.01)
    assert temperature(torch.zeros(len(TEMPERATURES)).double(), 6) == pytest.approx(1, rel=0.01)
    assert temperature(1000 * TEMPERATURES, 6) >= float(TEMPERATURES[0])  # the least loss at the end of the row
    assert math.isfinite(temperature(-TEMPERATURES, 6))


# Like anything taught


@pytest.mark.parametrize(("size", "tolerance"), [(3, 0.05), (5, 0.04), (20, 0.025), (200, 0.025)])
def test_one_in_twenty_images_of_a_class_is_rejected(size: int, tolerance: float) -> None:
    rng = torch.Generator().manual_seed(0)
    centres = F.normalize(torch.rand(40, 100, generator=rng, dtype=torch.float64))

    def draw(per_class: int) -> tuple[Tensor, Tensor]:
        columns = torch.arange(30).repeat_interleave(per_class)
        noise = torch.randn(len(columns), 100, generator=rng, dtype=torch.float64)
        noise[:, :5] *= 5  # along a few features images differ much
        return F.normalize(centres[columns] + 0.08 * noise), columns

    like = likeness(ClassSums.none().added(*draw(size)))
    rejected = (like.familiarity(*draw(100)) < 0.05).double().mean()
    assert abs(float(rejected) - 0.05) < tolerance


def test_a_class_of_few_images_is_given_more_room() -> None:
    like = likeness(ClassSums.none().added(*clusters(1, 4, 200)))
    torch.testing.assert_close(
        (like.deviation / like.deviation[2]).square(), torch.tensor([3, 1.5, 1.01], dtype=torch.float64) / 1.01
    )


def test_what_was_never_taught_is_rejected() -> None:
    like = likeness(ClassSums.none().added(*clusters(20, 20, 20)))
    strangers = F.normalize(-normal(3, N, seed=1))  # opposite to the centres
    columns = (strangers @ like.directions.T).argmax(1)
    assert (like.familiarity(strangers, columns) < 0.05).all()
