"""What a backbone with learnt weights consists of: which network, what it wants of an image, and the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Weights = dict[str, Tensor]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Architecture:
    """Which network it is: all that a saved model needs to build it again, its weights aside."""

    name: str  # resnet18, resnet9, efficientnet-lite0 … 2, or timm:NAME
    width: int = 64  # of the two ResNets only, the others of ResNet-18
    stem: str = "large"  # or small
    stem_stride: int = 1


@dataclass(frozen=True)
class ImageInput:
    """What a network was trained to see."""

    stored: int  # the shorter side is resized to this
    size: int  # and the square of this side is cut from the middle
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    any_size: bool = True  # whether images of another side can be given to it


@dataclass(frozen=True)
class Pretrained:
    """A network whose weights are there already."""

    architecture: Architecture
    input: ImageInput | None  # none: nobody knows, and it is measured on the first lesson
    read: Callable[[], Weights]  # with the names of the network's own state dict
