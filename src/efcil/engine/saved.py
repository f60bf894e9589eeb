"""A saved classifier: everything that one file holds, written by state.py, and believed only once it is checked."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from efcil.backbones import FROM_SCRATCH, without_weights
from efcil.backbones.anchored import Anchored, Shows
from efcil.backbones.pretrained import Architecture, Weights
from efcil.config import ClassifierConfig, from_dict, to_dict
from efcil.engine import forgery, state
from efcil.engine.labels import label_array
from efcil.engine.method import Method, State
from efcil.engine.model import IncrementalModel, placed, trained_weights, tried_copy
from efcil.engine.preprocessing import Preprocessing
from efcil.errors import CannotWrite, UserError

KIND = "classifier"


@dataclass(frozen=True)
class SavedClassifier:
    """What is needed to predict and to go on learning; docs/state-format.md says where it is in the file."""

    config: ClassifierConfig
    classes: npt.NDArray[Any]
    tasks: list[int]  # classes of each head
    lessons: list[dict[str, Any]]  # what was taught, in order
    preprocessing: Preprocessing
    architecture: Architecture | None  # none: a backbone of the user's own, of which only the weights are here
    frozen_batchnorm: bool
    frozen_backbone: bool
    anchored: Shows | None  # what is seen of a copy of the network that never changes, if one stands beside it
    network: Weights  # of the whole IncrementalModel
    kept: State  # of the method

    def write(self, path: Path) -> None:
        tensors = {**state.prefixed("model", self.network), **state.prefixed("method", self.kept)}
        meta = {
            "config": to_dict(self.config),
            "custom_backbone": self.architecture is None,
            "classes": self.classes.tolist(),
            "tasks": self.tasks,
            "lessons": [{key: lesson[key] for key in ("what", "classes")} for lesson in self.lessons],
            "times": [lesson.get("time") for lesson in self.lessons],  # no part of what makes two models equal
            "preprocessing": to_dict(self.preprocessing),
            "architecture": None if self.architecture is None else to_dict(self.architecture),
            "frozen_batchnorm": self.frozen_batchnorm,
            "frozen_backbone": self.frozen_backbone,
            "anchored": self.anchored,
        }
        try:
            state.write(path, KIND, tensors, meta)
        except CannotWrite:
            raise
        except ValueError as error:  # a ValueError is a name that no file can have
            raise UserError(f"{str(path)!r} cannot be written ({error}); choose another place.") from None

    @classmethod
    def read(cls, path: Path, device: str | None = None) -> SavedClassifier:
        """What the file says, checked but for its tensors, which must be compared with a network and a method."""
        tensors, meta = state.read(path, KIND, forgery.KEYS)
        with cannot_be_used(path):
            config = from_dict(ClassifierConfig, {**meta["config"], **({"device": device} if device else {})})
            classes = label_array(meta["classes"])
            preprocessing = from_dict(Preprocessing, meta["preprocessing"], "preprocessing.")
            architecture = None if meta["custom_backbone"] else saved_architecture(meta, config, preprocessing)
        forgery.check_classes(path, meta["classes"], meta["tasks"])
        forgery.check_preprocessing(path, preprocessing)
        if architecture is not None:
            forgery.check_architecture(path, architecture)
        return cls(
            config=config,
            classes=classes,
            tasks=meta["tasks"],
            lessons=saved_lessons(path, meta),
            preprocessing=preprocessing,
            architecture=architecture,
            frozen_batchnorm=meta["frozen_batchnorm"],
            frozen_backbone=bool(meta.get("frozen_backbone", False)),
            anchored=saved_anchor(path, meta),
            network={name: tensor for name, tensor in tensors.items() if not name.startswith("method.")},
            kept=state.section("method", tensors),
        )

    def check_network(self, path: Path, given: nn.Module | None = None) -> IncrementalModel:
        """Compare with the network as it should be, which is returned; of any width it takes no memory (meta)."""
        if given is not None:
            backbone = copy.deepcopy(given)
        else:
            assert self.architecture is not None
            with torch.device("meta" if self.architecture.name in FROM_SCRATCH else "cpu"), cannot_be_used(path):
                backbone = without_weights(self.architecture)
        pattern = self._frozen(IncrementalModel(self._beside(backbone)))
        forgery.check_network(path, self.network, pattern, self.tasks)
        return pattern

    def check_kept(self, path: Path, method: Method, pattern: IncrementalModel) -> None:
        """Compare what is kept of the classes with what this method keeps beside this network."""
        parameters = sum(weight.numel() for weight in trained_weights(pattern))
        sizes = {"m": len(self.classes), "n": pattern.feature_dim, "P": parameters}
        forgery.check_kept(path, self.kept, method, sizes)

    def model(self, given: nn.Module | None, device: torch.device) -> IncrementalModel:
        """The network as it was saved, in a copy of the user's own backbone if there is one."""
        if given is not None:
            backbone = tried_copy(given, self.preprocessing.size, device)
        else:
            assert self.architecture is not None
            backbone = without_weights(self.architecture)
        model = placed(self._beside(backbone), device, self.config.precision)
        for classes in self.tasks:
            model.grow(classes)
        model.load_state_dict(state.section("model", self.network))
        return self._frozen(model).eval()

    def _beside(self, backbone: nn.Module) -> nn.Module:
        return Anchored(backbone, self.anchored) if self.anchored else backbone

    def _frozen(self, model: IncrementalModel) -> IncrementalModel:
        if self.frozen_batchnorm:
            model.freeze_batchnorm()
        if self.frozen_backbone:
            model.freeze_backbone()
        return model


@contextmanager
def cannot_be_used(path: Path) -> Iterator[None]:
    """Whatever is wrong with a setting or number inside the file is said with the name of the file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path} cannot be used: {error}") from None
    except RuntimeError as error:  # such as a decomposition of numbers that nothing could have been learnt from
        said = str(error).partition("\n")[0]
        raise forgery.refused(path, f"its numbers do not belong together ({said:.150})") from None


def saved_architecture(meta: Mapping[str, Any], config: ClassifierConfig, preprocessing: Preprocessing) -> Architecture:
    """Which network a saved classifier has; before version 2 its settings alone said so."""
    if meta.get("architecture") is not None:
        return from_dict(Architecture, meta["architecture"], "architecture.")
    stem = config.stem
    if stem == "auto":
        stem = "small" if preprocessing.size <= 64 else "large"
    return Architecture("resnet18", config.width, stem, config.stem_stride)


def saved_anchor(path: Path, meta: Mapping[str, Any]) -> Shows | None:
    """What is seen of the network of the first task beside the present one; most files have none."""
    shows = meta.get("anchored") or None
    if shows not in (None, *get_args(Shows)):
        raise forgery.refused(path, f"its anchor shows {shows!r:.40}, not {' or '.join(get_args(Shows))}")
    return shows


def saved_lessons(path: Path, meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was taught in which order; files of version 1 do not say from how many images."""
    ends = np.cumsum([0, *meta["tasks"]])
    learnt = [meta["classes"][a:b] for a, b in pairwise(ends)]
    unsaid = [{"what": "taught", "classes": {str(name): 0 for name in names}} for names in learnt]
    lessons = meta.get("lessons", unsaid)
    times = meta.get("times", [None] * len(lessons)) if isinstance(lessons, list) else []
    forgery.check_lessons(path, lessons, times)
    return [{**lesson, **({"time": when} if when else {})} for lesson, when in zip(lessons, times, strict=True)]
