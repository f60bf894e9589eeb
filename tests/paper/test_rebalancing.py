"""Prototype re-balancing (Eq. 13): its loss, its balance and its optimiser, each against a literal version."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conftest import Largest
from efcil.errors import UserError
from efcil.paper import rebalancing
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes
from efcil.paper.rebalancing import Rebalancing, balanced_rows, rebalance, rebalancing_loss

quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def clusters(centres: Tensor, per_class: int, first: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit Gaussians around these centres, one class each, and their columns."""
    columns = torch.arange(len(centres)).repeat_interleave(per_class)
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(columns), centres.shape[1], generator=rng, dtype=torch.float64)
    return centres[columns] + noise, columns + first


def problem() -> tuple[Tensor, GaussianPrototypes, list[Tensor], Tensor]:
    """A head (5, 6), prototypes of classes 0-2, and two views of 7 features of classes 3 and 4."""
    rng = torch.Generator().manual_seed(5)
    prototypes = gaussian_prototypes(*clusters(3 * torch.eye(6).double()[:3], 9, 0, seed=1))
    columns = torch.tensor([3, 4, 3, 3, 4, 3, 3])
    views = [torch.randn(7, 6, generator=rng, dtype=torch.float64) for _ in range(2)]
    return torch.randn(5, 6, generator=rng, dtype=torch.float64), prototypes, views, columns


@quick
@given(seed=seeds, count=st.integers(1, 6), classes=st.integers(1, 5))
def test_loss_is_the_mean_of_minus_log_softmax(seed: int, count: int, classes: int) -> None:
    """Eq. 13."""
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(count, 3, generator=rng, dtype=torch.float64)
    weight = torch.randn(classes, 3, generator=rng, dtype=torch.float64)
    columns = torch.randint(classes, (count,), generator=rng)
    losses = []
    for f, y in zip(features, columns.tolist(), strict=True):
        logits = [float(w @ f) for w in weight]
        losses.append(-math.log(math.exp(logits[y]) / sum(map(math.exp, logits))))
    expected = sum(losses) / count
    assert float(rebalancing_loss(features, columns, weight)) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@quick
@given(seed=seeds, counts=st.lists(st.integers(1, 7), min_size=1, max_size=4), per_class=st.integers(1, 20))
def test_balanced_rows_use_each_row_before_any_again(seed: int, counts: list[int], per_class: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    columns = torch.arange(3, 3 + len(counts)).repeat_interleave(torch.tensor(counts))
    columns = columns[torch.randperm(len(columns), generator=rng)]
    rows = balanced_rows(columns, per_class, rng)
    assert torch.bincount(columns[rows])[3:].tolist() == [per_class] * len(counts)
    used = torch.bincount(rows, minlength=len(columns))
    for column in columns.unique():
        own = used[columns == column]
        assert own.max() - own.min() <= 1


def literal_rebalance(
    weight: Tensor, prototypes: GaussianPrototypes, views: list[Tensor], columns: Tensor, settings: Rebalancing
) -> Tensor:
    """SGD on Eq. 13 by hand: ∂L/∂W = mean (p − onehot) fᵀ, v ← μv + g + ωW, W ← W − αv."""
    rng = torch.Generator().manual_seed(0)
    weight, velocity = weight.clone(), torch.zeros_like(weight)
    per_class = math.ceil(len(columns) / len(set(columns.tolist())))
    for epoch in range(settings.epochs):
        rows = balanced_rows(columns, per_class, rng)
        old = [column for column in range(len(prototypes)) for _ in range(per_class)]
        order = torch.randperm(len(old) + len(rows), generator=rng)
        drawn = prototypes.sample_classes(torch.tensor([old[i] for i in order if i < len(old)]), rng)  # in their turn
        draws = iter(drawn)
        features = torch.stack(
            [next(draws) if i < len(old) else views[epoch % len(views)][rows[i - len(old)]] for i in order]
        )
        targets = torch.tensor([old[i] if i < len(old) else int(columns[rows[i - len(old)]]) for i in order])
        for start in range(0, len(order), settings.batch_size):
            batch = torch.arange(start, min(start + settings.batch_size, len(order)))
            gradient = torch.zeros_like(weight)
            for f, y in zip(features[batch], targets[batch], strict=True):
                error = torch.softmax(weight @ f, dim=0)
                error[y] -= 1
                gradient += torch.outer(error, f) / len(batch)
            velocity = settings.momentum * velocity + gradient + settings.weight_decay * weight
            weight = weight - settings.lr * velocity
    return weight


@pytest.mark.parametrize("batch_size", [4, 256])
def test_rebalancing_is_sgd_with_momentum_and_weight_decay(batch_size: int) -> None:
    """Eq. 13, with several mini-batches per epoch, a last one that is smaller, and the views in turn."""
    settings = Rebalancing(epochs=5, lr=0.1, momentum=0.9, weight_decay=0.01, batch_size=batch_size)
    weight, prototypes, views, columns = problem()
    expected = literal_rebalance(weight, prototypes, views, columns, settings)
    actual = rebalance(weight, prototypes, views, columns, settings, torch.Generator().manual_seed(0))
    assert not actual.requires_grad
    assert (actual - weight).abs().max() > 0.1
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_prototypes_are_never_drawn_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 13 for a thousand classes of 1,300 images would otherwise need 13 GB."""
    features, columns = clusters(torch.randn(44, 8, generator=torch.Generator().manual_seed(0)), 100, 0, seed=1)
    prototypes = gaussian_prototypes(features[:4000], columns[:4000])
    monkeypatch.setattr(rebalancing, "CHUNK", 500)
    with Largest() as made:
        rebalance(
            torch.zeros(44, 8).double(),
            prototypes,
            [features[4000:]],
            columns[4000:],
            Rebalancing(epochs=2),
            torch.Generator(),
        )
    assert made.numbers[torch.float64] == 256 * 44  # the outputs of a batch, more than the draws of a chunk
    assert made.numbers[torch.float32] <= 256 * 8  # their noise
    assert made.numbers[torch.int64] == 4400


def test_rebalancing_changes_neither_the_given_head_nor_the_features() -> None:
    weight, prototypes, views, columns = problem()
    before = [tensor.clone() for tensor in (weight, prototypes.means, *views)]
    rebalance(weight, prototypes, views, columns, Rebalancing(epochs=2), torch.Generator())
    for tensor, copy in zip((weight, prototypes.means, *views), before, strict=True):
        assert torch.equal(tensor, copy)


def test_no_epochs_leave_the_head() -> None:
    weight, prototypes, views, columns = problem()
    assert torch.equal(rebalance(weight, prototypes, views, columns, Rebalancing(epochs=0), torch.Generator()), weight)


def test_rebalancing_repairs_a_head_biased_to_new_classes() -> None:
    """Eq. 13 removes task-recency bias: a head that calls everything new learns all separable classes."""
    centres = 8 * torch.eye(8, dtype=torch.float64)[:6]
    old, old_columns = clusters(centres[:4], 40, 0, seed=1)
    new, new_columns = clusters(centres[4:], 40, 4, seed=2)
    biased = torch.zeros(6, 8, dtype=torch.float64)
    biased[4:] = 1.0
    test, truth = clusters(centres, 30, 0, seed=3)
    assert ((test @ biased.T).argmax(1) >= 4).double().mean() > 0.95
    settings = Rebalancing(epochs=50, lr=0.01)
    rng = torch.Generator().manual_seed(0)
    repaired = rebalance(biased, gaussian_prototypes(old, old_columns), [new], new_columns, settings, rng)
    assert ((test @ repaired.T).argmax(1) == truth).double().mean() > 0.95


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"lr": -0.1}, {"batch_size": 0}, {"views": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Rebalancing(**wrong)  # type: ignore[arg-type]
