"""ABD: its loss against a literal version in float64, what trains what, and the generator that lives on."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from conftest import OneLayer, make_blobs, make_learner, random_model, rng_of
from efcil.bench.scenarios import resolve
from efcil.engine.context import Batch
from efcil.engine.method import Terms
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.methods.abd import ABD, image_weights, weighted_cross_entropy
from efcil.parts.inversion import Inversion, InversionOptions

KNOWN, NEW, DIM, SIZE = 3, 2, 4, 5
QUICK = {"iterations": 2, "batch_size": 4, "latent": 5, "width": 4}


def model_of(*heads: int, seed: int) -> IncrementalModel:
    return random_model(OneLayer(48, DIM), *heads, seed=seed)


def context() -> Any:
    return SimpleNamespace(
        model=model_of(KNOWN, NEW, seed=1), old=model_of(KNOWN, seed=2), known=KNOWN, classes=NEW, rng=rng_of()
    )


def abd_of(**options: float) -> ABD:
    method = build_method("abd", options)
    assert isinstance(method, ABD)
    method.inversion = Inversion(InversionOptions(**QUICK), 4, torch.device("cpu"), rng_of(3))  # type: ignore[arg-type]
    return method


def batch_of() -> Batch:
    x = torch.randn(SIZE, 3, 4, 4, generator=rng_of(4), dtype=torch.float64)
    return Batch(x, KNOWN + torch.arange(SIZE) % NEW)


def literal_ce(outputs: list[float], label: int) -> float:
    return -outputs[label] + math.log(sum(math.exp(z) for z in outputs))


@torch.no_grad()
def test_the_loss_of_abd() -> None:
    ctx, batch, method = context(), batch_of(), abd_of(mu=0.7)
    assert method.inversion is not None
    terms = method.loss(ctx, batch)
    generated = method.inversion.sample(SIZE, rng_of()).double()
    images = [(x[None], int(y)) for x, y in zip(batch.x, batch.y, strict=True)]
    images += [(x[None], int(ctx.old(x[None]).argmax())) for x in generated]

    ratio = KNOWN / (KNOWN + NEW)
    local = heads = distillation = 0.0
    for x, y in images:
        weight = ratio if y < KNOWN else 1 - ratio
        features = ctx.model.features(x)[0]
        outputs = [float((row * features).sum()) for head in ctx.model.heads for row in head]
        if y >= KNOWN:
            local += weight * literal_ce(outputs[KNOWN:], y - KNOWN) / SIZE
        heads += weight * literal_ce(outputs, y) / (2 * SIZE)
        for row in ctx.old.heads[0]:  # W_old f(x) − W_old f_old(x)
            distillation += float((row * features).sum() - (row * ctx.old.features(x)[0]).sum()) ** 2 / KNOWN
    expected = {"ce": local, "heads": heads, "kd": 0.7 * distillation / (2 * SIZE)}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-9)


def gradients(ctx: Any, terms: Terms, name: str) -> list[bool]:
    """Whether a term reaches backbone, old head and new head."""
    parameters = [ctx.model.backbone.layer.weight, *ctx.model.heads]
    found = torch.autograd.grad(terms[name], parameters, retain_graph=True, allow_unused=True)
    return [gradient is not None and bool(gradient.any()) for gradient in found]


def test_what_each_term_trains() -> None:
    ctx = context()
    terms = abd_of().loss(ctx, batch_of())
    assert gradients(ctx, terms, "ce") == [True, False, True]
    assert gradients(ctx, terms, "heads") == [False, True, True]
    assert gradients(ctx, terms, "kd") == [True, False, False]


def test_images_weigh_as_the_share_of_old_or_new_classes() -> None:
    weights = image_weights(torch.tensor([0, 7, 8, 9]), known=8, classes=2)
    torch.testing.assert_close(weights, torch.tensor([0.8, 0.8, 0.2, 0.2], dtype=torch.float64))
    many = image_weights(torch.arange(900), known=850, classes=50)  # more classes than images in two batches
    assert many.shape == (900,)


def test_weighted_cross_entropy_is_not_divided_by_the_weights() -> None:
    logits, columns = torch.randn(4, 3, generator=rng_of()), torch.tensor([0, 2, 1, 0])
    plain = weighted_cross_entropy(logits, columns, torch.ones(4))
    torch.testing.assert_close(plain, nn.functional.cross_entropy(logits, columns))
    torch.testing.assert_close(weighted_cross_entropy(logits, columns, torch.full((4,), 0.3)), 0.3 * plain)


def test_the_generator_and_its_optimiser_go_on_from_task_to_task() -> None:
    classifier = make_learner("abd", options={"inversion": QUICK}).partial_fit(*make_blobs(["cat", "dog"]))
    assert classifier._method.state() == {}
    steps, generators = [], []
    for name in ("ant", "bee", "cow"):
        state = classifier.partial_fit(*make_blobs([name]))._method.state()
        steps.append(int(state["steps"]))
        generators.append(state["generator"])
    assert steps == [2, 4, 6]
    for before, after in pairwise(generators):
        assert 0 < (after - before).abs().max() < 0.01  # two steps of Adam with 1e-3 do not come from a new start


def test_settings() -> None:
    training = resolve("cifar100-cold10", "abd", 0).classifier.incremental
    assert (training.optimizer, training.lr, training.momentum, training.weight_decay) == ("sgd", 0.1, 0.9, 1e-4)
    assert (training.epochs, training.batch_size, training.backbone_lr) == (100, 128, None)
    factors = [training.lr_factor(epoch) for epoch in range(100)]
    assert [epoch for epoch in range(1, 100) if factors[epoch] != factors[epoch - 1]] == [30, 60, 80, 90]
    assert METHODS["abd"].shares_first_task and not METHODS["abd"].freezes_batchnorm
    with pytest.raises(UserError, match="mu"):
        build_method("abd", {"mu": -1.0})
    with pytest.raises(UserError, match="iterations"):
        build_method("abd", {"inversion": {"iterations": -1}})
