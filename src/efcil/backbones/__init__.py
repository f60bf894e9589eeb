"""Feature extractors f(x; θ) by name."""

from __future__ import annotations

import torch
from torch import nn

from efcil.backbones.resnet18 import ResNet18
from efcil.errors import unknown


def build_backbone(
    name: str, width: int, stem: str, stem_stride: int, image_size: int, rng: torch.Generator
) -> nn.Module:
    """A freshly initialised backbone."""
    if name != "resnet18":
        raise unknown("backbone", name, ["resnet18"])
    if stem == "auto":
        stem = "small" if image_size <= 64 else "large"
    backbone = ResNet18(width, stem, stem_stride)
    backbone.initialise(rng)
    return backbone
