"""LDA: the order of lessons does not matter, and classes grow, merge and go as if it had always been so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conftest import make_blobs, normal, quick_learner, rng_of
from efcil.errors import UserError
from efcil.methods.lda import LDA, unit
from efcil.parts.discriminant import temperature

MODEL: Any = None  # no head is looked at
N = 8


def clusters(*sizes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features around one centre per class that overlap a little, and their columns."""
    columns = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return 2 + normal(len(sizes), N, seed=1)[columns] + 0.7 * normal(len(columns), N, seed=seed), columns


TEST = clusters(20, 20, 20, 20, seed=7)[0]


def learnt(*lessons: tuple[Tensor, Tensor]) -> LDA:
    method = LDA(LDA.Options())
    for features, columns in lessons:
        method.learn(unit(features), columns)
    return method


def assert_same_knowledge(one: LDA, other: LDA) -> None:
    """Equal predictions and familiarity, whatever the temperature."""
    torch.testing.assert_close(
        one.discriminant.scores(unit(TEST)), other.discriminant.scores(unit(TEST)), rtol=1e-9, atol=1e-9
    )
    assert torch.equal(one.scores(MODEL, TEST).argmax(1), other.scores(MODEL, TEST).argmax(1))
    torch.testing.assert_close(one.familiarity(MODEL, TEST), other.familiarity(MODEL, TEST), rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_any_order_and_split_of_the_lessons_ends_the_same(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """Classes in any order too: each is first met somewhere, and the columns are compared class by class."""
    features, classes = clusters(*sizes, seed=seed)
    order = torch.randperm(len(classes), generator=rng_of(seed))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=4)))
    met: list[int] = []
    method = LDA(LDA.Options())
    for rows in order.tensor_split(cuts):
        met += [column for column in classes[rows].unique().tolist() if column not in met]
        if len(rows):
            method.learn(unit(features[rows]), torch.tensor([met.index(c) for c in classes[rows].tolist()]))
    once = learnt((features, classes))
    place = [met.index(column) for column in range(len(sizes))]
    expected, found = once.discriminant.scores(unit(TEST)), method.discriminant.scores(unit(TEST))[:, place]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.argmax(1), expected.argmax(1))
    torch.testing.assert_close(method.familiarity(MODEL, TEST), once.familiarity(MODEL, TEST), rtol=1e-9, atol=1e-9)


def test_the_temperature_hardly_depends_on_the_order() -> None:
    """It is measured when a lesson is given, against what is known by then: the one thing that is not a sum."""
    features, columns = clusters(20, 20, 20, 20)
    once = learnt((features, columns))
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        place = torch.tensor(order)  # class c is the place[c]-th to be met
        lessons = [
            (features[rows], place[columns[rows]])
            for pair in ((0, 1), (2, 3))
            if (rows := torch.isin(place[columns], torch.tensor(pair))).any()
        ]
        split = learnt(*lessons)
        ratio = temperature(split.losses.sum(0), N) / temperature(once.losses.sum(0), N)
        assert 0.7 < ratio < 1.4 and ratio != 1


def test_a_class_that_was_removed_was_never_taught() -> None:
    features, columns = clusters(5, 9, 14, 3)
    method = learnt((features, columns))
    method.remove_class(1)
    kept = columns != 1
    assert_same_knowledge(method, learnt((features[kept], columns[kept] - (columns[kept] > 1).long())))
    assert method.losses.shape == (3, 41)


def test_classes_that_were_merged_were_always_one() -> None:
    features, columns = clusters(5, 9, 14, 3)
    method = learnt((features, columns))
    losses = method.losses
    method.merge_classes(3, 1)
    assert_same_knowledge(method, learnt((features, torch.tensor([0, 2, 1, 2])[columns])))
    torch.testing.assert_close(method.losses, torch.stack([losses[0], losses[2], losses[3] + losses[1]]))


def test_scores_are_logarithms_of_probabilities_that_are_as_right_as_they_say() -> None:
    method = learnt(clusters(30, 30, 30, 30))
    features, columns = clusters(1000, 1000, 1000, 1000, seed=5)
    probabilities = method.probabilities(MODEL, features)
    torch.testing.assert_close(probabilities, method.scores(MODEL, features).exp())
    sure, predicted = probabilities.max(1)
    right = (predicted == columns).double()
    assert 0.6 < float(right.mean()) < 0.97
    assert abs(float(sure.mean() - right.mean())) < 0.04


def test_state_is_thin_and_survives_bit_equally() -> None:
    method = learnt(clusters(1, 3, 30))
    state = method.state()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "counts": (3,),
        "means": (3, N),
        "factors": (0 + 2 + N, N),
        "losses": (3, 41),
    }
    again = LDA(LDA.Options())
    again.load_state(state)
    assert torch.equal(again.scores(MODEL, TEST), method.scores(MODEL, TEST))
    assert torch.equal(again.familiarity(MODEL, TEST), method.familiarity(MODEL, TEST))


def test_a_class_of_one_image_is_not_left_out_of_itself() -> None:
    method = learnt(clusters(1, 1, 1))
    assert method.validation is None
    torch.testing.assert_close(method.losses, torch.zeros(3, 41, dtype=torch.float64))  # of that type too
    features, columns = clusters(1, 2, 3)
    method = learnt((features, columns))
    assert method.validation is not None
    scores, scored = method.validation
    assert scored.tolist() == [1, 1, 2, 2, 2]
    torch.testing.assert_close(scores, method.discriminant.leave_one_out(unit(features[1:]), columns[1:]))
    assert method.losses.any(1).tolist() == [False, True, True]
    method.learn(unit(features[:1]), columns[:1])  # now it has two
    assert method.losses.any(1).tolist() == [True, True, True]
    method.remove_class(2)
    assert method.validation is None


def test_features_are_drawn_from_the_gaussian_of_each_class() -> None:
    """μ_c + ε L⁻¹ with L Lᵀ = Σ⁻¹, brought to unit length."""
    method = learnt(clusters(9, 12, 15))
    points, columns = method.drawn(4, rng_of(3))
    noise = torch.randn(12, N, generator=rng_of(3), dtype=torch.float64)
    inverse = torch.linalg.inv(torch.linalg.cholesky(method.discriminant.precision))
    expected = [method.sums.means[place // 4] + row @ inverse for place, row in enumerate(noise)]
    torch.testing.assert_close(points, torch.stack([point / point.norm() for point in expected]))
    assert columns.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_more_images_of_a_class_make_it_better() -> None:
    few, many = clusters(2, 2, 2, 2), clusters(40, 40, 40, 40, seed=3)
    features, columns = clusters(500, 500, 500, 500, seed=5)
    refined = learnt(few, many)

    def accuracy(method: LDA) -> float:
        return float((method.scores(MODEL, features).argmax(1) == columns).double().mean())

    assert accuracy(refined) > accuracy(learnt(few)) + 0.02
    assert refined.sums.counts.tolist() == [42] * 4


def test_a_classifier_learns_with_it_and_knows_what_it_was_not_taught() -> None:
    classifier = quick_learner("lda").partial_fit(*make_blobs(["red", "green"], 20))
    classifier.partial_fit(*make_blobs(["blue", "grey"], 20))
    assert classifier.score(*make_blobs(["red", "green", "blue", "grey"], 10, seed=1)) > 0.9
    assert np.isfinite(classifier.predict_proba(make_blobs(["red"], 2)[0])).all()


@pytest.mark.parametrize("options", [{"shrinkage": 1.5}, {"shrinkage": -0.1}, {"heaviest": 0}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        LDA.Options(**options)


def test_the_options_reach_the_covariance() -> None:
    features, columns = clusters(5, 40)
    scores = []
    for options in ({}, {"shrinkage": 0.9}, {"heaviest": 100}):
        method = LDA(LDA.Options(**options))
        method.learn(unit(features), columns)
        scores.append(method.discriminant.scores(unit(TEST)))
    assert not torch.allclose(scores[0], scores[1]) and not torch.allclose(scores[0], scores[2])
