"""PASS, IL2A and SSRE against literal versions in float64, and what weight zero means."""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import OneLayer, PartialContext, make_blobs, make_learner, normal, random_model, rng_of
from efcil.bench.scenarios import resolve
from efcil.engine.context import Batch
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.methods.il2a import IL2A, mixing_weights, pair_index, semantic_logits
from efcil.methods.pass_ import PASS, noise_radius
from efcil.methods.ssre import SSRE, prototype_similarity
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes

KNOWN, NEW, DIM, SIZE = 3, 3, 4, 7


def model_of(*heads: int, seed: int) -> IncrementalModel:
    return random_model(OneLayer(12, DIM), *heads, seed=seed)


def context(classes: int = NEW) -> Any:
    """What the losses look at, in the second task."""
    return PartialContext(
        model=model_of(KNOWN, classes, seed=1),
        old=model_of(KNOWN, seed=2),
        known=KNOWN,
        classes=classes,
        first=False,
        rng=rng_of(),
        device=torch.device("cpu"),
    )


def batch_of(classes: int = NEW) -> Batch:
    return Batch(normal(SIZE, 3, 2, 2, seed=3), KNOWN + torch.arange(SIZE) % classes)


def prototypes_of() -> GaussianPrototypes:
    return gaussian_prototypes(normal(24, DIM, seed=4).abs(), torch.arange(24) % KNOWN)


def assert_equal(actual: Tensor, expected: Any) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def literal_ce(outputs: Tensor, label: int, temperature: float) -> Tensor:
    """−log softmax(z / T)_y of one vector, term by term."""
    return -outputs[label] / temperature + math.log(sum(math.exp(z / temperature) for z in outputs))


def literal_frobenius(model: IncrementalModel, old: IncrementalModel, images: list[Tensor]) -> float:
    """One norm of the whole matrix F − F_old."""
    drifts = [model.features(x[None])[0] - old.features(x[None])[0] for x in images]
    return math.sqrt(sum(float(entry) ** 2 for drift in drifts for entry in drift))


def mean(values: list[Tensor]) -> Tensor:
    return sum(values, torch.zeros(())) / len(values)


# PASS


def pass_of(ctx: Any, **options: float) -> PASS:
    method = build_method("pass", options)
    assert isinstance(method, PASS)
    method.means, method.radius = prototypes_of().means, torch.tensor(0.7, dtype=torch.float64)
    method.before_task(ctx)
    ctx.model.double()
    return method


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss_of_pass(temperature: float) -> None:
    ctx, batch = context(), batch_of()
    method = pass_of(ctx, temperature=temperature, lambda_fd=2.0, lambda_pr=3.0)
    ctx.rng = rng_of()
    terms = method.loss(ctx, batch)

    model, head = ctx.model, ctx.model.rotation_head
    order = [(c, 0) for c in range(KNOWN + NEW)] + [(KNOWN + j, k) for j in range(NEW) for k in (1, 2, 3)]

    def outputs(features: Tensor) -> Tensor:
        rows = [*model.heads[0], *model.heads[1]]
        own = [(row * features).sum() for row in rows]
        turned = [(row * features).sum() + bias for row, bias in zip(head.weight, head.bias, strict=True)]
        return torch.stack([*own, *turned])

    turns = [(x.rot90(k, (1, 2)), int(y), k) for x, y in zip(batch.x, batch.y, strict=True) for k in range(4)]
    losses = [literal_ce(outputs(model.features(x[None])[0]), order.index((y, k)), temperature) for x, y, k in turns]
    assert_equal(terms["ce"], mean(losses))
    assert_equal(terms["fd"], 2 * literal_frobenius(model, ctx.old, [x for x, _, _ in turns]))

    rng = rng_of()
    columns = torch.randint(KNOWN, (SIZE,), generator=rng).tolist()  # as many as images before they are turned
    noise = torch.randn(SIZE, DIM, generator=rng).double()
    drawn = [method.means[c] + 0.7 * noise[i] for i, c in enumerate(columns)]
    losses = [literal_ce(outputs(p), order.index((c, 0)), temperature) for p, c in zip(drawn, columns, strict=True)]
    assert_equal(terms["prototypes"], 3 * mean(losses))


def test_the_radius_of_pass_is_the_root_of_the_mean_variance() -> None:
    features, columns = normal(20, DIM), torch.arange(20) % 3
    variances = []
    for c in range(3):
        own = features[columns == c]
        centred = own - own.sum(0) / len(own)
        variances.append(sum(float(row @ row) for row in centred) / (len(own) - 1) / DIM)
    assert_equal(noise_radius(features, columns), math.sqrt(sum(variances) / 3))


def test_the_radius_of_single_images_is_zero() -> None:
    assert noise_radius(normal(2, DIM), torch.arange(2)) == 0


def test_pass_keeps_its_radius_and_its_means() -> None:
    classifier = make_learner("pass").partial_fit(*make_blobs(["cat", "dog"]))
    first = {name: value.clone() for name, value in classifier._method.state().items()}
    state = classifier.partial_fit(*make_blobs(["ant"]))._method.state()
    assert first["radius"] > 0 and torch.equal(state["radius"], first["radius"])
    assert torch.equal(state["means"][:2], first["means"]) and len(state["means"]) == 3


# IL2A


def il2a_of(ctx: Any, **options: float) -> IL2A:
    method = build_method("il2a", options)
    assert isinstance(method, IL2A)
    method.prototypes = prototypes_of()
    method.before_task(ctx)
    assert method.pair_head is not None
    method.pair_head = nn.Parameter(method.pair_head.double())
    return method


def literal_semantic_logits(weight: Tensor, prototypes: GaussianPrototypes, c: int, ratio: float) -> Tensor:
    covariance = prototypes.covariance(c)
    logits = []
    for row in weight:
        difference = row - weight[c]
        spread = sum(difference[i] * covariance[i, j] * difference[j] for i in range(DIM) for j in range(DIM))
        logits.append(row @ prototypes.means[c] + ratio / 2 * spread)
    return torch.stack(logits)


@pytest.mark.parametrize("ratio", [0.0, 2.5])
def test_semantic_augmentation_is_the_quadratic_form_of_each_class(ratio: float) -> None:
    weight, prototypes, columns = normal(5, DIM, seed=8), prototypes_of(), torch.tensor([2, 0, 2, 1])
    expected = torch.stack([literal_semantic_logits(weight, prototypes, c, ratio) for c in columns.tolist()])
    assert_equal(semantic_logits(weight, prototypes, columns, ratio), expected)


def test_semantic_augmentation_teaches_the_heads_through_their_difference_too() -> None:
    weight, prototypes = normal(5, DIM, seed=8).requires_grad_(), prototypes_of()
    away = normal(5, seed=9)  # any direction in the space of outputs
    (gradient,) = torch.autograd.grad(semantic_logits(weight, prototypes, torch.tensor([1]), 2.5)[0] @ away, weight)
    (expected,) = torch.autograd.grad(literal_semantic_logits(weight, prototypes, 1, 2.5) @ away, weight)
    assert_equal(gradient, expected)


def test_semantic_augmentation_with_ratio_one_is_the_mean_over_all_draws() -> None:
    """log E exp((w_j − w_c)ᵀ z) over z ~ N(μ_c, Σ_c)."""
    weight, prototypes = normal(3, DIM, seed=8) / 4, prototypes_of()
    logits = semantic_logits(weight, prototypes, torch.tensor([1]), 1.0)[0]
    drawn = prototypes.sample_classes(torch.full((200_000,), 1), rng_of())
    expected = (drawn @ (weight - weight[1]).T).exp().mean(0).log()
    torch.testing.assert_close(logits - logits[1], expected, rtol=0, atol=5e-3)


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss_of_il2a(temperature: float) -> None:
    ctx = context()
    method = il2a_of(ctx, temperature=temperature, lambda_fd=2.0, lambda_pr=3.0, ratio=0.5)
    batch = method.augment(ctx, batch_of())
    ctx.rng = rng_of()
    terms = method.loss(ctx, batch)

    assert method.pair_head is not None and len(batch.x) > SIZE
    rows = torch.stack([*ctx.model.heads[0], *ctx.model.heads[1], *method.pair_head])
    losses = [
        literal_ce(rows @ ctx.model.features(x[None])[0], int(y), temperature)
        for x, y in zip(batch.x, batch.y, strict=True)
    ]
    assert_equal(terms["ce"], mean(losses))
    assert_equal(terms["fd"], 2 * literal_frobenius(ctx.model, ctx.old, list(batch.x)))

    columns = torch.randint(KNOWN, (SIZE,), generator=rng_of()).tolist()  # as many as images before they are mixed
    seen = rows[: KNOWN + NEW]
    losses = [literal_ce(literal_semantic_logits(seen, method.prototypes, c, 0.5), c, temperature) for c in columns]
    assert_equal(terms["prototypes"], 3 * mean(losses))


def test_class_augmentation_mixes_images_of_two_classes_into_the_class_of_the_pair() -> None:
    ctx, batch = context(), batch_of()
    mixed = il2a_of(ctx).augment(ctx, batch)
    assert torch.equal(mixed.x[:SIZE], batch.x) and torch.equal(mixed.y[:SIZE], batch.y)
    pairs = list(combinations(range(KNOWN, KNOWN + NEW), 2))
    assert SIZE < len(mixed.x) <= 5 * SIZE
    for x, y in zip(mixed.x[SIZE:], mixed.y[SIZE:].tolist(), strict=True):
        a, b = pairs[y - KNOWN - NEW]
        fits = []
        for first in batch.x[batch.y == a]:
            for second in batch.x[batch.y == b]:
                weight = ((x - second) * (first - second)).sum() / (first - second).square().sum()
                exact = torch.allclose(x, weight * first + (1 - weight) * second)
                fits.append(exact and 0.4 - 1e-6 <= weight <= 0.6 + 1e-6)
        assert any(fits)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_every_unordered_pair_has_its_number(classes: int) -> None:
    pairs = torch.tensor(list(combinations(range(classes), 2)))
    expected = torch.arange(classes * (classes - 1) // 2)
    assert torch.equal(pair_index(pairs[:, 0], pairs[:, 1], classes), expected)
    assert torch.equal(pair_index(pairs[:, 1], pairs[:, 0], classes), expected)


@pytest.mark.parametrize("beta", [1, 20, 200])
def test_mixing_weights_are_beta_distributed_within_their_bounds(beta: int) -> None:
    weights = mixing_weights(20_000, beta, rng_of()).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        raw = torch.distributions.Beta(float(beta), float(beta)).sample((20_000,)).double()
    raw[(raw < 0.4) | (raw > 0.6)] = 0.5
    assert weights.min() >= 0.4 and weights.max() <= 0.6
    assert weights.mean() == pytest.approx(0.5, abs=2e-3)
    assert weights.std() == pytest.approx(float(raw.std()), rel=0.05)


@torch.no_grad()
def test_without_mixes_new_images_compete_with_the_classes_seen_alone() -> None:
    ctx = context()
    method = il2a_of(ctx, mixes=0, temperature=1.0)
    batch = method.augment(ctx, batch_of())
    losses = [literal_ce(ctx.model(x[None])[0], int(y), 1.0) for x, y in zip(batch_of().x, batch_of().y, strict=True)]
    assert_equal(method.loss(ctx, batch)["ce"], mean(losses))


def test_a_task_of_one_class_has_nothing_to_mix() -> None:
    ctx, batch = context(classes=1), batch_of(classes=1)
    mixed = il2a_of(ctx).augment(ctx, batch)
    assert torch.equal(mixed.x, batch.x) and torch.equal(mixed.y, batch.y)


@pytest.mark.parametrize(("mixes", "rows"), [(4, 10), (0, 0)])
def test_il2a_has_an_output_for_every_pair_of_new_classes(mixes: int, rows: int) -> None:
    """Five new classes have ten unordered pairs; without mixes no pair is ever shown."""
    method = build_method("il2a", {"mixes": mixes})
    assert isinstance(method, IL2A)
    model = SimpleNamespace(feature_dim=6)
    ctx: Any = PartialContext(
        model=model, first=False, classes=5, rng=torch.Generator(), device=torch.device("cpu"), known=2
    )
    method.before_task(ctx)
    assert method.pair_head is not None and method.pair_head.shape == (rows, 6)


def test_il2a_keeps_the_covariance_of_each_class_at_its_column() -> None:
    classifier = make_learner("il2a").partial_fit(*make_blobs(["cat", "dog"]))
    first = classifier._method.state()["covariance_factors"].clone()
    state = classifier.partial_fit(*make_blobs(["ant"]))._method.state()
    assert torch.equal(state["covariance_factors"][: len(first)], first) and state["factor_rows"].tolist() == [5, 5, 5]


# SSRE


def literal_similarity(features: Tensor, means: Tensor) -> float:
    return max(
        sum(float(a * b) for a, b in zip(features, p, strict=True))
        / math.sqrt(sum(float(a) ** 2 for a in features))
        / math.sqrt(sum(float(b) ** 2 for b in p))
        for p in means
    )


def test_prototype_similarity_is_the_greatest_cosine() -> None:
    features, means = normal(5, DIM), normal(3, DIM, seed=1)
    assert_equal(prototype_similarity(features, means), [literal_similarity(f, means) for f in features])


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss_of_ssre(temperature: float) -> None:
    ctx, batch = context(), batch_of()
    method = build_method("ssre", {"temperature": temperature, "lambda_fd": 2.0, "lambda_pr": 3.0})
    assert isinstance(method, SSRE)
    method.means = prototypes_of().means
    terms = method.loss(ctx, batch)

    rows = torch.stack([*ctx.model.heads[0], *ctx.model.heads[1]])
    ce, fd = [], 0.0
    for x, y in zip(batch.x, batch.y, strict=True):
        new, old = ctx.model.features(x[None])[0], ctx.old.features(x[None])[0]
        similarity = literal_similarity(new, method.means)
        ce.append((1 - similarity) * literal_ce(rows @ new, int(y), temperature))
        fd += similarity * math.sqrt(sum(float(entry) ** 2 for entry in new - old))
    assert_equal(terms["ce"], mean(ce))
    assert_equal(terms["fd"], 2 * fd)
    columns = torch.randint(KNOWN, (SIZE,), generator=rng_of()).tolist()
    losses = [literal_ce(rows @ method.means[c], c, temperature) for c in columns]
    assert_equal(terms["prototypes"], 3 * mean(losses))


def test_ssre_learns_through_its_selection_too() -> None:
    ctx, batch = context(), batch_of()
    method = build_method("ssre", {})
    assert isinstance(method, SSRE)
    method.means = prototypes_of().means
    backbone = list(ctx.model.backbone.parameters())
    terms = method.loss(ctx, batch)
    gradients = torch.autograd.grad(terms["ce"] + terms["fd"], backbone)

    features, old = ctx.model.features(batch.x), ctx.old.features(batch.x).detach()
    cosines = [nn.functional.cosine_similarity(features, p[None], dim=1) for p in method.means]
    similarity = torch.stack(cosines).max(0).values
    chosen = features @ ctx.model.weight.T
    likelihood = chosen.softmax(1)[torch.arange(SIZE), batch.y]
    literal = -((1 - similarity) * likelihood.log()).mean() + 10 * (similarity * (features - old).norm(dim=1)).sum()
    for gradient, expected in zip(gradients, torch.autograd.grad(literal, backbone), strict=True):
        assert_equal(gradient, expected)


# Settings


@torch.no_grad()
@pytest.mark.parametrize("weight", ["lambda_fd", "lambda_pr"])
@pytest.mark.parametrize("name", ["pass", "il2a", "ssre"])
def test_weight_zero_switches_one_term_off_and_no_other(name: str, weight: str) -> None:
    found = []
    for options in ({}, {weight: 0.0}):
        ctx = context()
        if name == "ssre":
            method: Any = build_method(name, options)
            method.means = prototypes_of().means
        else:
            method = (pass_of if name == "pass" else il2a_of)(ctx, **options)
        batch = method.augment(ctx, batch_of())
        found.append({term: float(value) for term, value in method.loss(ctx, batch).items()})
    full, without = found
    off = {"lambda_fd": "fd", "lambda_pr": "prototypes"}[weight]
    assert full[off] > 0
    assert without == {**full, off: 0.0}


@pytest.mark.parametrize("option", ["lambda_fd", "lambda_pr", "temperature"])
@pytest.mark.parametrize("name", ["pass", "il2a", "ssre"])
def test_negative_settings_are_refused(name: str, option: str) -> None:
    with pytest.raises(UserError, match=option):
        build_method(name, {option: -1.0})


@pytest.mark.parametrize(
    ("name", "lr", "weight_decay", "epochs", "decays"),
    [("pass", 1e-3, 2e-4, 100, [45, 90]), ("il2a", 1e-3, 2e-4, 100, [45, 90]), ("ssre", 2e-4, 5e-4, 60, [45])],
)
def test_the_recipes(name: str, lr: float, weight_decay: float, epochs: int, decays: list[int]) -> None:
    training = resolve("cifar100-cold10", name, 0).classifier.incremental
    assert (training.optimizer, training.lr, training.weight_decay) == ("adam", lr, weight_decay)
    assert training.epochs == epochs and training.backbone_lr is None
    factors = [training.lr_factor(epoch) for epoch in range(epochs)]
    assert [epoch for epoch in range(1, epochs) if factors[epoch] != factors[epoch - 1]] == decays
    assert METHODS[name].shares_first_task
