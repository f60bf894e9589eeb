"""An anchor shows the layers of the first network, if its features are made of them, and nothing of it ever changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import TinyNet, make_blobs, make_learner
from efcil.backbones.anchored import Anchored
from efcil.backbones.layered import Layered, quarters
from efcil.backbones.resnet9 import ResNet9
from efcil.backbones.resnet18 import ResNet18
from efcil.bench.footprint import ANCHORED
from efcil.errors import UserError


@pytest.mark.parametrize("side", [(1, 1), (2, 2), (3, 4), (5, 5), (8, 7)])
def test_quarters_are_those_of_adaptive_pooling(side: tuple[int, int]) -> None:
    maps = torch.rand(2, 3, *side)
    torch.testing.assert_close(torch.stack(quarters(maps), 2), F.adaptive_avg_pool2d(maps, 2).flatten(2))


@pytest.mark.parametrize("shows", ["features", "layers"])
def test_the_size_that_is_told_for_the_network_of_the_paper(shows: Any) -> None:
    with torch.device("meta"):
        assert Anchored(ResNet18(), shows).feature_dim == ANCHORED[shows]


def test_an_anchor_never_learns() -> None:
    both = Anchored(ResNet9(4), "layers").train()
    assert both.learning.training and not any(module.training for module in both.anchor.modules())
    assert not any(weight.requires_grad for weight in both.anchor.parameters())
    assert all(weight.requires_grad for weight in both.learning.parameters())


@pytest.mark.parametrize("network", [ResNet9(8), ResNet18(4)], ids=["resnet9", "resnet18"])
def test_layers_have_the_channels_that_are_said(network: Layered) -> None:
    maps = network.layers(torch.rand(2, 3, 20, 20))
    assert tuple(each.shape[1] for each in maps) == network.channels
    assert [each.shape[2] for each in maps] == sorted((each.shape[2] for each in maps), reverse=True)


class Scaled(ResNet9):
    """Features that are not the average of the last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return 100 * F.normalize(super().forward(x))


class Own(Layered):
    """A network of one's own that shows a layer."""

    feature_dim, channels = 6, (4, 6)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3)

    def layers(self, x: Tensor) -> list[Tensor]:
        early = F.relu(self.first(x))
        return [early, F.relu(self.second(early))]


@pytest.mark.parametrize(
    ("network", "features"), [(TinyNet(), 12), (Scaled(4), 128), (Own(), 2 * 6 + 4 * 4)], ids=["none", "scaled", "own"]
)
def test_networks_of_ones_own(network: nn.Module, features: int) -> None:
    """Where features are not those of the layers, an anchor has features alone."""
    classifier = make_learner("cargo", backbone=network, options={"rank": 3})
    classifier.partial_fit(*make_blobs(["cat", "dog"])).partial_fit(*make_blobs(["elk"]))
    assert classifier._model.feature_dim == features
    assert classifier._model.backbone.shows == ("layers" if isinstance(network, Own) else "features")
    anchor = classifier._model.backbone.anchor
    x = torch.rand(2, 3, 8, 8)
    own = int(network.feature_dim)
    torch.testing.assert_close(classifier._model.eval().features(x)[:, :own], getattr(anchor, "network", anchor)(x))


class Unsaid(Own):
    channels = ()


class Wrong(Own):
    channels = (3, 6)


class Flat(Own):
    def layers(self, x: Tensor) -> list[Tensor]:
        return [maps.mean((2, 3)) if place == 0 else maps for place, maps in enumerate(super().layers(x))]


@pytest.mark.parametrize("network", [Unsaid, Wrong, Flat])
def test_layers_that_do_not_fit_are_refused_before_anything_is_learnt(network: type[Own]) -> None:
    with pytest.raises(UserError, match=rf"backbone {network.__name__} has layers .* set channels to the c of each"):
        make_learner("cargo", backbone=network()).partial_fit(*make_blobs(["cat", "dog"]))
