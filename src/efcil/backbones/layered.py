"""Networks that show what their earlier layers say: learnt for some classes, but less particular to them than the last.

A backbone of your own takes part by deriving from Layered; of any other there are its features alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn


class Layered(nn.Module):
    """A network whose features are the global average of the last of its layers."""

    channels: tuple[int, ...]  # of what layers() gives

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """Maps of some layers, (B, c, h, w) each, the last layer's at the end."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[-1].mean((2, 3))


def layered(network: nn.Module) -> TypeGuard[Layered]:
    """Whether its features come from its layers as above; a class that derives from one may make others of them."""
    return isinstance(network, Layered) and type(network).forward is Layered.forward


class Wide(nn.Module):
    """A network whose features are its own and the means over the quarters of its earlier layers."""

    def __init__(self, network: Layered) -> None:
        super().__init__()
        self.network = network
        self.feature_dim = network.channels[-1] + 4 * sum(network.channels[:-1])

    def forward(self, x: Tensor) -> Tensor:
        *earlier, last = self.network.layers(x)
        return torch.cat([last.mean((2, 3)), *(mean for maps in earlier for mean in quarters(maps))], dim=1)


def quarters(maps: Tensor) -> list[Tensor]:
    """The mean over each quarter of the maps, (B, c) each; where a side is odd, both halves have its middle.

    As adaptive_avg_pool2d does it, which not every device can for sides that are odd.
    """
    rows, columns = (((0, (side + 1) // 2), (side // 2, side)) for side in maps.shape[2:])
    return [maps[:, :, a:b, c:d].mean((2, 3)) for a, b in rows for c, d in columns]
