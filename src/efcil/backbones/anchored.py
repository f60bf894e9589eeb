"""Two networks side by side: one stays as it was, for good, and the other goes on learning."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from efcil.backbones.pretrained import Architecture


class Anchored(nn.Module):
    """A network and a copy of it that never changes; features are those of the copy and of the network, (B, 2n)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.anchor = copy.deepcopy(network).eval().requires_grad_(False)
        self.learning = network
        self.feature_dim = 2 * int(network.feature_dim)  # type: ignore[arg-type]

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
