"""Gaussian prototypes: the moments that are stored, and draws that have them."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conftest import Largest
from efcil.engine.numerics import JITTER
from efcil.errors import UserError
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes

quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def features_of(counts: list[int], dim: int = 4, seed: int = 0, first: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated float64 features, ``counts[c]`` of class first + c, in shuffled order, and their columns."""
    rng = torch.Generator().manual_seed(seed)
    columns = torch.arange(first, first + len(counts)).repeat_interleave(torch.tensor(counts))
    columns = columns[torch.randperm(len(columns), generator=rng)]
    noise = torch.randn(len(columns), dim, generator=rng, dtype=torch.float64)
    mixing = torch.randn(dim, dim, generator=rng, dtype=torch.float64)
    return noise @ mixing + columns[:, None], columns


def of_every_class(prototypes: GaussianPrototypes, per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """So many draws of each class, and their columns."""
    columns = torch.arange(len(prototypes)).repeat_interleave(per_class)
    return prototypes.sample_classes(columns, torch.Generator().manual_seed(seed)), columns


def usable(prototypes: GaussianPrototypes) -> bool:
    """Everything finite, and so are draws."""
    drawn, _ = of_every_class(prototypes, 3)
    return all(bool(t.isfinite().all()) for t in (prototypes.means, *prototypes.factors, drawn))


@quick
@given(seed=seeds, counts=st.lists(st.integers(2, 9), min_size=1, max_size=4), dim=st.integers(1, 5))
def test_means_and_unbiased_covariances_of_each_class(seed: int, counts: list[int], dim: int) -> None:
    features, columns = features_of(counts, dim, seed, first=7)
    prototypes = gaussian_prototypes(features, columns)
    assert prototypes.counts.tolist() == counts
    for index in range(len(counts)):
        own = features[columns == 7 + index]
        torch.testing.assert_close(prototypes.means[index], own.mean(0))
        expected = torch.cov(own.T).reshape(dim, dim)
        torch.testing.assert_close(prototypes.covariance(index), expected, rtol=0, atol=1e-10)


def test_a_factor_is_triangular_and_as_thin_as_its_class() -> None:
    """Triangular: which image is which is gone. A row fewer than images, never more than features."""
    features, columns = features_of([30, 3, 2, 5, 4])
    prototypes = gaussian_prototypes(features, columns)
    assert [len(factor) for factor in prototypes.factors] == [4, 2, 1, 4, 3]
    for index, factor in enumerate(prototypes.factors):
        assert torch.equal(factor, factor.triu())
        expected = torch.cov(features[columns == index].T)
        torch.testing.assert_close(factor.T @ factor, expected, rtol=0, atol=1e-10)


def test_full_factors_square_to_the_jittered_covariances() -> None:
    features, columns = features_of([30, 3])
    for index, root in enumerate(gaussian_prototypes(features, columns).full_factors()):
        assert torch.equal(root, root.tril())
        expected = torch.cov(features[columns == index].T) + JITTER * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(root @ root.T, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("counts", [[30, 3], [1, 1], [2, 40]])
def test_a_draw_is_linear_in_noise_and_has_exactly_the_jittered_covariance(counts: list[int]) -> None:
    """Of a draw A z for standard z the covariance is A Aᵀ; A is read off by putting unit vectors in the place of z."""
    features, columns = features_of(counts)
    prototypes = gaussian_prototypes(features, columns)
    for index, count in enumerate(counts):
        own = features[columns == index]
        rows, n = len(prototypes.factors[index]), 4
        units = torch.eye(n + rows, dtype=torch.float64)
        given = iter([units[:, :n], units[:, n:]])  # ε, then z
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn", lambda *shape, generator, given=given: next(given).reshape(shape))
            drawn = prototypes.sample_classes(torch.full((n + rows,), index), torch.Generator())
        mixing = drawn - prototypes.means[index]  # Aᵀ
        expected = (own.T.cov() if count > 1 else torch.zeros(n, n)) + JITTER * torch.eye(n, dtype=torch.float64)
        torch.testing.assert_close(mixing.T @ mixing, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("counts", [[30, 3, 12], [2, 2], [1, 1], [5, 1]])
def test_full_factors_of_version_1_become_thin_ones(counts: list[int], single: bool) -> None:
    features, columns = features_of(counts)
    prototypes = gaussian_prototypes(features.float() if single else features, columns)
    old = {"means": prototypes.means, "covariance_factors": prototypes.full_factors(), "counts": prototypes.counts}
    loaded = GaussianPrototypes.from_state(old)
    assert [len(factor) for factor in loaded.factors] == [len(factor) for factor in prototypes.factors]
    for index in range(len(counts)):
        atol = 1e-5 if single else 1e-10
        torch.testing.assert_close(loaded.covariance(index), prototypes.covariance(index), rtol=0, atol=atol)


def test_state_and_back_with_factors_of_any_height() -> None:
    prototypes = gaussian_prototypes(*features_of([1, 3, 30]))
    state = prototypes.state()
    assert state["covariance_factors"].shape == (4 + 2 + 4, 4) and state["factor_rows"].tolist() == [4, 2, 4]
    again = GaussianPrototypes.from_state(state)
    assert all(torch.equal(a, b) for a, b in zip(again.factors, prototypes.factors, strict=True))
    for rows in ([4, 2, 3], [4, -2, 8]):
        with pytest.raises(UserError, match=r"factor_rows must share out 10 rows"):
            GaussianPrototypes.from_state({**state, "factor_rows": torch.tensor(rows)})
    none = GaussianPrototypes.from_state(GaussianPrototypes.none().state())
    assert len(none) == len(none.factors) == 0


def test_a_class_that_is_removed_takes_its_factor_along() -> None:
    prototypes = gaussian_prototypes(*features_of([5, 3, 30]))
    left = prototypes.removed(1)
    assert left.counts.tolist() == [5, 30]
    for index, before in enumerate((0, 2)):
        assert torch.equal(left.means[index], prototypes.means[before])
        assert torch.equal(left.factors[index], prototypes.factors[before])


def test_draws_have_the_mean_and_covariance_of_their_class() -> None:
    """Statistical error of the mean is √(Σ_ii/N), of a covariance at most √(2 Σ_ii Σ_jj/N)."""
    prototypes = gaussian_prototypes(*features_of([40, 25, 60]))
    columns = torch.tensor([2, 0, 1, 0]).repeat(20_000)
    drawn = prototypes.sample_classes(columns, torch.Generator().manual_seed(3))
    assert drawn.shape == (80_000, 4)
    for index in range(3):
        assert_moments(drawn[columns == index], prototypes, index)


def assert_moments(drawn: Tensor, prototypes: GaussianPrototypes, index: int) -> None:
    """Five standard errors, so a right answer fails once in a million."""
    covariance = prototypes.covariance(index)
    spread = covariance.diagonal().sqrt()
    root = len(drawn) ** 0.5
    assert ((drawn.mean(0) - prototypes.means[index]).abs() <= 5 * spread / root).all()
    error = (torch.cov(drawn.T) - covariance).abs()
    assert (error <= 5 * 2**0.5 * torch.outer(spread, spread) / root).all()


def test_draws_are_decided_by_the_generator() -> None:
    prototypes = gaussian_prototypes(*features_of([5, 6]))
    first, again, other = (of_every_class(prototypes, 4, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_columns_give_no_draws() -> None:
    prototypes = gaussian_prototypes(*features_of([5, 6]))
    drawn = prototypes.sample_classes(torch.zeros(0, dtype=torch.int64), torch.Generator())
    assert drawn.shape == (0, 4)


def test_class_of_one_image_takes_the_average_covariance_of_its_task() -> None:
    features, columns = features_of([1, 12, 9])
    prototypes = gaussian_prototypes(features, columns)
    torch.testing.assert_close(prototypes.means[0], features[columns == 0][0])
    expected = (torch.cov(features[columns == 1].T) + torch.cov(features[columns == 2].T)) / 2
    torch.testing.assert_close(prototypes.covariance(0), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("counts", [[20] * 8, [20] * 7 + [1]])
def test_covariances_of_all_classes_are_never_held_at_once_in_float64(counts: list[int]) -> None:
    """For a thousand classes of the paper's network that would be two gigabytes."""
    features, columns = features_of(counts, dim=16)
    with Largest() as made:
        gaussian_prototypes(features.float(), columns)
    assert made.numbers[torch.float64] <= 2 * 16 * 16


def test_a_task_of_single_images_draws_them_again() -> None:
    features, columns = features_of([1, 1, 1])
    prototypes = gaussian_prototypes(features, columns)
    drawn, drawn_columns = of_every_class(prototypes, 50)
    torch.testing.assert_close(drawn, features[columns.argsort()][drawn_columns], rtol=0, atol=6 * JITTER**0.5)


@quick
@given(
    seed=seeds,
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 1e3]),
    single=st.booleans(),
)
def test_fewer_images_than_features_stay_usable(seed: int, counts: list[int], scale: float, single: bool) -> None:
    """A covariance of deficient rank, of any size, in either precision, never fails and never gives NaN."""
    features, columns = features_of(counts, 16, seed)
    features = scale * features
    assert usable(gaussian_prototypes(features.float() if single else features, columns))


def test_duplicate_images_stay_usable() -> None:
    features, columns = features_of([3, 3])
    repeated = torch.cat([features[:1]] * 8 + [features])
    assert usable(gaussian_prototypes(repeated, torch.cat([torch.zeros(8, dtype=torch.int64), columns])))


def test_prototypes_keep_the_precision_of_the_features() -> None:
    features, columns = features_of([6, 7])
    prototypes = gaussian_prototypes(features.float(), columns)
    assert {t.dtype for t in (prototypes.means, *prototypes.factors)} == {torch.float32}
    torch.testing.assert_close(
        prototypes.covariance(1).double(), torch.cov(features[columns == 1].T), atol=1e-4, rtol=0
    )


def test_extending_puts_new_classes_after_old_ones() -> None:
    old = gaussian_prototypes(*features_of([5, 6], seed=1))
    new = gaussian_prototypes(*features_of([4], seed=2, first=2))
    both = old.extended(new)
    assert len(both) == 3
    assert both.counts.tolist() == [5, 6, 4]
    assert torch.equal(both.means, torch.cat([old.means, new.means]))
    assert torch.equal(both.factors[2], new.factors[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e5, 1e8, 1e15])
def test_large_features_fewer_images_than_features_and_still_a_factor(size: float, dtype: torch.dtype) -> None:
    """Rounding errors of Σ are far above the jitter here."""
    features, columns = features_of([5, 3, 1], dim=30)
    features = (size * features).to(dtype)
    prototypes = gaussian_prototypes(features, columns)
    assert usable(prototypes)
    expected = features[columns == 0].double().T.cov()
    torch.testing.assert_close(prototypes.covariance(0).double(), expected, rtol=0, atol=1e-6 * float(expected.max()))


def test_a_copy_costs_nothing_and_nothing_that_is_done_changes_what_it_is_done_to() -> None:
    """A lesson works on a copy of the method, so that a lesson that fails leaves the old one."""
    old = gaussian_prototypes(*features_of([5, 6]))
    before = {name: tensor.clone() for name, tensor in old.state().items()}
    assert copy.deepcopy(old) is old
    old.extended(gaussian_prototypes(*features_of([4], first=2)))
    old.removed(0)
    of_every_class(old, 3)
    assert all(torch.equal(old.state()[name], tensor) for name, tensor in before.items())


def test_before_the_first_task_there_are_none() -> None:
    none = GaussianPrototypes.none()
    assert len(none) == 0 and none.factors == ()
    assert none.means.shape == (0, 0) and none.counts.shape == (0,) and none.counts.dtype == torch.int64


def test_a_class_that_does_not_spread_has_the_jitter_alone() -> None:
    """In double precision, whatever else is single."""
    still = GaussianPrototypes(torch.zeros(1, 3, dtype=torch.float64), (torch.zeros(0, 3),), torch.tensor([1]))
    expected = JITTER**0.5 * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(still.full_factors()[0], expected, rtol=1e-12, atol=0)
