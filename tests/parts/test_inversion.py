"""Deep inversion: each term against a literal version in float64, BatchNorm that is listened to, a real inversion."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import TinyNet, make_blobs, make_learner, normal, rng_of
from efcil.backbones.resnet18 import ConvNorm, ResNet18, he_initialise
from efcil.bench.footprint import PAPER, footprint
from efcil.engine.context import Batch
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.methods import METHODS
from efcil.parts.inversion import (
    EPSILON,
    Generator,
    Inversion,
    InversionOptions,
    batchnorm_divergence,
    batchnorm_divergences,
    certainty,
    imbalance,
    inversion_terms,
    map_sizes,
    replay,
    roughness,
)

CPU = torch.device("cpu")
SMALL = InversionOptions(iterations=3, batch_size=4, latent=5, width=6)


def assert_equal(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def resnet_model(classes: int = 3) -> IncrementalModel:
    """A small network whose BatchNorm remembers something."""
    rng = rng_of(1)
    backbone = ResNet18(width=4, stem_stride=2)
    he_initialise(backbone, rng)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in ((module.running_mean, -1, 1), (module.running_var, 0.5, 2)):
                assert tensor is not None
                tensor.uniform_(low, high, generator=rng)
    model = IncrementalModel(backbone)
    model.grow(classes, rng)
    return model.eval()


# The terms


def test_certainty_is_the_cross_entropy_of_the_class_that_is_seen() -> None:
    logits, total = 9 * normal(6, 4), 0.0
    for z in logits.tolist():
        total += -max(z) / 7 + math.log(sum(math.exp(value / 7) for value in z))
    assert_equal(certainty(logits, 7.0), total / 6)


def test_imbalance_is_one_minus_the_scaled_entropy_of_the_mean_softmax() -> None:
    logits = normal(6, 4)
    mean = [0.0] * 4
    for z in logits.tolist():
        for c in range(4):
            mean[c] += math.exp(z[c]) / sum(math.exp(value) for value in z) / 6
    assert_equal(imbalance(logits), 1 + sum(p * math.log(p) for p in mean) / math.log(4))


def test_imbalance_is_zero_for_equal_classes_one_for_a_single_one_and_has_a_gradient() -> None:
    assert_equal(imbalance(1e3 * torch.eye(4, dtype=torch.float64)), 0.0)
    logits = torch.zeros(5, 3)
    logits[:, 1] = 1e4  # in float32 the others are exactly 0
    logits.requires_grad_()
    value = imbalance(logits)
    value.backward()
    assert value.item() == pytest.approx(1) and logits.grad is not None and torch.isfinite(logits.grad).all()
    assert imbalance(normal(5, 1)) == 0  # a network of one class


def test_roughness_is_the_distance_to_the_blurred_image() -> None:
    x = normal(2, 3, 5, 6)
    kernel = {(u, v): math.exp(-((u / 2) ** 2) - (v / 2) ** 2) for u in range(-2, 3) for v in range(-2, 3)}
    weight = sum(kernel.values())

    def mirrored(index: int, size: int) -> int:
        index = abs(index)
        return index if index < size else 2 * (size - 1) - index

    total = 0.0
    for image in x.tolist():
        for channel in image:
            for i in range(5):
                for j in range(6):
                    blurred = sum(k * channel[mirrored(i + u, 5)][mirrored(j + v, 6)] for (u, v), k in kernel.items())
                    total += (channel[i][j] - blurred / weight) ** 2
    assert_equal(roughness(x), total / x.numel())
    assert roughness(torch.ones(1, 3, 8, 8)).item() == pytest.approx(0, abs=1e-12)


def test_batchnorm_divergence_is_the_kl_divergence_of_two_gaussians_per_channel() -> None:
    norm = nn.BatchNorm2d(3).double()
    norm.running_mean, norm.running_var = normal(3, seed=1), normal(3, seed=2).exp()
    x = 2 * normal(4, 3, 2, 5) + 1
    total = 0.0
    for c in range(3):
        values = x[:, c].flatten().tolist()
        mean = sum(values) / len(values)
        sigma_hat = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) + EPSILON)
        sigma, mu = math.sqrt(norm.running_var[c] + EPSILON), norm.running_mean[c]
        total += math.log(sigma_hat / sigma) - 0.5 * (1 - (sigma**2 + (mu - mean) ** 2) / sigma_hat**2)
    assert_equal(batchnorm_divergence(x, norm), total / 3)


def test_batchnorm_divergence_is_zero_where_the_statistics_agree_and_finite_without_variance() -> None:
    norm, x = nn.BatchNorm2d(3).double(), normal(4, 3, 2, 5)
    norm.running_var, norm.running_mean = torch.var_mean(x, (0, 2, 3), correction=0)
    assert_equal(batchnorm_divergence(x, norm), 0.0)
    assert torch.isfinite(batchnorm_divergence(torch.ones_like(x), norm))


def test_the_terms_and_their_weights() -> None:
    options = InversionOptions(temperature=3.0, lambda_batchnorm=7.0, lambda_smoothness=0.5)
    logits, x, divergences = normal(6, 4), normal(6, 3, 8, 8), list(normal(3, seed=1))
    terms = inversion_terms(options, logits, divergences, x)
    assert_equal(terms["certainty"], certainty(logits, 3.0))
    assert_equal(terms["imbalance"], imbalance(logits))
    assert_equal(terms["batchnorm"], 7 * sum(float(d) for d in divergences) / 3)
    assert_equal(terms["roughness"], 0.5 * roughness(x))
    assert inversion_terms(options, logits, [], x)["batchnorm"] == 0  # a backbone without BatchNorm


# Listening to BatchNorm


@torch.no_grad()
def test_every_batchnorm_is_heard_although_it_is_usually_folded() -> None:
    model, x = resnet_model(), normal(5, 3, 16, 16).float()
    inputs: list[Tensor] = []
    folded = model(x)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    handles = [norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for norm in norms]
    model(x)
    for handle in handles:
        handle.remove()
    with batchnorm_divergences(model) as divergences:
        heard = model(x)
    assert len(divergences) == len(inputs) == len(norms) == 20
    torch.testing.assert_close(heard, folded, rtol=1e-4, atol=1e-5)
    assert torch.equal(model(x), folded)  # nobody listens any more

    stem = model.backbone.stem
    assert isinstance(stem, ConvNorm)
    assert torch.equal(divergences[0], batchnorm_divergence(stem.conv(x), stem.norm))


# The generator


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(32, [8, 16, 32]), (64, [8, 16, 32, 64]), (224, [7, 14, 28, 56, 112, 224]), (8, [4, 8]), (30, [8, 15, 30])],
)
def test_maps_grow_from_at_most_eight_pixels(size: int, sizes: list[int]) -> None:
    assert map_sizes(size) == sizes


@pytest.mark.parametrize(
    ("size", "width", "millions"), [(32, 128, 8.4), (64, 128, 8.6), (224, 64, 3.3)], ids=["CIFAR", "Tiny", "ImageNet"]
)
def test_the_generator_has_the_published_size(size: int, width: int, millions: float) -> None:
    with torch.device("meta"):
        generator = Generator(size, 1000, width, torch.default_generator)
    assert round(sum(p.numel() for p in generator.parameters()) / 1e6, 1) == millions


def test_generated_images_look_normalised() -> None:
    for size in (4, 9, 32):
        images = Generator(size, 7, 6, rng_of()).train()(normal(16, 7).float())
        assert images.shape == (16, 3, size, size)
        torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-4)
        torch.testing.assert_close(images.var((0, 2, 3), correction=0), torch.ones(3), rtol=0, atol=0.05)


@torch.no_grad()
def test_the_generator_layer_by_layer() -> None:
    generator = Generator(32, 5, 6, rng_of()).eval()
    z = normal(3, 5).float()
    x = generator.norm(generator.linear(z).reshape(3, 6, 8, 8))
    for conv, norm in zip(generator.convs, generator.norms, strict=True):
        assert norm.eps == 0.8
        x = norm(conv(x.repeat_interleave(2, 2).repeat_interleave(2, 3)))
        x = torch.where(x > 0, x, 0.2 * x)
    torch.testing.assert_close(generator(z), generator.scale(generator.colours(x).tanh()), rtol=1e-4, atol=1e-5)


def test_the_generator_depends_on_its_random_numbers_only() -> None:
    torch.manual_seed(1)
    one = Inversion(SMALL, 8, CPU, rng_of()).state()
    torch.manual_seed(2)
    same, other = (Inversion(SMALL, 8, CPU, rng_of(seed)).state() for seed in (5, 6))
    assert torch.equal(one["generator"], same["generator"])
    assert not torch.equal(one["generator"], other["generator"])


# Training it


def test_training_is_reproducible_and_leaves_the_network_alone() -> None:
    model = resnet_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = []
    for _ in range(2):
        rng = rng_of()
        inversion = Inversion(SMALL, 8, CPU, rng)
        inversion.train(model, rng)
        states.append(inversion.state())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("generator_statistics", torch.zeros(3), "3 numbers where .* belong"),
        ("generator", torch.zeros(0), "0 numbers where .* belong"),
        ("steps", torch.tensor(-5), "-5 steps"),
    ],
)
def test_a_forged_generator_is_refused(name: str, value: torch.Tensor, message: str) -> None:
    inversion = Inversion(SMALL, 16, CPU, rng_of())
    with pytest.raises(UserError, match=message):
        inversion.load_state({**inversion.state(), name: value})


@pytest.mark.parametrize("iterations", [0, 3])
def test_a_stored_generator_goes_on_as_if_never_stored(iterations: int) -> None:
    model = resnet_model()
    options = InversionOptions(iterations=iterations, batch_size=4, latent=5, width=6)
    first, second = Inversion(options, 16, CPU, rng_of()), Inversion(SMALL, 16, CPU, rng_of(9))
    first.train(model, rng_of(7))
    second.load_state(first.state())
    first.options = SMALL
    images = []
    for inversion in (first, second):
        rng = rng_of(8)
        inversion.train(model, rng)
        images.append(inversion.sample(4, rng))
    assert torch.equal(*images)
    assert first.state()["steps"] == second.state()["steps"] == iterations + 3


def test_a_network_without_batchnorm_can_be_inverted() -> None:
    model = IncrementalModel(TinyNet())
    model.grow(1, rng_of())
    inversion = Inversion(SMALL, 8, CPU, rng_of())
    inversion.train(model.eval(), rng_of())
    assert torch.isfinite(inversion.sample(3, rng_of())).all()


@pytest.mark.parametrize("option", ["iterations", "batch_size", "lr", "latent", "width", "temperature"])
def test_bad_settings_are_refused(option: str) -> None:
    with pytest.raises(UserError, match=option):
        InversionOptions(**{option: -1})  # type: ignore[arg-type]


@torch.no_grad()
def test_a_replay_is_the_batch_and_as_many_generated_images_with_the_class_the_old_network_sees() -> None:
    old, inversion = resnet_model(), Inversion(SMALL, 8, CPU, rng_of())
    batch = Batch(normal(6, 3, 8, 8).float(), torch.tensor([3, 4, 3, 4, 3, 3]))
    ctx: Any = SimpleNamespace(old=old, rng=rng_of())
    seen = replay(ctx, inversion, batch)
    generated = inversion.sample(6, rng_of())
    assert torch.equal(seen.x, torch.cat([batch.x, generated])) and seen.real == 6
    assert torch.equal(seen.y, torch.cat([batch.y, old(generated).argmax(1)]))
    torch.testing.assert_close(seen.old_features, old.features(seen.x))
    torch.testing.assert_close(seen.old_logits, old(seen.x))


# A real inversion


@pytest.mark.slow
def test_the_old_network_is_sure_of_generated_images_and_a_stranger_sees_the_same() -> None:
    """The stranger learnt the same images from another seed; it never met the generator."""
    images, labels = make_blobs(["red", "green", "blue", "cat"], 60)
    recipe = {"epochs": 12, "lr": 5e-3, "batch_size": 32, "rotation": False}
    old, stranger = (
        make_learner(width=8, stem_stride=1, first=recipe, seed=seed).partial_fit(images, labels)._model
        for seed in (0, 1)
    )
    assert old is not None and stranger is not None
    rng = rng_of()
    inversion = Inversion(InversionOptions(iterations=150, batch_size=64, latent=64, width=16), 8, CPU, rng)

    @torch.no_grad()
    def look() -> tuple[float, list[int], float]:
        x = inversion.sample(400, rng)
        logits = old(x)
        columns = logits.argmax(1)
        agreement = (stranger(x).argmax(1) == columns).double().mean().item()
        return torch.softmax(logits, dim=1).amax(1).mean().item(), columns.bincount(minlength=4).tolist(), agreement

    assert max(look()[1]) > 300  # an untrained generator makes one class
    inversion.train(old, rng)
    sure, counts, agreement = look()
    assert sure > 0.85
    assert min(counts) > 50
    assert agreement > 0.45  # chance: 0.25


def test_the_declared_footprint_is_that_of_the_generator_for_32_pixels() -> None:
    with torch.device("meta"):
        generator = Generator(32, 1000, 128, torch.default_generator)
    assert sum(parameter.numel() for parameter in generator.parameters()) == PAPER["G"]
    assert sum(buffer.numel() for buffer in generator.buffers() if buffer.is_floating_point()) == PAPER["B"]
    assert footprint(METHODS["abd"].shapes, METHODS["abd"].Options()) == (0, 101_089_860)
