"""Networks that show what their earlier layers say: learnt for some classes, but less particular to them than the last.

A backbone of your own takes part by deriving from Layered; of any other there are its features alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 2  # of the grid that an earlier layer is averaged to


class Layered(nn.Module):
    """A network whose features are the global average of the last of its layers."""

    channels: tuple[int, ...]  # of what layers() gives

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """Maps of some layers, (B, c, h, w) each, the last layer's at the end."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[-1].mean((2, 3))


class Wide(nn.Module):
    """A network whose features are its own and those of its earlier layers, each averaged to 2×2 places."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        earlier = network.channels[:-1] if isinstance(network, Layered) else ()
        self.feature_dim = int(network.feature_dim) + SIDE**2 * sum(earlier)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(self.network, Layered):
            return self.network(x)  # type: ignore[no-any-return]
        *earlier, last = self.network.layers(x)
        places = [F.adaptive_avg_pool2d(maps, SIDE).flatten(1) for maps in earlier]
        return torch.cat([last.mean((2, 3)), *places], dim=1)
