"""Two networks side by side: one stays as it was, for good, and the other goes on learning."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from efcil.backbones.layered import Wide, layered
from efcil.backbones.pretrained import Architecture

Shows = Literal["layers", "features"]  # of the copy: its earlier layers too, or the last one alone


class Anchored(nn.Module):
    """A network and a copy of it that never changes; features are those of the copy, then the network's own."""

    def __init__(self, network: nn.Module, shows: Shows) -> None:
        super().__init__()
        self.anchor = shown(copy.deepcopy(network), shows).eval().requires_grad_(False)
        self.learning = network
        self.feature_dim = int(self.anchor.feature_dim) + int(network.feature_dim)  # type: ignore[arg-type]
        self.shows: Shows = "layers" if isinstance(self.anchor, Wide) else "features"

    @property
    def architecture(self) -> Architecture:
        """Of each of the two."""
        return self.learning.architecture  # type: ignore[return-value]

    def train(self, mode: bool = True) -> Anchored:
        super().train(mode)
        self.anchor.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.anchor(x), self.learning(x)], dim=1)


def shown(network: nn.Module, shows: Shows) -> nn.Module:
    """The network as it shows itself as an anchor."""
    return Wide(network) if shows == "layers" and layered(network) else network
