"""IncrementalClassifier, where users start: teach it new classes a few at a time.

    classifier = IncrementalClassifier(epochs=20)
    classifier.partial_fit(images, labels)            # cats and dogs
    classifier.partial_fit(more_images, more_labels)  # birds and fish, later
    classifier.predict(photos)

It keeps no image: only the network and what its method remembers of each class.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from efcil.backbones import build_backbone
from efcil.config import ClassifierConfig, deciding, from_dict, merge, to_dict
from efcil.data.augment import AUGMENTATIONS, chosen, stored_size
from efcil.data.images import FILE_SIZE, ImageSet, files, image_set
from efcil.data.sets.folder import class_folders, notes
from efcil.engine import state
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.progress import Silent, Watcher
from efcil.engine.trainer import learn_task
from efcil.errors import Notice, UserError
from efcil.methods import build_method, method_class
from efcil.rng import generator

Labels = Sequence[Any] | npt.NDArray[Any] | Tensor
EVALUATION_BATCH = 256


class IncrementalClassifier:
    """An image classifier that learns new classes over time without keeping old images.

    ``method`` is a name from ``efcil.available_methods()``. ``epochs`` sets the epochs of the first and of the later
    tasks; every other keyword is a field of ``efcil.config.ClassifierConfig``, the sections ``first``, ``incremental``
    and ``options`` as dictionaries. ``backbone`` may be any ``nn.Module`` that has a ``feature_dim`` and maps images
    (B, 3, S, S) to features (B, feature_dim).
    """

    def __init__(
        self,
        method: str = "efc++",
        *,
        backbone: str | nn.Module = "resnet18",
        epochs: int | None = None,
        watcher: Watcher | None = None,
        **settings: Any,
    ) -> None:
        if epochs is not None:
            both = {"first": {"epochs": epochs}, "incremental": {"epochs": epochs}}
            settings = merge(both, {name: _section(value) for name, value in settings.items()})
        settings = merge(method_class(method).recipe, {name: _section(value) for name, value in settings.items()})
        name = backbone if isinstance(backbone, str) else type(backbone).__name__
        self.config = from_dict(ClassifierConfig, {**settings, "method": method, "backbone": name})
        self.watcher: Watcher = watcher or Silent()
        self.classes_: npt.NDArray[Any] = np.array([])
        self.tasks_: list[int] = []  # classes learnt in each partial_fit
        self.saved_seconds_ = 0.0  # time that a checkpoint saved the last partial_fit
        self._method: Method = build_method(method, self.config.options)
        self._given_backbone = None if isinstance(backbone, str) else _checked_backbone(backbone)
        self._model: IncrementalModel | None = None
        self._preprocessing: Preprocessing | None = None

    @classmethod
    def from_config(cls, config: ClassifierConfig, watcher: Watcher | None = None) -> IncrementalClassifier:
        """A classifier with exactly these settings."""
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        return cls(**settings, watcher=watcher)

    # Learning

    def partial_fit(
        self,
        images: Any,
        labels: Labels | None = None,
        *,
        past: tuple[Any, Labels] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> IncrementalClassifier:
        """Learn the classes of these images, which must all be new.

        ``images``: a uint8 array (N, H, W, 3) or (N, H, W), a tensor (N, C, H, W), a list of file paths, PIL images or
        arrays, or a folder of class folders (then without ``labels``). If anything fails or is interrupted, the
        classifier stays as it was. ``checkpoint`` is a file that holds the last finished epoch: when it exists,
        learning goes on from it. ``past`` gives earlier images to methods that are not exemplar-free, and to no other.
        """
        labelled, names = self._labelled(images, labels)
        new = self._new_classes(names)
        task = len(self.tasks_)
        method = copy.deepcopy(self._method)
        device = self._device()
        if self._model is None:
            preprocessing = Preprocessing.measure(labelled, self._augmentation(labelled.size))
            model, old = self._fresh_model(preprocessing), None
        else:
            assert self._preprocessing is not None
            preprocessing = self._preprocessing
            model, old = copy.deepcopy(self._model), self._model.eval()
        model.grow(len(new), generator(self.config.seed, "task", task, "head"))
        classes = np.concatenate([self.classes_, new]) if task else new
        ctx = Context(
            config=self.config,
            task=task,
            model=model,
            old=old,
            images=labelled,
            columns=_columns(names, classes).to(device),
            classes=len(new),
            preprocessing=preprocessing,
            augmentation=AUGMENTATIONS[self._augmentation(labelled.size)],
            device=device,
            identity=self._fingerprint(labelled, names),
            past=self._past(past, device),
        )
        learn_task(ctx, method, self.watcher, Path(checkpoint) if checkpoint else None)
        # Only now is anything of the classifier changed.
        self._model, self._method, self._preprocessing = model.eval(), method, preprocessing
        self.classes_, self.tasks_ = classes, [*self.tasks_, len(new)]
        self.saved_seconds_ = ctx.saved_seconds
        return self

    # Using

    @torch.no_grad()
    def decision_function(self, images: Any) -> npt.NDArray[np.float32]:
        """One score per class seen, in the order of ``classes_``, (N, m)."""
        model, preprocessing = self._fitted()
        ready = image_set(images, preprocessing.stored)
        device = self._device()
        scores = []
        for pixels in ready.batches(list(torch.arange(len(ready)).split(EVALUATION_BATCH))):
            x = preprocessing.normalised(preprocessing.centred(pixels), device)
            scores.append(self._method.scores(model, model.features(x)))
        return cast("npt.NDArray[np.float32]", torch.cat(scores).float().cpu().numpy())

    def predict(self, images: Any) -> npt.NDArray[Any]:
        """The most likely class of each image."""
        return cast("npt.NDArray[Any]", self.classes_[self.decision_function(images).argmax(1)])

    def predict_proba(self, images: Any) -> npt.NDArray[np.float32]:
        """The softmax of the scores, (N, m); columns in the order of ``classes_``."""
        scores = torch.from_numpy(self.decision_function(images))
        return cast("npt.NDArray[np.float32]", torch.softmax(scores, dim=1).numpy())

    def score(self, images: Any, labels: Labels) -> float:
        """The fraction of images that are classified correctly."""
        expected = _label_array(labels)
        predicted = self.predict(images)
        if expected.shape != predicted.shape:
            raise UserError(f"{len(predicted)} images but {len(expected)} labels; give one label per image.")
        return float(np.mean(predicted == expected))

    # Keeping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to predict and to go on learning to one file; it holds no image."""
        model, preprocessing = self._fitted()
        tensors = {
            **state.prefixed("model", model.state_dict()),
            **state.prefixed("method", self._method.state()),
        }
        meta = {
            "config": to_dict(self.config),
            "custom_backbone": self._given_backbone is not None,
            "classes": self.classes_.tolist(),
            "tasks": self.tasks_,
            "preprocessing": to_dict(preprocessing),
            "frozen_batchnorm": model.frozen_batchnorm,
        }
        state.write(Path(path), "classifier", tensors, meta)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, backbone: nn.Module | None = None, device: str | None = None
    ) -> IncrementalClassifier:
        """The classifier that was saved; a backbone of your own must be given again, its weights are in the file."""
        tensors, meta = state.read(Path(path), "classifier")
        config = from_dict(ClassifierConfig, {**meta["config"], **({"device": device} if device else {})})
        if meta["custom_backbone"] and backbone is None:
            raise UserError(f"{path} was learnt with a backbone of its own ({config.backbone}); pass it as backbone=….")
        classifier = cls.from_config(config)
        if backbone is not None:
            classifier._given_backbone = _checked_backbone(backbone)
        classifier._restore(tensors, meta, path)
        return classifier

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any], path: str | os.PathLike[str]) -> None:
        self._preprocessing, self.tasks_ = from_dict(Preprocessing, meta["preprocessing"]), meta["tasks"]
        self.classes_ = np.array(meta["classes"])
        model = self._fresh_model(self._preprocessing)
        for classes in self.tasks_:
            model.grow(classes)
        try:
            model.load_state_dict(state.section("model", tensors))
        except RuntimeError:
            raise UserError(
                f"{path} does not fit the backbone {self.config.backbone}; give the one it was saved with."
            ) from None
        if meta["frozen_batchnorm"]:
            model.freeze_batchnorm()
        self._model, device = model.eval(), self._device()
        self._method.load_state({name: t.to(device) for name, t in state.section("method", tensors).items()})

    # Small things

    def fingerprint(self, images: Any, labels: Labels | None = None) -> str:
        """A name for learning these images next: equal for equal settings, classes and images.

        For the first task it leaves out what does not touch its epochs, so most methods have it in common.
        """
        return self._fingerprint(*self._labelled(images, labels))

    def _fingerprint(self, images: ImageSet, names: npt.NDArray[Any]) -> str:
        settings = deciding(self.config)
        later = ["method", "options", "incremental"] if not self.tasks_ and self._method.shares_first_task else []
        for name in later:
            del settings[name]
        described = json.dumps([settings, self.classes_.tolist(), names.tolist()], sort_keys=True)
        digest = hashlib.sha256(described.encode())
        digest.update(images.batch(torch.arange(min(16, len(images)))).numpy().tobytes())
        return digest.hexdigest()

    @property
    def kept_bytes(self) -> int:
        """Bytes of what the method keeps between tasks besides the network."""
        return sum(tensor.nbytes for tensor in self._method.state().values())

    def work(self, images: list[int]) -> list[int]:
        """How many images pass through the epochs of each task, given how many each task has."""
        return self._method.work(self.config, images)

    @property
    def needs_past(self) -> bool:
        """Whether partial_fit must be given earlier images (upper bounds and oracles only)."""
        return self._method.needs_past

    def _labelled(self, images: Any, labels: Labels | None) -> tuple[ImageSet, npt.NDArray[Any]]:
        """Images and the label of each, from whatever was given."""
        size = self.stored_size
        if isinstance(images, str | os.PathLike):
            if labels is not None:
                raise UserError("A folder of class folders brings its own labels; give no labels with it.")
            if not Path(images).is_dir():
                raise UserError(f"{images} is not a folder of class folders.")
            found = class_folders(Path(images))
            for note in notes(Path(images), found.skipped):
                warnings.warn(note, Notice, stacklevel=3)  # where partial_fit is called
            return files(found.paths, size or FILE_SIZE), np.array(found.names)[found.labels]
        if labels is None:
            raise UserError("labels are missing; give one per image.")
        ready, names_array = image_set(images, size), _label_array(labels)
        if names_array.shape != (len(ready),):
            raise UserError(f"{len(ready)} images but labels of shape {names_array.shape}; give one label per image.")
        if size and ready.size != size:  # only a ready-made ImageSet can differ
            raise UserError(f"these images have {ready.size} pixels a side, the classifier needs {size}.")
        return ready, names_array

    def _new_classes(self, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
        new = np.unique(names)
        if len(self.classes_) and new.dtype.kind != self.classes_.dtype.kind:
            raise UserError(
                f"labels must stay of one kind: the classes so far are like {self.classes_[0]}, these like {new[0]}."
            )
        again = np.intersect1d(new, self.classes_)
        if len(again):
            listed = ", ".join(str(name) for name in again[:5])
            raise UserError(f"already learnt: {listed}; partial_fit takes images of new classes only.")
        return new

    def _past(self, past: tuple[Any, Labels] | None, device: torch.device) -> tuple[ImageSet, Tensor] | None:
        """Earlier images for the methods that need them; no other method ever sees them."""
        if not self._method.needs_past or not self.tasks_:
            return None
        if past is None:
            raise UserError(
                f"{self.config.method} with these options is not exemplar-free; "
                "pass all earlier images as past=(images, labels)."
            )
        images, names = self._labelled(*past)
        differing = np.setxor1d(names, self.classes_)
        if len(differing):
            listed = ", ".join(str(name) for name in differing[:5])
            raise UserError(f"past must hold images of all classes learnt and of no other; it differs in {listed}.")
        return images, _columns(names, self.classes_).to(device)

    def _fresh_model(self, preprocessing: Preprocessing) -> IncrementalModel:
        if self._given_backbone is not None:
            backbone = copy.deepcopy(self._given_backbone)
        else:
            c = self.config
            rng = generator(c.seed, "backbone")
            backbone = build_backbone(c.backbone, c.width, c.stem, c.stem_stride, preprocessing.size, rng)
        model = IncrementalModel(backbone).to(self._device())
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def _augmentation(self, size: int | None) -> str:
        return chosen(self.config.augmentation, size)

    @property
    def stored_size(self) -> int | None:
        """The side that images are read with; None before the first task when nothing was asked for."""
        if self._preprocessing is not None:
            return self._preprocessing.stored
        size = self.config.image_size
        return None if size is None else stored_size(self._augmentation(size), size)

    def _device(self) -> torch.device:
        name = self.config.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"The device {name!r} cannot be used here ({str(error).splitlines()[0]}).") from None

    def _fitted(self) -> tuple[IncrementalModel, Preprocessing]:
        if self._model is None or self._preprocessing is None:
            raise UserError("This classifier has not learnt anything yet; call partial_fit first.")
        return self._model, self._preprocessing


def _columns(names: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Tensor:
    """The column of each label among the classes."""
    order = np.argsort(classes)
    return torch.from_numpy(order[np.searchsorted(classes, names, sorter=order)])


def _label_array(labels: Labels) -> npt.NDArray[Any]:
    """Labels as a flat array of whole numbers or words."""
    listed = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise UserError(f"labels must be a list with one label per image, not {listed!r:.40}.")
    listed = list(listed)
    kinds = {type(label) for label in listed}
    if all(issubclass(kind, bool | int | np.integer | np.bool_) for kind in kinds):
        return np.array(listed, dtype=np.int64)
    if all(issubclass(kind, str) for kind in kinds):
        return np.array(listed, dtype=np.str_)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UserError(f"labels must be a flat list of whole numbers or of words, one kind only, not of {names}.")


def _checked_backbone(backbone: nn.Module) -> nn.Module:
    if not isinstance(getattr(backbone, "feature_dim", None), int):
        raise UserError("a backbone of your own needs the attribute feature_dim, the length of its feature vectors.")
    return backbone


def _section(value: Any) -> Any:
    return to_dict(value) if dataclasses.is_dataclass(value) else value


def load(path: str | os.PathLike[str], **kwargs: Any) -> IncrementalClassifier:
    """The classifier that was saved to this file."""
    return IncrementalClassifier.load(path, **kwargs)
