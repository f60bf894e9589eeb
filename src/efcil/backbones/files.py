"""Backbones in files of one's own: which network it is shows in the names and shapes of the weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from efcil.backbones import efficientnet_lite
from efcil.backbones.efficientnet_lite import EfficientNetLite
from efcil.backbones.pretrained import Architecture, ImageInput, Pretrained, Weights
from efcil.backbones.resnet18 import ResNet18
from efcil.backbones.weights import read_weights
from efcil.errors import UserError

TORCHVISION = {  # names of torchvision's ResNets, and here
    r"^conv1\.": "stem.conv.",
    r"^bn1\.": "stem.norm.",
    r"\.conv1\.": ".first.conv.",
    r"\.bn1\.": ".first.norm.",
    r"\.conv2\.": ".second.conv.",
    r"\.bn2\.": ".second.norm.",
    r"\.downsample\.0\.": ".shortcut.conv.",
    r"\.downsample\.1\.": ".shortcut.norm.",
}


def from_file(path: Path, stem_stride: int) -> Pretrained:
    """The network whose weights this file holds, recognised by their names and shapes."""
    weights = read_weights(path)
    for found in (resnet18(weights, stem_stride), *(lite(weights, variant) for variant in efficientnet_lite.SCALES)):
        if found is not None:
            return found
    listed = ", ".join(sorted(weights)[:3])
    raise UserError(
        f"{path} holds weights of a network that is not known here ({listed}, …); known are ResNet-18 with "
        "torchvision's names and EfficientNet-Lite 0 to 2, and for a model of timm give backbone='timm:NAME:FILE'."
    )


def resnet18(weights: Weights, stem_stride: int) -> Pretrained | None:
    """ResNet-18 with torchvision's names, its classifier left out, or with the names it has here."""
    own = {renamed(name): tensor for name, tensor in weights.items() if not name.startswith("fc.")}
    first = own.get("stem.conv.weight")
    if first is None or first.ndim != 4:
        return None
    large = first.shape[-1] == 7
    architecture = Architecture("resnet18", len(first), "large" if large else "small", 1 if large else stem_stride)
    if not fits(own, lambda: ResNet18(architecture.width, architecture.stem)):
        return None
    # A 3×3 stem was trained on small images, and its file does not say of which size and colours.
    return Pretrained(architecture, ImageInput(256, 224) if large else None, lambda: own)


def lite(weights: Weights, variant: int) -> Pretrained | None:
    """EfficientNet-Lite with its published names, or with those it has here."""
    own = efficientnet_lite.renamed(weights)
    if not fits(own, lambda: EfficientNetLite(variant)):
        return None
    return Pretrained(Architecture(f"efficientnet-lite{variant}"), efficientnet_lite.image_input(variant), lambda: own)


def fits(weights: Weights, build: Callable[[], nn.Module]) -> bool:
    """Whether these are the weights of this network, by names and shapes."""
    with torch.device("meta"):
        expected = build().state_dict()
    return shapes(weights) == shapes(expected)


def shapes(weights: Weights) -> dict[str, torch.Size]:
    """All but the counters of BatchNorm, which old files do not have."""
    return {name: tensor.shape for name, tensor in weights.items() if not name.endswith("num_batches_tracked")}


def renamed(name: str) -> str:
    """``layer2.1.conv1.weight`` is ``blocks.3.first.conv.weight`` here."""
    for pattern, replacement in TORCHVISION.items():
        name = re.sub(pattern, replacement, name)
    return re.sub(r"^layer([1-4])\.([01])\.", lambda m: f"blocks.{2 * int(m[1]) - 2 + int(m[2])}.", name)
