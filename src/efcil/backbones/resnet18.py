"""The feature extractor f(x; θ): ResNet-18 at any width, with the 32/64-pixel and the 224-pixel stem."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.backbones.layered import Layered
from efcil.backbones.pretrained import Architecture


class ConvNorm(nn.Module):
    """A convolution followed by BatchNorm.

    Outside training, and in training once BatchNorm is frozen, the norm is a constant scale and shift per channel.
    It is then folded into the convolution, inside the graph, so the weights get the same gradient for less work,
    unless somebody listens to the norm (deep inversion does): a folded norm never sees its input.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        # A 1×1 convolution skips pixels itself: the same numbers, and oneDNN's strided 1×1 backward pass writes out
        # of bounds for narrow channels-last inputs.
        self.skip = stride if kernel == 1 else 1
        stride //= self.skip
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(channels_out, eps)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        x = x[:, :, :: self.skip, :: self.skip]
        if norm.training:
            y = self.conv(x)
            if y.numel() > y.shape[1]:  # a single value per channel has no variance
                return norm(y)  # type: ignore[no-any-return]
        elif norm._forward_pre_hooks:
            return norm(self.conv(x))  # type: ignore[no-any-return]
        assert norm.running_mean is not None and norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        shift = norm.bias - norm.running_mean * scale
        weight = self.conv.weight * scale[:, None, None, None]
        return F.conv2d(x, weight, shift, self.conv.stride, self.conv.padding, groups=self.conv.groups)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels_in, channels_out, 3, stride)
        self.second = ConvNorm(channels_out, channels_out, 3)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same else ConvNorm(channels_in, channels_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet18(Layered):
    """ResNet-18; features are the global average after the last ReLU, so never negative, (B, 8·width)."""

    def __init__(self, width: int = 64, stem: str = "small", stem_stride: int = 1) -> None:
        super().__init__()
        self.feature_dim = 8 * width
        self.architecture = Architecture("resnet18", width, stem, stem_stride)
        self.stem = ConvNorm(3, width, 7, 2) if stem == "large" else ConvNorm(3, width, 3, stem_stride)
        self.pool = nn.MaxPool2d(3, 2, 1) if stem == "large" else nn.Identity()
        blocks = []
        channels = width
        for stage in range(4):
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(channels, width << stage, stride))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.channels = (2 * width, 4 * width, 8 * width)

    def layers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the second, the third and the last of its four stages give, (B, c, h, w) each."""
        early: Tensor = self.blocks[:4](self.pool(F.relu(self.stem(x))))
        late: Tensor = self.blocks[4:6](early)
        return early, late, self.blocks[6:](late)


def he_initialise(network: nn.Module, rng: torch.Generator) -> None:
    """He initialisation (fan-out) of the convolutions; BatchNorm starts as the identity."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=rng)
