"""The losses of the first task, of EFC++ (Eq. 12), EFC (Eqs. 16-17) and joint training, literally and in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conftest import PartialContext, random_model
from efcil.config import ClassifierConfig, FirstTask
from efcil.data.augment import AUGMENTATIONS
from efcil.data.images import image_set
from efcil.engine.context import Batch, Context
from efcil.engine.method import newest_cross_entropy
from efcil.engine.model import IncrementalModel
from efcil.engine.preprocessing import Preprocessing
from efcil.methods.efc import EFC
from efcil.methods.efc_plus_plus import EFCPlusPlus
from efcil.methods.finetune import FineTune
from efcil.methods.joint import Joint
from efcil.paper.prototypes import gaussian_prototypes
from efcil.parts.pr_ace import class_uniform_mix, pr_ace_loss

KNOWN, NEW, DIM = 3, 2, 4
quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


class Flat(nn.Module):
    """A backbone as small as can be: one linear layer on the pixels."""

    feature_dim = DIM

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


def model_of(*heads: int, seed: int) -> IncrementalModel:
    return random_model(Flat(), *heads, seed=seed)


def batch_of(seed: int, size: int = 6) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, 2, 2, generator=rng, dtype=torch.float64)
    return Batch(x, KNOWN + torch.randint(NEW, (size,), generator=rng))


def context() -> PartialContext:
    """What the losses look at, in the second task."""
    return PartialContext(
        model=model_of(KNOWN, NEW, seed=1),
        old=model_of(KNOWN, seed=2),
        known=KNOWN,
        classes=NEW,
        rng=torch.Generator().manual_seed(0),
    )


def cross_entropy(features: Tensor, columns: Tensor, weight: Tensor, lowest: int = 0) -> Tensor:
    """Mean of −log of the softmax among the classes from ``lowest`` on, one sample at a time."""
    losses = []
    for f, y in zip(features, columns.tolist(), strict=True):
        exponentials = [torch.exp(weight[c] @ f) for c in range(lowest, len(weight))]
        losses.append(-torch.log(exponentials[y - lowest] / sum(exponentials)))
    return sum(losses) / len(losses)


def regulariser(ctx: PartialContext, batch: Batch, efm: Tensor, lambda_efm: float, eta: float) -> Tensor:
    """Eq. 10 for the drift between the two networks, one sample at a time."""
    drifts = [ctx.model.features(x[None])[0] - ctx.old.features(x[None])[0] for x in batch.x]
    damped = lambda_efm * efm + eta * torch.eye(DIM, dtype=torch.float64)
    return sum(d @ damped @ d for d in drifts) / len(drifts)


def remember(method: EFC | EFCPlusPlus) -> None:
    """Give the method an EFM and prototypes of the old classes."""
    rng = torch.Generator().manual_seed(7)
    root = torch.randn(DIM, 2, generator=rng, dtype=torch.float64)
    features = torch.randn(8 * KNOWN, DIM, generator=rng, dtype=torch.float64)
    method.memory.efm = root @ root.T
    method.memory.prototypes = gaussian_prototypes(features, torch.arange(KNOWN).repeat(8))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("rotation", [True, False])
def test_the_first_task_is_learnt_with_three_rotations_of_each_class_as_extra_classes(
    rotation: bool, smoothing: float
) -> None:
    """Appendix D.2: one cross-entropy over 4 C outputs, the rotations of class y at C + 3 y + k − 1."""
    model, batch = model_of(NEW, seed=1), batch_of(seed=3)
    batch.y -= KNOWN
    if rotation:
        model.add_rotation_head(NEW, torch.Generator())
        model.double()
    losses = []
    for image, c in zip(batch.x, batch.y.tolist(), strict=True):
        for k in range(4 if rotation else 1):
            feature = model.features(image.rot90(k, (1, 2))[None])[0]
            outputs = [row @ feature for row in model.weight]
            if model.rotation_head is not None:
                outputs += list(model.rotation_head.weight @ feature + model.rotation_head.bias)
            exponentials = [torch.exp(output) for output in outputs]
            logs = [-torch.log(exponential / sum(exponentials)) for exponential in exponentials]
            own = logs[c if k == 0 else NEW + 3 * c + k - 1]
            losses.append((1 - smoothing) * own + smoothing * sum(logs) / len(logs))
    config = ClassifierConfig(first=FirstTask(rotation=rotation, label_smoothing=smoothing))
    ctx: Any = PartialContext(model=model, classes=NEW, config=config, rng=torch.Generator())
    (loss,) = FineTune(FineTune.Options()).first_loss(ctx, batch).values()
    torch.testing.assert_close(loss, sum(losses) / len(losses), rtol=0, atol=1e-10)


def test_joint_training_learns_all_images_among_all_classes() -> None:
    images = image_set(np.arange(4 * 12, dtype=np.uint8).reshape(4, 2, 2, 3))
    ctx: Any = PartialContext(
        **{"model": model_of(KNOWN, NEW, seed=1), "known": KNOWN, "classes": NEW},
        **{"images": images, "columns": torch.tensor([3, 4, 3, 4]), "past": (images, torch.tensor([0, 1, 2, 0]))},
        config=ClassifierConfig(first=FirstTask(rotation=False)),
    )
    joint = Joint(Joint.Options())
    joint.before_task(ctx)
    assert len(ctx.images) == 8 and ctx.columns.tolist() == [0, 1, 2, 0, 3, 4, 3, 4]
    assert ctx.classes == KNOWN + NEW
    batch = Batch(batch_of(seed=3).x, torch.tensor([0, 4, 2, 1, 3, 3]))
    (loss,) = joint.loss(ctx, batch).values()
    expected = cross_entropy(ctx.model.features(batch.x), batch.y, ctx.model.weight)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)


def test_newest_cross_entropy_is_restricted_to_the_new_classes() -> None:
    """Eq. 12, right term."""
    ctx, batch = context(), batch_of(seed=3)
    features = ctx.model.features(batch.x)
    expected = cross_entropy(features, batch.y, ctx.model.weight, lowest=KNOWN)
    torch.testing.assert_close(newest_cross_entropy(ctx, features, batch.y), expected, rtol=0, atol=1e-10)


def test_efc_plus_plus_trains_with_efm_and_newest_cross_entropy() -> None:
    """Eq. 12."""
    ctx, batch, method = context(), batch_of(seed=3), EFCPlusPlus(EFCPlusPlus.Options(lambda_efm=7.0, eta=0.3))
    remember(method)
    ce = cross_entropy(ctx.model.features(batch.x), batch.y, ctx.model.weight, lowest=KNOWN)
    expected = regulariser(ctx, batch, method.memory.efm, 7.0, 0.3) + ce
    actual = sum(method.loss(ctx, batch).values())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_training_loss_reaches_neither_old_heads_nor_the_old_network() -> None:
    """Eq. 12 trains the backbone and W_{t−1:t} only."""
    ctx, method = context(), EFCPlusPlus(EFCPlusPlus.Options())
    remember(method)
    sum(method.loss(ctx, batch_of(seed=3)).values()).backward()
    assert ctx.model.heads[0].grad is None
    assert ctx.model.heads[1].grad is not None
    assert ctx.model.backbone.layer.weight.grad is not None
    assert all(parameter.grad is None for parameter in ctx.old.parameters())


@quick
@given(seed=seeds, known=st.integers(1, 4), new=st.integers(1, 3))
def test_pr_ace_is_the_sum_of_a_restricted_and_a_full_cross_entropy(seed: int, known: int, new: int) -> None:
    """Eq. 17."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(known + new, DIM, generator=rng, dtype=torch.float64)
    features, mixed = torch.randn(2, 5, DIM, generator=rng, dtype=torch.float64)
    columns = known + torch.randint(new, (5,), generator=rng)
    mixed_columns = torch.randint(known + new, (5,), generator=rng)
    expected = cross_entropy(features, columns, weight, lowest=known) + cross_entropy(mixed, mixed_columns, weight)
    actual = sum(pr_ace_loss(features, columns, mixed, mixed_columns, weight, known).values())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_efc_trains_with_efm_and_pr_ace() -> None:
    """Eqs. 16-17, with the same prototypes and second batch drawn again."""
    ctx, batch, method = context(), batch_of(seed=3), EFC(EFC.Options(lambda_efm=7.0, eta=0.3, prototype_batch=10))
    remember(method)
    mix = class_uniform_mix(KNOWN + NEW, 10, torch.Generator().manual_seed(5))
    old_columns, new_columns = mix[mix < KNOWN], mix[mix >= KNOWN]
    second = batch_of(seed=9, size=len(new_columns)).x
    batch.extra = Batch(second, mix)
    actual = sum(method.loss(ctx, batch).values())
    prototypes = method.memory.prototypes.sample_classes(old_columns, torch.Generator().manual_seed(0))
    mixed = torch.cat([prototypes, ctx.model.features(second)])
    ce = cross_entropy(ctx.model.features(batch.x), batch.y, ctx.model.weight, lowest=KNOWN)
    rehearsal = cross_entropy(mixed, torch.cat([old_columns, new_columns]), ctx.model.weight)
    expected = regulariser(ctx, batch, method.memory.efm, 7.0, 0.3) + ce + rehearsal
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)
    trained = list(ctx.model.parameters())
    gradients = zip(torch.autograd.grad(actual, trained), torch.autograd.grad(expected, trained), strict=True)
    for actual_gradient, expected_gradient in gradients:
        torch.testing.assert_close(actual_gradient, expected_gradient, rtol=0, atol=1e-9)


def test_pr_ace_trains_old_heads_too() -> None:
    """Eq. 17, right term, over W_t."""
    ctx, method, batch = context(), EFC(EFC.Options()), batch_of(seed=3)
    remember(method)
    batch.extra = Batch(batch_of(seed=9, size=NEW).x, torch.arange(KNOWN + NEW))
    sum(method.loss(ctx, batch).values()).backward()
    assert all(head.grad is not None and head.grad.abs().sum() > 0 for head in ctx.model.heads)


@quick
@given(seed=seeds, classes=st.integers(1, 60), size=st.integers(1, 64))
def test_mix_of_prototypes_and_images_has_the_asked_size(seed: int, classes: int, size: int) -> None:
    """Eq. 17, right term: no class comes a second time before every other came once."""
    times = torch.bincount(class_uniform_mix(classes, size, torch.Generator().manual_seed(seed)), minlength=classes)
    assert times.sum() == size
    assert len(times) == classes
    assert times.max() - times.min() <= 1


@pytest.mark.parametrize(("classes", "size"), [(8, 64), (100, 64), (20, 7)])
def test_mix_draws_all_classes_equally_often(classes: int, size: int) -> None:
    """Eq. 17, right term: uniform over old and new classes, so k of m classes give k/m of the batch."""
    rng = torch.Generator().manual_seed(0)
    rounds = 2000
    times = torch.zeros(classes)
    for _ in range(rounds):
        times += torch.bincount(class_uniform_mix(classes, size, rng), minlength=classes)
    expected = rounds * size / classes
    assert (times - expected).abs().max() <= 5 * math.sqrt(expected)


def test_images_are_drawn_from_the_asked_classes_whatever_their_sizes() -> None:
    """Eq. 17: X̂ is uniform over classes, so a class of one image comes as often as one of many."""
    images = image_set(torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 3, 2, 2))
    ctx = Context(
        config=ClassifierConfig(first=FirstTask(rotation=False)),
        task=1,
        model=model_of(KNOWN, NEW, seed=1),
        old=None,
        images=images,
        columns=torch.tensor([KNOWN] * 5 + [KNOWN + 1]),
        classes=NEW,
        preprocessing=Preprocessing(2, 2, (0.0,) * 3, (1 / 255,) * 3),  # pixels come out as they went in
        augmentation=AUGMENTATIONS["none"],
        device=torch.device("cpu"),
    )
    asked = torch.tensor([KNOWN + 1, KNOWN] * 50)
    drawn = ctx.draw(asked)
    assert (drawn[asked == KNOWN + 1] == 5).all()  # the only image of its class
    assert set(drawn[asked == KNOWN].tolist()) == {0, 1, 2, 3, 4}
    assert len(ctx.draw(asked[:0])) == 0
    plan = EFC(EFC.Options(prototype_batch=10)).plan(ctx, 30)
    assert len(plan) == 30
    for (view, mix), x in zip(plan, ctx.prepared(images, [view for view, _ in plan]), strict=True):
        assert len(mix) == 10
        assert (
            ctx.columns[view.rows].tolist() == mix[mix >= KNOWN].tolist()
        )  # one image for each new class of the mix, in its order
        assert x[:, 0, 0, 0].round().tolist() == view.rows.tolist()
    assert {int(row) for view, _ in plan for row in view.rows} == set(range(6))
