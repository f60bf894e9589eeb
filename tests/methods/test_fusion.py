"""The reconstruction of Fusion against literal versions in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import PartialContext, TinyNet, make_blobs, make_learner, normal
from efcil.engine.context import Batch
from efcil.engine.model import IncrementalModel
from efcil.methods.fusion import Fusion, semantic_relation

KNOWN, NEW, DIM, SIZE = 3, 2, 6, 7


def model_of(*heads: int, seed: int) -> IncrementalModel:
    model = IncrementalModel(TinyNet())
    for classes in heads:
        model.grow(classes)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=seed + index))
    return model.double()


def learning(**options: float) -> Fusion:
    """In the middle of a second task: a map Γ that has learnt something, and estimates that have moved."""
    fusion = Fusion(Fusion.Options(**options))
    fusion.means, fusion.radius = normal(KNOWN, DIM), torch.tensor(0.7, dtype=torch.float64)
    fusion.new_means, fusion.estimates = normal(NEW, DIM, seed=1), normal(KNOWN, DIM, seed=2)
    shapes = [(DIM, DIM), (DIM,), (DIM, DIM), (DIM,)]
    fusion.drift_map = nn.ParameterList([normal(*shape, seed=3 + i) for i, shape in enumerate(shapes)])
    return fusion


@torch.no_grad()
def literal_map(fusion: Fusion, feature: Tensor) -> Tensor:
    """Γ(f) = f + B relu(A f + a) + b of one vector."""
    a, a_bias, b, b_bias = fusion.drift_map
    hidden = [max(0.0, float(row @ feature + bias)) for row, bias in zip(a, a_bias, strict=True)]
    return feature + b @ torch.tensor(hidden, dtype=torch.float64) + b_bias


def literal_cross_entropy(weight: Tensor, feature: Tensor, label: int) -> float:
    logits = [float(row @ feature) for row in weight]
    return -logits[label] + math.log(sum(math.exp(logit) for logit in logits))


def context() -> Any:
    return PartialContext(
        model=model_of(KNOWN, NEW, seed=10),
        old=model_of(KNOWN, seed=20),
        known=KNOWN,
        rng=torch.Generator().manual_seed(5),
    )


def test_the_loss() -> None:
    ctx, fusion = context(), learning(lambda_fd=2.0, lambda_pr=3.0)
    x, y = normal(SIZE, 3, 4, 4, seed=7), KNOWN + torch.arange(SIZE) % NEW
    terms = fusion.loss(ctx, Batch(x, y))
    rng = torch.Generator().manual_seed(5)
    columns = torch.randint(KNOWN, (SIZE,), generator=rng)
    noise = torch.randn(SIZE, DIM, generator=rng).double()
    weight, squares, mapped, new, old_classes = ctx.model.weight, 0.0, 0.0, 0.0, 0.0
    with torch.no_grad():
        for index in range(SIZE):
            feature, old = (model.features(x[index : index + 1])[0] for model in (ctx.model, ctx.old))
            squares += float(((feature - old) ** 2).sum())
            mapped += float(((literal_map(fusion, old) - feature) ** 2).sum())
            new += literal_cross_entropy(weight, feature, int(y[index]))
            column = int(columns[index])
            old_classes += literal_cross_entropy(weight, fusion.estimates[column] + 0.7 * noise[index], column)
    assert terms["ce"].item() == pytest.approx(new / SIZE)
    assert terms["fd"].item() == pytest.approx(2 * math.sqrt(squares))
    assert terms["prototypes"].item() == pytest.approx(3 * old_classes / SIZE)
    assert terms["drift_map"].item() == pytest.approx(mapped / (SIZE * DIM))


def test_the_map_does_not_pull_at_the_backbone() -> None:
    ctx, fusion = context(), learning()
    terms = fusion.loss(ctx, Batch(normal(SIZE, 3, 4, 4), KNOWN + torch.arange(SIZE) % NEW))
    terms["drift_map"].backward()
    assert all(parameter.grad is None for parameter in ctx.model.parameters())
    assert all(parameter.grad is not None for parameter in fusion.drift_map)


def test_the_relation_is_a_softmax_of_distances() -> None:
    means, new_means = normal(3, 4), normal(2, 4, seed=1)
    distances = [[float(((mean - new) ** 2).sum()) for new in new_means] for mean in means]
    scale = 0.3 * sum(map(sum, distances)) / 6
    by_hand = [[math.exp(-d / scale) for d in row] for row in distances]
    expected = torch.tensor([[entry / sum(row) for entry in row] for row in by_hand], dtype=torch.float64)
    torch.testing.assert_close(semantic_relation(means, new_means, 0.3), expected)
    torch.testing.assert_close(semantic_relation(7 * means, 7 * new_means, 0.3), expected)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_the_estimate_fuses_both_drifts(gamma: float) -> None:
    fusion, moved = learning(gamma=gamma, tau=0.4), normal(NEW, DIM, seed=9)
    relation = semantic_relation(fusion.means, fusion.new_means, 0.4)
    for column, estimate in enumerate(fusion.fused(moved)):
        mean = fusion.means[column]
        before = sum((relation[column, j] * fusion.new_means[j] for j in range(NEW)), torch.zeros(DIM))
        after = sum((relation[column, j] * moved[j] for j in range(NEW)), torch.zeros(DIM))
        semantic = after + (mean - before)  # the same residual as in the old network, where the mean is known
        expected = gamma * literal_map(fusion, mean) + (1 - gamma) * semantic
        torch.testing.assert_close(estimate, expected)


def test_a_shift_of_all_features_is_followed_by_the_semantic_part() -> None:
    fusion, shift = learning(gamma=0.0), normal(DIM, seed=9)
    torch.testing.assert_close(fusion.fused(fusion.new_means + shift), fusion.means + shift)


def test_the_map_learns_a_linear_drift() -> None:
    """What the term of the loss is for: Γ brings a mean where its class has gone."""
    old, drift = 1 + normal(200, DIM), torch.eye(DIM) + 0.3 * normal(DIM, DIM, seed=1)
    ctx, fusion = context(), learning()
    ctx.old.features, ctx.model.features = (lambda x: old[:50] + x), (lambda x: (old[:50] + x) @ drift)
    shapes = [(DIM, DIM), (DIM,), (DIM, DIM), (DIM,)]
    fusion.drift_map = nn.ParameterList([0.1 * normal(*shape, seed=i) for i, shape in enumerate(shapes)])
    optimizer = torch.optim.Adam(fusion.drift_map.parameters(), lr=1e-2)
    for step in range(300):
        terms = fusion.loss(ctx, Batch(normal(50, DIM, seed=step), torch.full((50,), KNOWN)))
        optimizer.zero_grad()
        terms["drift_map"].backward()
        optimizer.step()
    mean = old[:50].mean(0)
    missed = (literal_map(fusion, mean) - mean @ drift).norm()
    assert missed < 0.2 * (mean - mean @ drift).norm()


def test_means_stay_while_nothing_is_trained_and_are_replaced_otherwise() -> None:
    tasks = [make_blobs(["cat", "dog"]), make_blobs(["ant", "bee"], 5)]
    for epochs, stays in ((0, True), (2, False)):
        classifier = make_learner("fusion", incremental={"epochs": epochs})
        classifier.partial_fit(*tasks[0])
        before = classifier._method.state()["means"].clone()
        classifier.partial_fit(*tasks[1])
        after = classifier._method.state()["means"]
        assert after.shape == (4, before.shape[1])
        assert torch.equal(after[:2], before) == stays
