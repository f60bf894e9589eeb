"""The model (Eqs. 1-2): growing heads, frozen and folded BatchNorm, the backbone, and self-rotation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.backbones import build_backbone
from efcil.backbones.resnet9 import ResNet9
from efcil.backbones.resnet18 import ConvNorm, ResNet18, he_initialise
from efcil.engine.model import IncrementalModel
from efcil.engine.rotation import rotated, turns_drawn
from efcil.errors import UserError

quick = settings(deadline=None, max_examples=25)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_model(*heads: int) -> IncrementalModel:
    model = IncrementalModel(build_backbone("resnet18", 4, "small", 1, 16, generator()))
    for classes in heads:
        model.grow(classes, generator(len(model.heads)))
    return model


def images(count: int = 4, size: int = 16) -> Tensor:
    return torch.randn(count, 3, size, size, generator=generator(9))


def norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def trained_pair(kernel: int, stride: int) -> ConvNorm:
    """A convolution and a norm in float64 with statistics and affine parameters of a trained one."""
    pair = ConvNorm(3, 5, kernel, stride).double()
    with torch.no_grad():
        for tensor in (pair.norm.weight, pair.norm.bias, pair.norm.running_mean):
            tensor.copy_(torch.randn(5, generator=generator(1), dtype=torch.float64))
        pair.norm.running_var.copy_(torch.rand(5, generator=generator(2), dtype=torch.float64) + 0.1)
    return pair.eval()


# Heads


def test_forward_is_the_stacked_heads_on_the_features() -> None:
    """Eqs. 1-2: M_t(x) = softmax(W_t f(x)), the softmax left to the loss."""
    model = small_model(2, 3).eval()
    features = model.features(images())
    expected = torch.cat([features @ head.T for head in model.heads], dim=1)
    torch.testing.assert_close(model(images()), expected)
    assert expected.shape == (4, 5)


@quick
@given(heads=st.lists(st.integers(1, 6), min_size=1, max_size=4), new=st.integers(1, 6))
def test_growing_keeps_the_old_rows_and_appends_new_ones(heads: list[int], new: int) -> None:
    """W_t = [W_{t−1}, W_{t−1:t}]."""
    model = small_model(*heads)
    before = model.weight.detach().clone()
    model.grow(new, generator(5))
    assert model.weight.shape == (sum(heads) + new, model.feature_dim)
    assert torch.equal(model.weight[: sum(heads)], before)
    assert torch.equal(model.weight[sum(heads) :], model.newest)
    assert model.newest.abs().max() <= model.feature_dim**-0.5


def test_a_trained_weight_goes_back_into_its_heads() -> None:
    model = small_model(2, 3)
    weight = torch.randn(5, model.feature_dim, generator=generator(3))
    model.set_weight(weight)
    assert torch.equal(model.weight, weight)
    assert torch.equal(model.heads[0], weight[:2])
    assert torch.equal(model.heads[1], weight[2:])


def test_gradient_of_the_newest_rows_leaves_old_heads_alone() -> None:
    model = small_model(2, 3).eval()
    (model.features(images()) @ model.newest.T).sum().backward()
    assert model.heads[0].grad is None
    assert model.heads[1].grad is not None


# BatchNorm


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_folded_norm_has_the_output_and_gradients_of_the_unfolded(kernel: int, stride: int) -> None:
    pair = trained_pair(kernel, stride)
    x = torch.randn(2, 3, 9, 9, generator=generator(4), dtype=torch.float64, requires_grad=True)
    wanted = (pair.conv.weight, pair.norm.weight, pair.norm.bias, x)
    folded, literal = pair(x), pair.norm(F.conv2d(x, pair.conv.weight, None, stride, kernel // 2))
    torch.testing.assert_close(folded, literal, rtol=0, atol=1e-10)
    direction = torch.randn(folded.shape, generator=generator(5), dtype=torch.float64)
    for actual, expected in zip(
        torch.autograd.grad(folded, wanted, direction), torch.autograd.grad(literal, wanted, direction), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_training_norm_uses_the_statistics_of_the_batch() -> None:
    pair = trained_pair(3, 1).train()
    before = pair.norm.running_mean.clone()
    out = pair(torch.randn(8, 3, 9, 9, generator=generator(4), dtype=torch.float64))
    torch.testing.assert_close(out.mean((0, 2, 3)), pair.norm.bias.detach(), rtol=0, atol=1e-8)
    assert not torch.equal(pair.norm.running_mean, before)


def test_one_value_per_channel_can_be_trained_on() -> None:
    pair = trained_pair(3, 1)
    x = torch.randn(1, 3, 1, 1, dtype=torch.float64, generator=generator(4))
    expected = pair(x)
    torch.testing.assert_close(pair.train()(x), expected)


def test_frozen_batchnorm_does_not_change_while_the_backbone_learns() -> None:
    model = small_model(3)
    model.train()(images())  # gives the norms statistics of their own
    model.freeze_batchnorm()
    model.train()
    before = [tensor.clone() for norm in norms(model) for tensor in norm.state_dict().values()]
    convolution = model.backbone.stem.conv.weight.detach().clone()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=0.01, weight_decay=0.1)
    F.cross_entropy(model(images()), torch.tensor([0, 1, 2, 0])).backward()
    optimizer.step()
    after = [tensor for norm in norms(model) for tensor in norm.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert not torch.equal(model.backbone.stem.conv.weight, convolution)


def test_frozen_batchnorm_stays_in_evaluation_mode_when_training() -> None:
    model = small_model(3)
    model.freeze_batchnorm()
    model.eval().train()
    assert model.training
    assert not any(norm.training for norm in norms(model))


# Backbone


@quick
@given(
    width=st.integers(1, 4),
    stem=st.sampled_from(["small", "large"]),
    stem_stride=st.integers(1, 2),
    size=st.sampled_from([8, 15, 32]),
    count=st.integers(1, 2),
)
def test_features_are_never_negative_and_as_wide_as_said(
    width: int, stem: str, stem_stride: int, size: int, count: int
) -> None:
    backbone = ResNet18(width, stem, stem_stride)
    he_initialise(backbone, generator())
    features = backbone.eval()(images(count, size))
    assert backbone.feature_dim == 8 * width
    assert features.shape == (count, 8 * width)
    assert (features >= 0).all()


@pytest.mark.parametrize(
    ("stem", "stem_stride", "side"),
    [("small", 1, 32), ("small", 2, 16), ("large", 1, 8)],
)
def test_stem_reduces_the_image_as_said(stem: str, stem_stride: int, side: int) -> None:
    backbone = ResNet18(2, stem, stem_stride).eval()
    assert backbone.pool(backbone.stem(images(1, 32))).shape == (1, 2, side, side)


@pytest.mark.parametrize(("size", "kernel"), [(32, 3), (64, 3), (65, 7), (224, 7)])
def test_automatic_stem_follows_the_image_size(size: int, kernel: int) -> None:
    backbone = build_backbone("resnet18", 2, "auto", 1, size, generator())
    assert backbone.stem.conv.kernel_size == (kernel, kernel)


def test_standard_width_is_resnet18() -> None:
    """11.2 million weights without a classifier, 512 features, as in the original network with a 3×3 stem."""
    backbone = ResNet18()
    assert backbone.feature_dim == 512
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 11_168_832


@quick
@given(width=st.integers(2, 6), size=st.sampled_from([4, 8, 15, 32]), count=st.integers(1, 2), training=st.booleans())
def test_nine_layers_give_features_of_the_promised_length(width: int, size: int, count: int, training: bool) -> None:
    backbone = build_backbone("resnet9", width, "auto", 1, size, generator()).train(training)
    features = backbone(images(count, size))
    assert features.shape == (count, backbone.feature_dim) == (count, 16 * width)
    assert torch.isfinite(features).all() and (features >= 0).all()


def test_nine_layers_are_what_they_say() -> None:
    """One stage after the other, literally: convolution, maximum of four, norm, ReLU, and a second one added."""
    backbone = build_backbone("resnet9", 4, "auto", 1, 17, generator()).train()
    backbone(images(8, 17))  # so that the norms have statistics of their own
    backbone.eval()
    x = F.conv2d(images(2, 17), backbone.stem.weight)
    for stage in backbone.stages:
        x = F.max_pool2d(F.conv2d(x, stage.conv.weight, padding=1), 2, ceil_mode=True)
        x = F.relu(stage.norm(x))
        x = x + F.relu(stage.second.norm(F.conv2d(x, stage.second.conv.weight, padding=1)))
    expected = F.relu(backbone.head.norm(F.conv2d(x, backbone.head.conv.weight))).mean((2, 3))
    torch.testing.assert_close(backbone(images(2, 17)), expected, rtol=1e-4, atol=1e-5)
    assert sum(isinstance(module, nn.Conv2d) for module in ResNet9().modules()) == 8  # and the classifier
    assert ResNet9().feature_dim == 512


def test_convolutions_start_with_he_fan_out() -> None:
    """Spread √(2 / (k² · channels out))."""
    backbone = build_backbone("resnet18", 16, "small", 1, 32, generator())
    weight = backbone.blocks[6].first.conv.weight.detach()  # from 64 channels to 128
    assert float(weight.std()) == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.02)


def test_initial_weights_are_decided_by_the_generator() -> None:
    first, again, other = (build_backbone("resnet18", 2, "small", 1, 32, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.stem.conv.weight, again.stem.conv.weight)
    assert not torch.equal(first.stem.conv.weight, other.stem.conv.weight)


def test_unknown_backbone_is_named() -> None:
    with pytest.raises(UserError, match=r"resnet50.*resnet18"):
        build_backbone("resnet50", 4, "small", 1, 32, generator())


# Self-rotation of the first task


def test_rotated_images_are_turned_pixel_by_pixel() -> None:
    """A quarter turn anticlockwise takes the pixel at row r, column c to row S − 1 − c, column r."""
    x, size = images(2, 5), 5
    turned, _ = rotated(x, torch.tensor([0, 1]), classes=2)
    expected = x
    assert turned.shape == (8, 3, 5, 5)
    for k in range(4):
        assert torch.equal(turned[2 * k : 2 * k + 2], expected)
        quarter = torch.empty_like(expected)
        for row in range(size):
            for column in range(size):
                quarter[:, :, size - 1 - column, row] = expected[:, :, row, column]
        expected = quarter


@quick
@given(classes=st.integers(1, 9), data=st.data())
def test_rotation_k_of_class_y_has_its_own_label(classes: int, data: st.DataObject) -> None:
    """Labels C + 3y + k − 1."""
    y = data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=5))
    _, labels = rotated(torch.zeros(len(y), 3, 2, 2), torch.tensor(y), classes)
    expected = [label if k == 0 else classes + 3 * label + k - 1 for k in range(4) for label in y]
    assert labels.tolist() == expected


def test_rotations_of_all_classes_use_every_label_once() -> None:
    _, labels = rotated(torch.zeros(5, 3, 2, 2), torch.arange(5), 5)
    assert sorted(labels.tolist()) == list(range(20))


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_fewer_rotations_are_different_ones_of_the_four(shown: int) -> None:
    """Each shown copy is the image turned as its label says, and an image is never shown twice alike."""
    x, y, classes = images(40, 5), torch.arange(40) % 3, 3
    turns = turns_drawn(40, shown, generator())
    assert turns is not None and turns.shape == (40, shown)
    turned, labels = rotated(x, y, classes, turns)
    assert turned.shape == (40 * shown, 3, 5, 5)
    seen = []
    for place, label in enumerate(labels.tolist()):
        image = place % 40
        k = 0 if label < classes else (label - classes) % 3 + 1
        assert (label if k == 0 else (label - classes) // 3) == y[image]
        assert torch.equal(turned[place], torch.rot90(x[image], k, (1, 2)))
        seen.append((image, k))
    assert len(set(seen)) == len(seen)
    assert {k for _, k in seen} == {0, 1, 2, 3}


def test_rotations_are_drawn_equally_often_and_anew() -> None:
    rng = generator()
    first, second = turns_drawn(4000, 1, rng), turns_drawn(4000, 1, rng)
    assert first is not None and second is not None and not torch.equal(first, second)
    assert all(900 < int((first == k).sum()) < 1100 for k in range(4))
    assert turns_drawn(9, 4, rng) is None  # all four need no draw
