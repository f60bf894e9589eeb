"""RanPAC against ridge regression on all images at once, and its choice of the penalty."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from conftest import normal, rng_of
from efcil.errors import UserError
from efcil.methods import ranpac
from efcil.methods.ranpac import PENALTIES, RanPAC, ridge

MODEL: Any = None  # no head is looked at
N, M = 6, 20


def clusters(*sizes: int, seed: int = 0, first: int = 0) -> tuple[Tensor, Tensor]:
    columns = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) + first
    return normal(first + len(sizes), N, seed=1)[columns] + 0.3 * normal(len(columns), N, seed=seed), columns


def learnt(*tasks: tuple[Tensor, Tensor], **options: Any) -> RanPAC:
    method = RanPAC(RanPAC.Options(expansion=M, **options))
    method.projection = normal(N, M, seed=3)
    method.autocorrelation, method.class_sums = torch.zeros(M, M).double(), torch.zeros(M, 0).double()
    for features, columns in tasks:
        method.learn(features, columns, int(columns.max()) + 1, rng_of(0))
    return method


TASKS = [clusters(9, 15, 12), clusters(7, 10, first=3, seed=2)]
ALL = [torch.cat(part) for part in zip(*TASKS, strict=True)]


def test_two_tasks_are_ridge_regression_on_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranpac, "PENALTIES", [3.0])
    method = learnt(*TASKS)
    h = torch.relu(ALL[0] @ method.projection)
    y = F.one_hot(ALL[1]).double()
    expected = torch.linalg.solve(h.T @ h + 3 * torch.eye(M).double(), h.T @ y)
    torch.testing.assert_close(method.weight, expected)
    test = clusters(2, 2, 2, 2, 2, seed=5)[0]
    torch.testing.assert_close(method.scores(MODEL, test), torch.relu(test @ method.projection) @ expected)


def test_the_penalty_is_the_best_of_the_row_on_images_held_out() -> None:
    features, columns = clusters(20, 20, 20)
    rows = torch.randperm(60, generator=rng_of(0))
    fitted, held_out = rows[:48], rows[48:]
    method = learnt((features, columns))
    h, y = torch.relu(features @ method.projection), F.one_hot(columns).double()
    errors = []
    for penalty in PENALTIES:
        weight = ridge(h[fitted].T @ h[fitted], h[fitted].T @ y[fitted], penalty)
        errors.append(float((h[held_out] @ weight - y[held_out]).square().mean()))
    best = PENALTIES[errors.index(min(errors))]
    torch.testing.assert_close(method.weight, ridge(h.T @ h, h.T @ y, best))
    assert len(set(errors)) > 5 and PENALTIES[0] == 1e-8 and PENALTIES[-1] == 1e8


def test_a_single_image_is_learnt_without_one_held_out() -> None:
    method = learnt(clusters(1), clusters(1, first=1))
    assert torch.isfinite(method.weight).all()
    assert method.scores(MODEL, clusters(1, 1)[0]).argmax(1).tolist() == [0, 1]


def test_an_image_without_any_feature_gets_the_least_penalty() -> None:
    method = RanPAC(RanPAC.Options(expansion=M))
    method.autocorrelation = torch.zeros(M, M)
    assert method._penalty(torch.empty(0, M), torch.empty(0, 1)) == pytest.approx(1e-8, rel=1e-6)
    method.autocorrelation = torch.diag(torch.arange(float(M)))
    assert method._penalty(torch.empty(0, M), torch.empty(0, 1)) == (M - 1) / 2


def test_a_class_cannot_be_taken_out_of_the_regression() -> None:
    with pytest.raises(UserError, match="cannot forget"):
        learnt(*TASKS).remove_class(0)


@pytest.mark.parametrize("options", [{"expansion": 0}, {"held_out": 1.5}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        RanPAC.Options(**options)
