"""CEOS + ACB against slow literal definitions, in float64: boundary samples, class weights and the whole loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import OneLayer, PartialContext, normal, random_model, rng_of
from efcil.engine.context import Batch
from efcil.methods.ceos_acb import CEOSACB, boundary_samples, class_weights, old_count
from efcil.methods.efc import EFC
from efcil.paper.prototypes import gaussian_prototypes

KNOWN, NEW, DIM = 3, 2, 4


# CEOS


def literal_boundary(prototypes: Tensor, features: Tensor, neighbours: int, least: float, seed: int) -> list[Tensor]:
    """α p̃ + (1 − α) f(x) for the nearest features one by one, α as the program draws it."""
    shares = least + (1 - least) * torch.rand(len(prototypes), neighbours, generator=rng_of(seed))
    found = []
    for prototype, own in zip(prototypes, shares.double(), strict=True):
        distances = [float(((prototype - feature) ** 2).sum()) for feature in features]
        nearest = sorted(range(len(features)), key=lambda index: distances[index])[:neighbours]
        found += [share * prototype + (1 - share) * features[index] for share, index in zip(own, nearest, strict=True)]
    return found


@pytest.mark.parametrize("neighbours", [1, 2])
def test_boundary_samples_lie_between_a_draw_and_its_nearest_new_images(neighbours: int) -> None:
    prototypes, features = normal(6, DIM), normal(9, DIM, seed=1)
    expected = literal_boundary(prototypes, features, neighbours, 0.7, seed=3)
    samples = boundary_samples(prototypes, features, neighbours, 0.7, rng_of(3))
    assert samples.shape == (6, neighbours, DIM)
    torch.testing.assert_close(samples.flatten(0, 1), torch.stack(expected), rtol=0, atol=1e-6)


def test_the_draw_keeps_its_least_share() -> None:
    prototypes, features = torch.ones(500, 1).double(), torch.zeros(1, 1).double()
    shares = boundary_samples(prototypes, features, 1, 0.7, rng_of())  # q = α
    assert 0.7 <= shares.min() < 0.71 and 0.99 < shares.max() <= 1
    assert shares.mean().item() == pytest.approx(0.85, abs=0.01)


def test_a_batch_smaller_than_the_neighbours_and_a_step_without_old_classes() -> None:
    assert boundary_samples(normal(3, DIM), normal(2, DIM), 5, 0.7, rng_of()).shape == (3, 2, DIM)
    assert boundary_samples(normal(0, DIM), normal(2, DIM), 1, 0.7, rng_of()).shape == (0, 1, DIM)


# ACB


def test_the_count_of_old_classes_grows_with_the_tasks() -> None:
    for tasks in (10, 20):
        for task in range(1, tasks):
            expected = math.floor(100 + task / (tasks - 1) * (500 - 100) + 1e-9)
            assert old_count(task, tasks, 100, 500) == expected
    assert old_count(1, 2, 100, 500) == old_count(30, 10, 100, 500) == 500  # the last task, and any after it


@pytest.mark.parametrize(
    ("tasks", "ratios"),
    [
        (10, {1: 3.41, 2: 2.62, 3: 2.12, 4: 1.79, 5: 1.54, 6: 1.36, 7: 1.21, 8: 1.10, 9: 1.00}),
        (20, {1: 4.06, 9: 1.71, 19: 1.00}),
    ],
)
def test_old_classes_weigh_more_until_the_last_task(tasks: int, ratios: dict[int, float]) -> None:
    for task, ratio in ratios.items():
        weights = class_weights([old_count(task, tasks, 100, 500), 500], 0.9999)
        assert float(weights[0] / weights[1]) == pytest.approx(ratio, abs=0.006)


def test_class_weights_are_inverse_effective_numbers_of_mean_one() -> None:
    counts, beta = [3, 500, 17], 0.99
    effective = [sum(beta**image for image in range(count)) for count in counts]
    total = sum(1 / number for number in effective)
    expected = torch.tensor([3 / number / total for number in effective], dtype=torch.float64)
    torch.testing.assert_close(class_weights(counts, beta), expected)
    torch.testing.assert_close(class_weights([1, 3], 1.0), torch.tensor([1.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(class_weights([1, 3], 0.0), torch.ones(2, dtype=torch.float64))


# The loss


def context(task: int = 1) -> Any:
    return PartialContext(
        **{
            "model": random_model(OneLayer(12, DIM), KNOWN, NEW, seed=1),
            "old": random_model(OneLayer(12, DIM), seed=2),
        },
        **{"known": KNOWN, "classes": NEW, "task": task, "rng": rng_of(0)},
    )


def remembering(method: Any) -> Any:
    root, features = normal(DIM, 2, seed=7), normal(8 * KNOWN, DIM, seed=8)
    method.memory.efm = root @ root.T
    method.memory.prototypes = gaussian_prototypes(features, torch.arange(KNOWN).repeat(8))
    return method


def batch() -> Batch:
    """Six images of two new classes, and a mix of four old entries and three new ones."""
    x, second = normal(6, 3, 2, 2, seed=3), normal(3, 3, 2, 2, seed=4)
    return Batch(x, torch.tensor([3, 4, 4, 3, 3, 4]), Batch(second, torch.tensor([0, 3, 2, 1, 4, 0, 3])))


@pytest.mark.parametrize("task", [1, 9])
@pytest.mark.parametrize("options", [{}, {"normalise": False}, {"detach": True}, {"neighbours": 2}], ids=str)
def test_the_loss_of_ceos_acb(task: int, options: dict[str, Any]) -> None:
    ctx, shown = context(task), batch()
    assert shown.extra is not None
    neighbours = options.get("neighbours", 1)
    method = remembering(CEOSACB(CEOSACB.Options(lambda_efm=7.0, eta=0.3, prototype_batch=7, **options)))
    terms = method.loss(ctx, shown)

    rng, features = rng_of(0), ctx.model.features(shown.x)
    old_columns, new_columns = [0, 2, 1, 0], [3, 4, 3]
    prototypes = method.memory.prototypes.sample_classes(torch.tensor(old_columns), rng)
    shares = torch.empty(4, neighbours, 1).uniform_(0.7, 1, generator=rng).double()
    rows, columns = list(prototypes), list(old_columns)
    for prototype, column, own in zip(prototypes, old_columns, shares, strict=True):
        order = (features.detach() - prototype).square().sum(1).argsort()
        for share, index in zip(own, order[:neighbours], strict=True):
            enemy = features[index].detach() if options.get("detach") else features[index]
            sample = share * prototype + (1 - share) * enemy
            rows.append(sample if options.get("normalise") is False else sample / sample.square().sum().sqrt())
            columns.append(column)
    rows += list(ctx.model.features(shown.extra.x))
    columns += new_columns

    count = 100 + int(task * 400 / 9 + 1e-9)
    weights = [(1 - 0.9999) / (1 - 0.9999**n) for n in [count] * KNOWN + [500] * NEW]
    weight, total, normaliser = ctx.model.weight, 0.0, 0.0
    for row, column in zip(rows, columns, strict=True):
        total = total - weights[column] * (weight @ row).log_softmax(0)[column]
        normaliser += weights[column]
    pairs = zip(features, shown.y.tolist(), strict=True)
    ce = -sum((weight[KNOWN:] @ row).log_softmax(0)[column - KNOWN] for row, column in pairs) / 6
    damped = 7.0 * method.memory.efm + 0.3 * torch.eye(DIM)
    efm = sum(d @ damped @ d for d in features - ctx.old.features(shown.x).detach()) / 6
    expected: dict[str, Any] = {"ce": ce, "rehearsal": total / normaliser, "efm": efm}
    assert terms.keys() == expected.keys()
    for name in terms:
        torch.testing.assert_close(terms[name], expected[name])
    trained = list(ctx.model.parameters())
    gradients = (torch.autograd.grad(sum(losses.values()), trained) for losses in (terms, expected))
    for actual, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, wanted)


def test_without_boundary_samples_and_weights_it_is_efc(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda prototypes, *rest: prototypes[:, None][:, :0]  # noqa: E731
    monkeypatch.setattr("efcil.methods.ceos_acb.boundary_samples", nothing)
    settings: dict[str, Any] = {"lambda_efm": 7.0, "eta": 0.3, "prototype_batch": 7}
    ours = remembering(CEOSACB(CEOSACB.Options(**settings, beta=0.0))).loss(context(), batch())
    efc = remembering(EFC(EFC.Options(**settings))).loss(context(), batch())
    assert ours.keys() == efc.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], efc[name])


def test_boundary_samples_move_new_features_unless_they_are_detached() -> None:
    gradients = []
    for detach in (False, True):
        ctx = context()
        terms = remembering(CEOSACB(CEOSACB.Options(prototype_batch=7, detach=detach))).loss(ctx, batch())
        (gradient,) = torch.autograd.grad(terms["rehearsal"], [ctx.model.backbone.layer.weight])
        gradients.append(gradient)
    assert not torch.allclose(*gradients)
