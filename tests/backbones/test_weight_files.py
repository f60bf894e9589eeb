"""Backbones in files of one's own: torchvision's names, other wrappings, and files that are not read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from real_timm import real_timm
from safetensors.torch import save_file
from torch import Tensor, nn

from conftest import rng_of
from efcil.backbones import find_pretrained, with_weights
from efcil.backbones.efficientnet_lite import EfficientNetLite
from efcil.backbones.resnet18 import ResNet18
from efcil.backbones.weights import read_weights
from efcil.errors import UserError

WIDTH = 4


def torchvision_names(width: int = WIDTH, kernel: int = 7) -> dict[str, Tensor]:
    """A small ResNet-18 with every number drawn at random, under torchvision's names, classifier included."""
    rng = rng_of()
    weights: dict[str, Tensor] = {}

    def norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            weights[f"{name}.{part}"] = torch.rand(channels, generator=rng) + 0.5
        weights[f"{name}.num_batches_tracked"] = torch.tensor(3)

    def conv(name: str, out: int, channels: int, side: int) -> None:
        weights[f"{name}.weight"] = torch.randn(out, channels, side, side, generator=rng) * 0.2

    conv("conv1", width, 3, kernel)
    norm("bn1", width)
    channels = width
    for stage in range(4):
        out = width << stage
        for block in range(2):
            name = f"layer{stage + 1}.{block}"
            conv(f"{name}.conv1", out, channels, 3)
            norm(f"{name}.bn1", out)
            conv(f"{name}.conv2", out, out, 3)
            norm(f"{name}.bn2", out)
            if stage and not block:
                conv(f"{name}.downsample.0", out, channels, 1)
                norm(f"{name}.downsample.1", out)
            channels = out
    weights["fc.weight"], weights["fc.bias"] = torch.randn(10, channels, generator=rng), torch.zeros(10)
    return weights


def literal_resnet18(weights: dict[str, Tensor], x: Tensor, kernel: int, stem_stride: int = 1) -> Tensor:
    """torchvision's forward pass, written out (without its classifier)."""

    def conv_norm(conv: str, norm: str, x: Tensor, stride: int, padding: int) -> Tensor:
        x = nn.functional.conv2d(x, weights[f"{conv}.weight"], None, stride, padding)
        mean, variance, scale, shift = (
            weights[f"{norm}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    x = conv_norm("conv1", "bn1", x, 2 if kernel == 7 else stem_stride, kernel // 2).relu()
    if kernel == 7:
        x = nn.functional.max_pool2d(x, 3, 2, 1)
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = conv_norm(f"{name}.conv1", f"{name}.bn1", x, stride, 1).relu()
            y = conv_norm(f"{name}.conv2", f"{name}.bn2", y, 1, 1)
            if f"{name}.downsample.0.weight" in weights:
                x = conv_norm(f"{name}.downsample.0", f"{name}.downsample.1", x, stride, 0)
            x = (x + y).relu()
    return x.mean((2, 3))


def loaded(path: Path, stem_stride: int = 1) -> nn.Module:
    pretrained = find_pretrained(str(path), stem_stride)
    assert pretrained is not None
    return with_weights(pretrained).eval()


def images(side: int) -> Tensor:
    return torch.randn(2, 3, side, side, generator=rng_of(9))


@pytest.mark.parametrize("kernel", [3, 7])
def test_a_resnet18_with_torchvisions_names_gives_its_features(kernel: int, tmp_path: Path) -> None:
    weights = torchvision_names(kernel=kernel)
    save_file(weights, tmp_path / "weights.safetensors")
    net = loaded(tmp_path / "weights.safetensors")
    with torch.no_grad():
        expected = literal_resnet18(weights, images(64), kernel)
        torch.testing.assert_close(net(images(64)), expected, atol=1e-4, rtol=1e-4)
    assert isinstance(net, ResNet18)
    assert (net.architecture.width, net.architecture.stem) == (WIDTH, "large" if kernel == 7 else "small")


def test_torchvisions_own_resnet18_gives_the_same_features(tmp_path: Path) -> None:
    real_timm()  # which makes torchvision ready, too
    from torchvision.models import resnet18

    other = resnet18(weights=None).eval()
    torch.save(other.state_dict(), tmp_path / "resnet18.pth")
    other.fc = nn.Identity()
    net = loaded(tmp_path / "resnet18.pth")
    with torch.no_grad():
        torch.testing.assert_close(net(images(96)), other(images(96)), atol=1e-4, rtol=1e-4)


def test_the_stride_of_a_small_stem_comes_from_the_settings(tmp_path: Path) -> None:
    weights = torchvision_names(kernel=3)
    save_file(weights, tmp_path / "weights.safetensors")
    with torch.no_grad():
        expected = literal_resnet18(weights, images(32), 3, stem_stride=2)
        torch.testing.assert_close(
            loaded(tmp_path / "weights.safetensors", 2)(images(32)), expected, atol=1e-4, rtol=1e-4
        )


def test_large_stems_bring_the_preprocessing_of_imagenet_and_small_ones_none(tmp_path: Path) -> None:
    inputs = []
    for kernel in (3, 7):
        save_file(torchvision_names(kernel=kernel), tmp_path / "weights.safetensors")
        pretrained = find_pretrained(str(tmp_path / "weights.safetensors"))
        assert pretrained is not None
        inputs.append(pretrained.input)
    assert inputs[0] is None
    assert inputs[1] is not None and (inputs[1].stored, inputs[1].size) == (256, 224)
    assert inputs[1].mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("network", [ResNet18(WIDTH), ResNet18(WIDTH, "large"), EfficientNetLite(2)])
def test_state_dicts_of_the_networks_here_come_back_as_they_were(network: Any, tmp_path: Path) -> None:
    torch.save(network.state_dict(), tmp_path / "own.pt")
    again = loaded(tmp_path / "own.pt")
    assert type(again) is type(network)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in network.state_dict().items())
    with torch.no_grad():
        assert torch.equal(again(images(32)), network.eval()(images(32)))


@pytest.mark.parametrize("wrap", [lambda w: {"state_dict": w}, lambda w: {"model": w, "epoch": 3}], ids=["one", "two"])
def test_wrappings_of_training_scripts_are_taken_off(wrap: Any, tmp_path: Path) -> None:
    weights = torchvision_names()
    del weights["bn1.num_batches_tracked"]  # as files of old versions
    torch.save(wrap({f"module.{name}": tensor for name, tensor in weights.items()}), tmp_path / "script.pth")
    assert torch.equal(loaded(tmp_path / "script.pth").state_dict()["stem.conv.weight"], weights["conv1.weight"])


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def refused(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        find_pretrained(str(path))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    return message


@pytest.mark.parametrize(
    "save", [torch.save, lambda x, path: path.write_bytes(pickle.dumps(x))], ids=["torch", "plain"]
)
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(save: Any, tmp_path: Path) -> None:
    save({"weight": Evil(tmp_path / "ran")}, tmp_path / "evil.pth")
    assert "could run code" in refused(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()


def test_files_that_are_no_weights_get_one_sentence(tmp_path: Path) -> None:
    assert "There is no file" in refused(tmp_path / "nowhere.safetensors")
    (tmp_path / "weights.onnx").write_bytes(b"x")
    assert "should end in .safetensors" in refused(tmp_path / "weights.onnx")
    for name in ("short.safetensors", "short.pth", "empty.pt"):
        (tmp_path / name).write_bytes(b"" if name.startswith("empty") else b"not weights at all")
        assert name in refused(tmp_path / name)
    torch.save([1, 2, 3], tmp_path / "list.pth")
    assert "holds no state dict" in refused(tmp_path / "list.pth")
    torch.save({"weight": 3}, tmp_path / "numbers.pth")
    assert "holds no state dict" in refused(tmp_path / "numbers.pth")


def test_unknown_networks_are_refused_with_some_of_their_names(tmp_path: Path) -> None:
    save_file({"encoder.weight": torch.zeros(2), "encoder.bias": torch.zeros(2)}, tmp_path / "other.safetensors")
    message = refused(tmp_path / "other.safetensors")
    assert "encoder.bias, encoder.weight" in message and "timm:NAME:FILE" in message
    deeper = torchvision_names()
    deeper["layer1.2.conv1.weight"] = deeper["layer1.1.conv1.weight"].clone()  # as ResNet-34 has
    save_file(deeper, tmp_path / "deeper.safetensors")
    assert "not known here" in refused(tmp_path / "deeper.safetensors")


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    weights = torchvision_names()
    weights["conv1.weight"][0, 0, 0, 0] = torch.nan
    save_file(weights, tmp_path / "nan.safetensors")
    assert "NaN or infinite weights (conv1.weight)" in refused(tmp_path / "nan.safetensors")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet-lite3", "did you mean efficientnet-lite"),
        ("resnet50", "did you mean resnet9 or resnet18"),
        ("vit", "there are: a file of weights, efficientnet-lite0"),
    ],
)
def test_wrong_names_get_one_sentence(name: str, message: str) -> None:
    assert message in refused(name)


def test_reading_keeps_every_number(tmp_path: Path) -> None:
    weights = torchvision_names()
    save_file(weights, tmp_path / "w.safetensors")
    torch.save(weights, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        read = read_weights(tmp_path / name)
        assert read.keys() == weights.keys() and all(torch.equal(read[key], weights[key]) for key in weights)
