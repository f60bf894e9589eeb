"""Where the backbone of a new model comes from, and that of a saved one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from efcil.backbones import FROM_SCRATCH, find_pretrained
from efcil.backbones.pretrained import Architecture, ImageInput, Pretrained
from efcil.config import ClassifierConfig, from_dict
from efcil.engine import state
from efcil.engine.preprocessing import Preprocessing
from efcil.errors import UserError

RECIPE: dict[str, Any] = {"first": {"backbone_lr": 1e-5}, "incremental": {"backbone_lr": 1e-5}}
"""Rates at which a pretrained backbone is tuned unless something else is asked for, the paper's for large images."""


def pretrained_backbone(config: ClassifierConfig) -> Pretrained | None:
    """The learnt network that the settings ask for; none: from scratch."""
    if config.backbone.endswith(".efcil"):
        return from_classifier(Path(config.backbone))
    pretrained = find_pretrained(config.backbone, config.stem_stride)
    if pretrained is None and config.backbone_training != "auto":
        raise UserError(
            f"backbone_training={config.backbone_training} is for a backbone that has learnt something, and "
            f"{config.backbone} starts from scratch; leave it at auto or give another backbone."
        )
    return pretrained


def from_classifier(path: Path) -> Pretrained:
    """The network of a saved classifier, which then begins anew with other classes."""
    tensors, meta = state.read(path, "classifier")
    if meta["custom_backbone"]:
        raise UserError(
            f"{path} was learnt with a backbone of its own, of which it holds the weights but not the code."
        )
    seen = from_dict(Preprocessing, meta["preprocessing"])
    image_input = ImageInput(seen.stored, seen.size, seen.mean, seen.std, seen.interpolation)
    return Pretrained(saved_architecture(meta), image_input, lambda: state.section("model.backbone", tensors))


def saved_architecture(meta: dict[str, Any]) -> Architecture:
    """Which network a saved classifier has; before version 2 its settings alone said so."""
    if meta.get("architecture") is not None:
        return from_dict(Architecture, meta["architecture"])
    config = from_dict(ClassifierConfig, meta["config"])
    stem = config.stem
    if stem == "auto":
        stem = "small" if meta["preprocessing"]["size"] <= 64 else "large"
    return Architecture(FROM_SCRATCH, config.width, stem, config.stem_stride)
