"""A residual network of nine layers, shaped for one CPU core: few layers, pooled early, wide at its end."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from efcil.backbones.layered import Layered
from efcil.backbones.pretrained import Architecture
from efcil.backbones.resnet18 import ConvNorm


class Stage(nn.Module):
    """A convolution that halves the side, and a second one added to what the first gives.

    The maximum is taken before BatchNorm, which then has a quarter of the pixels to look at.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        self.second = ConvNorm(channels_out, channels_out, 3)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.max_pool2d(self.conv(x), 2, ceil_mode=True)
        x = F.relu(self.norm(pooled) if pooled.numel() > pooled.shape[1] else pooled)
        return x + F.relu(self.second(x))


class ResNet9(Layered):
    """Features are the global average after the last ReLU, so never negative, (B, 16·width)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.feature_dim = 16 * width
        self.architecture = Architecture("resnet9", width, "small")
        self.stem = nn.Conv2d(3, 3 * width // 4, 2, bias=False)
        widths = [3 * width // 4, width, 2 * width, 4 * width]
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in pairwise(widths)))
        self.head = ConvNorm(4 * width, self.feature_dim, 1)
        self.channels = (2 * width, 4 * width, self.feature_dim)

    def layers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the second and the third stage and the head give, (B, c, h, w) each."""
        first, second, third = self.stages
        early = second(first(self.stem(x)))
        late = third(early)
        return early, late, F.relu(self.head(late))
