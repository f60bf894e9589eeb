"""Class sums: whatever the order, the split, the merging and the removing, they are those of the images themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conftest import normal, rng_of
from efcil.engine.numerics import contrasts
from efcil.parts.sums import ClassSums

FEATURES = 7


def assert_equal_sums(one: ClassSums, other: ClassSums) -> None:
    """The same n, Σ z and Σ z zᵀ of every class; a factor is only defined up to a rotation."""
    assert torch.equal(one.counts, other.counts)
    torch.testing.assert_close(one.means, other.means, rtol=1e-12, atol=1e-12)
    for a, b in zip(one.factors, other.factors, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.T @ a, b.T @ b, rtol=1e-10, atol=1e-12)


def taught(points: Tensor, columns: Tensor, lessons: list[Tensor]) -> ClassSums:
    sums = ClassSums.none()
    for rows in lessons:
        sums = sums.added(points[rows], columns[rows])
    return sums


def some_points(seed: int, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Points of these classes; two features are dead and some points are twins, as it happens with real images."""
    columns = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    points = normal(len(columns), FEATURES, seed=seed)
    points[:, :2] = 0
    points[1::3] = points[0]
    return points, columns


@pytest.mark.parametrize("size", [1, 2, 5, FEATURES, FEATURES + 1, 30])
def test_a_class_is_its_count_mean_and_scatter(size: int) -> None:
    points, _ = some_points(0, [size])
    sums = ClassSums.of(points)
    centred = points - points.mean(0)
    assert sums.counts.tolist() == [size]
    torch.testing.assert_close(sums.means[0], points.mean(0))
    torch.testing.assert_close(sums.scatter(), centred.T @ centred, rtol=1e-12, atol=1e-12)
    assert sums.factors[0].shape == (min(size - 1, FEATURES), FEATURES)


def test_contrasts_have_the_scatter_of_the_rows() -> None:
    points = normal(5, 3)
    centred = points - points.mean(0)
    assert len(contrasts(centred)) == 4
    torch.testing.assert_close(contrasts(centred).T @ contrasts(centred), centred.T @ centred)


def test_no_row_of_a_factor_is_an_image() -> None:
    points, _ = some_points(0, [6])
    (factor,) = ClassSums.of(points).factors
    assert torch.cdist(factor, points - points.mean(0)).min() > 0.01


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_order_and_split_do_not_matter(sizes: list[int], seed: int, data: st.DataObject) -> None:
    points, columns = some_points(seed, sizes)
    order = torch.randperm(len(columns), generator=rng_of(seed))
    first = torch.stack([(columns == column).nonzero()[0, 0] for column in range(len(sizes))])  # classes in their order
    rest = order[~torch.isin(order, first)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rest)), max_size=4)))
    lessons = [first, *(rows for rows in rest.tensor_split(cuts) if len(rows))]
    assert_equal_sums(taught(points, columns, lessons), taught(points, columns, [torch.arange(len(columns))]))


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_removing_is_never_having_taught_and_merging_is_having_taught_as_one(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    points, columns = some_points(seed, sizes)
    whole = ClassSums.none().added(points, columns)
    column = data.draw(st.integers(0, len(sizes) - 1))
    into = data.draw(st.integers(0, len(sizes) - 1).filter(lambda other: other != column))
    moved = columns - (columns > column).long()  # columns behind the one that goes move up
    kept = columns != column
    assert_equal_sums(whole.removed(column), ClassSums.none().added(points[kept], moved[kept]))
    as_one = torch.where(kept, moved, into - int(into > column))
    assert_equal_sums(whole.merged(into, column), ClassSums.none().added(points, as_one))


def test_saved_and_read_again_is_bit_equal() -> None:
    sums = ClassSums.none().added(*some_points(3, [1, 4, 20, 2]))
    state = sums.state()
    assert state["factors"].shape == (0 + 3 + FEATURES + 1, FEATURES)
    again = ClassSums.from_state(state)
    assert all(torch.equal(a, b) for a, b in zip(sums.factors, again.factors, strict=True))
    assert torch.equal(sums.means, again.means) and torch.equal(sums.counts, again.counts)
