"""The adapters of SSRE: merged and unmerged they are the same network, new ones change nothing."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import make_blobs, make_learner, normal, rng_of
from efcil.backbones.resnet18 import ConvNorm, ResNet18, he_initialise
from efcil.methods.ssre import Adapter, add_adapters, merge_adapters


def trained_resnet() -> ResNet18:
    """Every number of the network, those of BatchNorm too, is drawn."""
    network, rng = ResNet18(width=4), rng_of()
    he_initialise(network, rng)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.5, 1.5, generator=rng)
    return network.double().eval()


def adapted(network: ResNet18) -> list[Adapter]:
    """Give the network adapters and draw what they have learnt."""
    add_adapters(network)
    adapters = [module for module in network.modules() if isinstance(module, Adapter)]
    for index, adapter in enumerate(adapters):
        adapter.weight.data.copy_(normal(*adapter.weight.shape, seed=index) / 4)
    return adapters


def two_branches(layer: ConvNorm, adapter: Tensor, x: Tensor) -> Tensor:
    """BatchNorm of conv3×3(x) + conv1×1(x), two convolutions."""
    conv, norm = layer.conv, layer.norm
    y = F.conv2d(x, conv.weight, None, conv.stride, conv.padding) + F.conv2d(x, adapter, None, conv.stride)
    return F.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias)


@torch.no_grad()
def test_the_merged_network_equals_the_one_with_a_second_branch() -> None:
    network, x = trained_resnet(), normal(2, 3, 16, 16)
    plain = copy.deepcopy(network)
    adapters = [adapter.weight for adapter in adapted(network)]
    branches = iter(adapters)
    y = F.relu(plain.stem(x))
    for block in plain.blocks:
        inner = F.relu(two_branches(block.first, next(branches), y))  # type: ignore[arg-type]
        y = F.relu(two_branches(block.second, next(branches), inner) + block.shortcut(y))  # type: ignore[arg-type, operator]
    expected = y.mean((2, 3))
    assert len(adapters) == 16 and next(branches, None) is None  # two per block, none for stem and shortcuts

    unmerged = network(x)
    merge_adapters(network)
    torch.testing.assert_close(unmerged, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(network(x), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(network(x), unmerged)
    assert not torch.allclose(plain(x), expected)
    assert {name: t.shape for name, t in network.state_dict().items()} == {
        name: t.shape for name, t in plain.state_dict().items()
    }


def test_new_adapters_change_nothing_and_learn() -> None:
    network, x = trained_resnet().requires_grad_(False), normal(2, 3, 16, 16)
    before = network(x)
    add_adapters(network)
    assert torch.equal(network(x), before)
    network(x).square().sum().backward()
    learning = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert len(learning) == 16 and all(".parametrizations.weight.0." in name for name in learning)


def test_ssre_changes_only_the_centres_of_the_kernels() -> None:
    classifier = make_learner("ssre", incremental={"epochs": 3, "lr": 0.01})
    classifier.partial_fit(*make_blobs(["cat", "dog"]))
    assert classifier._model is not None
    before = copy.deepcopy(classifier._model.backbone.state_dict())
    after = classifier.partial_fit(*make_blobs(["ant", "bee"]))._model.backbone.state_dict()
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.endswith(("first.conv.weight", "second.conv.weight")) for name in moved)
    for name in moved:
        difference = after[name] - before[name]
        assert difference[:, :, 1, 1].any()
        difference[:, :, 1, 1] = 0
        assert not difference.any()
