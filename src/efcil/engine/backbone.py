"""Where the network of a classifier comes from: the user's own module, weights that are learnt already, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from efcil.backbones import FROM_SCRATCH, build_backbone, find_pretrained, with_weights
from efcil.backbones.pretrained import ImageInput, Pretrained
from efcil.config import ClassifierConfig
from efcil.engine import state
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel, placed, tried_copy
from efcil.engine.saved import SavedClassifier
from efcil.errors import UserError
from efcil.rng import generator

RECIPE: dict[str, Any] = {"first": {"backbone_lr": 1e-5}, "incremental": {"backbone_lr": 1e-5}}
"""Rates at which a pretrained backbone is tuned unless something else is asked for, the paper's for large images."""


@dataclass(frozen=True)
class Origin:
    """The network before the first lesson, and what it wants of an image."""

    config: ClassifierConfig
    given: nn.Module | None  # the user's own

    def model(self, size: int, method: Method, device: torch.device) -> IncrementalModel:
        """The model before its first task; a backbone that is worth keeping is frozen, or at least its BatchNorm."""
        c = self.config
        if self.given is not None:
            backbone = tried_copy(self.given, size, device)
        elif self.pretrained is not None:
            backbone = with_weights(self.pretrained)
        else:
            rng = generator(c.seed, "backbone")
            backbone = build_backbone(c.backbone, c.width, c.stem, c.stem_stride, size, rng)
        model = placed(backbone, device, c.precision)
        if self.learnt:
            model.freeze_batchnorm()
            if self.frozen(method):
                model.freeze_backbone()
        return model

    @cached_property
    def pretrained(self) -> Pretrained | None:
        return None if self.given is not None else pretrained_backbone(self.config)

    @property
    def brought(self) -> ImageInput | None:
        """What a pretrained backbone wants of an image."""
        return None if self.pretrained is None else self.pretrained.input

    @property
    def learnt(self) -> bool:
        """Whether the backbone has learnt something already: pretrained by its name, or by what the settings say."""
        return self.config.backbone_training != "auto" or (
            self.given is None and self.config.backbone not in FROM_SCRATCH
        )

    def frozen(self, method: Method) -> bool:
        """Whether no task ever changes the backbone."""
        training = self.config.backbone_training
        return self.learnt and (training == "frozen" or (training == "auto" and method.freezes_backbone))


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
    saved = SavedClassifier.read(path)
    if saved.architecture is None:
        raise UserError(
            f"{path} was learnt with a backbone of its own, of which it holds the weights but not the code."
        )
    saved.check_network(path)
    seen = saved.preprocessing
    image_input = ImageInput(seen.stored, seen.size, seen.mean, seen.std, seen.interpolation)
    where = "model.backbone.learning" if saved.anchored else "model.backbone"
    return Pretrained(saved.architecture, image_input, lambda: state.section(where, saved.network))
