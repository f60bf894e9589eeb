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
import functools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from efcil.backbones import FROM_SCRATCH
from efcil.backbones.anchored import Anchored
from efcil.config import ClassifierConfig, check_placed, deciding, from_dict, merge, to_dict
from efcil.data.augment import augmentation, chosen
from efcil.data.given import unlabelled
from efcil.data.images import ImageSet, Interpolation, image_set
from efcil.engine import distributed, state
from efcil.engine.answers import UNKNOWN, Answers
from efcil.engine.backbone import RECIPE, Origin
from efcil.engine.bar import Bar, is_watched
from efcil.engine.context import Context, looked
from efcil.engine.device import chosen_device
from efcil.engine.fingerprint import fingerprint
from efcil.engine.float64 import float64_somewhere
from efcil.engine.labels import Labels, columns_of, counted, label_array, labelled_images, renamed, without
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel, checked_backbone
from efcil.engine.plan import Plan, measured_costs, planned, within_steps
from efcil.engine.preprocessing import Preprocessing, interpolation, seen_side, stored_side
from efcil.engine.progress import Silent, Watcher
from efcil.engine.saved import SavedClassifier, cannot_be_used
from efcil.engine.trainer import learn_task
from efcil.errors import UserError, unknown
from efcil.methods import METHODS, build_method, method_class
from efcil.rng import generator

DRAWS = 50  # per class, to estimate how well it is known


P = ParamSpec("P")
R = TypeVar("R")
Calculating = Callable[Concatenate["IncrementalClassifier", P], R]


def _with_float64(function: Calculating[P, R]) -> Calculating[P, R]:
    """What a classifier calculates may be in float64, whatever its device."""

    @functools.wraps(function)
    def within(classifier: IncrementalClassifier, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with float64_somewhere(classifier._device()):
            return function(classifier, *args, **kwargs)

    return within


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
        progress: bool = True,
        **settings: Any,
    ) -> None:
        given = {"method": method, "backbone": backbone, "epochs": epochs, "watcher": watcher, "progress": progress}
        self._parameters: dict[str, Any] = {**given, **settings}  # as they were given, for get_params
        if epochs is not None:
            both = {"first": {"epochs": epochs}, "incremental": {"epochs": epochs}}
            settings = merge(both, {name: _section(value) for name, value in settings.items()})
        cls = method_class(method)
        check_placed(settings, options=cls.Options)
        recipe = cls.recipe
        if isinstance(backbone, str) and backbone not in FROM_SCRATCH:
            recipe = merge(recipe, RECIPE)
        settings = merge(recipe, {name: _section(value) for name, value in settings.items()})
        name = backbone if isinstance(backbone, str) else type(backbone).__name__
        self.config = from_dict(ClassifierConfig, {**settings, "method": method, "backbone": name})
        self.watcher: Watcher | None = watcher
        self.progress = progress
        self.classes_: npt.NDArray[Any] = np.array([])
        self.tasks_: list[int] = []  # classes of each head, which is what a partial_fit with new classes adds
        self.lessons_: list[dict[str, Any]] = []  # what was taught, in order and under the names of now
        self.saved_seconds_ = 0.0  # time that a checkpoint saved the last partial_fit
        self.phase_seconds_: dict[str, float] = {}  # of the last partial_fit, what a checkpoint saved included
        self._method: Method = build_method(method, self.config.options)
        self._origin = Origin(self.config, None if isinstance(backbone, str) else checked_backbone(backbone))
        self._model: IncrementalModel | None = None
        self._preprocessing: Preprocessing | None = None

    @classmethod
    def from_config(cls, config: ClassifierConfig, watcher: Watcher | None = None) -> IncrementalClassifier:
        """A classifier with exactly these settings."""
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        return cls(**settings, watcher=watcher)

    # Learning

    @_with_float64
    def partial_fit(
        self,
        images: Any,
        labels: Labels | None = None,
        *,
        past: tuple[Any, Labels] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        minutes: float | None = None,
    ) -> IncrementalClassifier:
        """Learn the classes of these images; classes that are known already are refined where the method can.

        ``images``: a uint8 array (N, H, W, 3) or (N, H, W), a tensor (N, C, H, W), a list of file paths, PIL images or
        arrays, one of those, or, then without ``labels``, a folder or zip of class folders or a torch data set of
        (image, label). If anything fails or is interrupted, the classifier stays as it was. ``minutes`` lowers the
        epochs to what fits into the time on this machine. ``checkpoint`` is a file for what was learnt so far, written
        every ``checkpoint_seconds`` and after the last epoch: when it exists, learning goes on from it. ``past`` gives
        earlier images to methods that are not exemplar-free, and to no other.
        """
        if minutes is not None and checkpoint is not None:
            raise UserError(
                "minutes chooses the epochs by the clock, a checkpoint needs the same again; give only one."
            )
        ctx, names, classes = self._prepared(images, labels, past)
        if checkpoint is not None:
            ctx.identity = distributed.from_first(lambda: self._fingerprint(ctx.images, names, ctx.past))
        method = copy.deepcopy(self._method)
        with self._watched() as watcher:
            ctx.watcher = watcher
            if minutes is not None or isinstance(watcher, Bar):
                plan = self._planned(ctx, method, minutes)
                if minutes is not None:
                    ctx.config = distributed.from_first(lambda: ctx.config)  # each has its own clock
                if isinstance(watcher, Bar):
                    watcher.begin(str(plan), plan.shown)
            learn_task(ctx, method, Path(checkpoint) if checkpoint else None)
        # Only now is anything of the classifier changed.
        self._model, self._method, self._preprocessing = ctx.model.eval(), method, ctx.preprocessing
        new = len(classes) - len(self.classes_)
        self.classes_, self.tasks_ = classes, [*self.tasks_, *([new] if new else [])]
        self.lessons_ = [*self.lessons_, {"what": "taught", "classes": counted(names)}]
        self.saved_seconds_, self.phase_seconds_ = ctx.saved_seconds, ctx.phase.seconds
        return self

    @_with_float64
    def plan(
        self,
        images: Any,
        labels: Labels | None = None,
        *,
        past: tuple[Any, Labels] | None = None,
        minutes: float | None = None,
    ) -> Plan:
        """What partial_fit of these images would do, and about how long that takes on this machine."""
        ctx, _, _ = self._prepared(images, labels, past)
        return self._planned(ctx, self._method, minutes)

    def _prepared(
        self, images: Any, labels: Labels | None, past: tuple[Any, Labels] | None
    ) -> tuple[Context, npt.NDArray[Any], npt.NDArray[Any]]:
        """What a method will see of these images, the label of each, and all classes then known."""
        labelled, names = self._labelled(images, labels)
        new = self._new_classes(names)
        task = len(self.lessons_)
        device = self._device()
        if self._model is None:
            preprocessing = self._preprocessing or Preprocessing.of(labelled, self.config, self._origin.brought)
            model, old = self._origin.model(preprocessing.size, self._method, device), None
        else:
            assert self._preprocessing is not None
            preprocessing = self._preprocessing
            model, old = copy.deepcopy(self._model), self._model.eval()
        if len(new):
            model.grow(len(new), generator(self.config.seed, "task", task, "head"))
        classes = np.concatenate([self.classes_, new]) if task else new
        ctx = Context(
            config=self._config_for(len(labelled)),
            task=task,
            model=model,
            old=old,
            images=labelled,
            columns=columns_of(names, classes).to(device),
            classes=len(new),
            preprocessing=preprocessing,
            augmentation=augmentation(chosen(self.config.augmentation, labelled.size), preprocessing.size),
            device=device,
            past=self._past(past, device),
        )
        return ctx, names, classes

    def _config_for(self, images: int) -> ClassifierConfig:
        """The settings for a lesson of so many images: where steps are given, epochs follow from them."""
        first, later = within_steps(self.config.first, images), within_steps(self.config.incremental, images)
        return dataclasses.replace(self.config, first=first, incremental=later)

    def _planned(self, ctx: Context, method: Method, minutes: float | None) -> Plan:
        """Measure how fast this machine is, and lower the epochs to what fits into the minutes."""
        if minutes is not None and not 0 < minutes < math.inf:
            raise UserError(f"minutes must be a number above 0, not {minutes}.")
        trains = not ctx.model.frozen_backbone and not (method.freezes_backbone and not ctx.first)
        training = method.training(ctx)
        costs = measured_costs(ctx, method, trains)
        if minutes is not None and trains:
            epochs = costs.epochs_within(minutes, training.epochs)
            part = "first" if training is ctx.config.first else "incremental"
            shortened: Any = {part: dataclasses.replace(getattr(ctx.config, part), epochs=epochs)}
            ctx.config = dataclasses.replace(ctx.config, **shortened)
            training = method.training(ctx)
        return planned(ctx, method, training, trains, costs)

    @contextmanager
    def _watched(self) -> Iterator[Watcher]:
        """The watcher that was given, a bar where somebody is likely to look, or nobody."""
        if self.watcher is not None or not (self.progress and is_watched() and distributed.is_first()):
            yield self.watcher or Silent()
            return
        with Bar() as bar:
            yield bar

    # Using

    @_with_float64
    @torch.no_grad()
    def decision_function(self, images: Any) -> npt.NDArray[np.float32]:
        """One score per class seen, in the order of ``classes_``, (N, m).

        ``images`` as for partial_fit, or a single one: an array (H, W, 3), a tensor (3, H, W), a PIL image or a path.
        """
        model, _ = self._fitted()
        return np.concatenate([_array(self._method.scores(model, part)) for part in self._features(images)])

    @_with_float64
    @torch.no_grad()
    def answers(self, images: Any) -> Answers:
        """How likely each class is, and how usual each image is for the class it is taken for."""
        model, _ = self._fitted()
        probabilities, familiarity = [], []
        for features in self._features(images):
            probabilities.append(_array(self._method.probabilities(model, features)))
            usual = self._method.familiarity(model, features)
            familiarity.append(None if usual is None else _array(usual))
        told = [part for part in familiarity if part is not None]
        return Answers(np.concatenate(probabilities), np.concatenate(told) if told else None)

    def _features(self, images: Any) -> Iterator[Tensor]:
        """The features of the images, a batch at a time."""
        model, preprocessing = self._fitted()
        # Nothing is kept in memory: each image is looked at once.
        ready = image_set(unlabelled(images), preprocessing.stored, preprocessing.interpolation, cache_mb=0)
        device, rows = self._device(), torch.arange(len(ready)).split(preprocessing.batch)
        own = (
            looked([model], preprocessing.normalised(preprocessing.centred(pixels), device))
            for pixels in ready.batches(distributed.dealt(rows), self.config.workers)
        )
        shapes = [(len(group), 1, model.feature_dim) for group in rows]
        yield from (features.squeeze(1) for features in distributed.by_turns(own, shapes, device))

    def predict(self, images: Any, *, unknown: bool = False) -> npt.NDArray[Any]:
        """The most likely class of each image; with ``unknown``, "unknown" for an image that is unlike every class."""
        if not unknown:  # never rejects: what benchmarks and score measure
            return cast("npt.NDArray[Any]", self.classes_[self.decision_function(images).argmax(1)])
        answers = self.answers(images)
        named = self.classes_[answers.probabilities.argmax(1)].astype(object)
        named[answers.unknown] = UNKNOWN
        return cast("npt.NDArray[Any]", named)

    def predict_proba(self, images: Any) -> npt.NDArray[np.float32]:
        """How likely each class is, (N, m); columns in the order of ``classes_``."""
        return self.answers(images).probabilities

    def score(self, images: Any, labels: Labels | None = None) -> float:
        """The fraction of images that are classified correctly; nothing is ever called unknown here."""
        if labels is None:
            images, labels = self._labelled(images, None)
        expected = label_array(labels)
        predicted = self.predict(images)
        if expected.shape != predicted.shape:
            raise UserError(f"{len(predicted)} images but {len(expected)} labels; give one label per image.")
        self._check_kind(expected)
        return float(np.mean(predicted == expected))

    # How good it is, without any image of an earlier lesson

    @property
    def validates(self) -> bool:
        """Whether it can tell how it would name the images of the next lesson had each of them not been taught.

        Not where the network itself learns from them.
        """
        return self._method.validates and (bool(self.lessons_) or self._origin.frozen(self._method))

    @property
    def refines(self) -> bool:
        """Whether a class that is known may be taught again."""
        return self._method.refines

    def validation(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """For the images of the last lesson their names, and those they would get had each not been taught."""
        if self._method.validation is None:
            return self.classes_[:0], self.classes_[:0]
        scores, columns = self._method.validation
        return self.classes_[columns.cpu().numpy()], self.classes_[scores.argmax(1).cpu().numpy()]

    @_with_float64
    @torch.no_grad()
    def estimated_answers(self) -> tuple[Answers, npt.NDArray[np.int64]] | None:
        """What is said of draws from what is kept of every class, and the column of each draw; None: nothing is."""
        model, _ = self._fitted()
        drawn = self._method.drawn(DRAWS, generator(self.config.seed, "estimate"))
        if drawn is None:
            return None
        features, columns = drawn
        usual = self._method.familiarity(model, features)
        probabilities = _array(self._method.probabilities(model, features))
        return Answers(probabilities, None if usual is None else _array(usual)), columns.cpu().numpy()

    @_with_float64
    @torch.no_grad()
    def estimated_accuracy(self, classes: int | None = None) -> float | None:
        """The share of draws from what is kept of the first so many classes that is named rightly; None: nothing is."""
        model, _ = self._fitted()
        drawn = self._method.drawn(DRAWS, generator(self.config.seed, "estimate"))
        if drawn is None:
            return None
        features, columns = drawn
        asked = columns < (len(self.classes_) if classes is None else classes)
        said = self._method.scores(model, features[asked]).argmax(1)
        return float((said == columns[asked]).double().mean())

    def untaught(self, method: str) -> IncrementalClassifier:
        """A classifier with another method that starts with the network of this one as it is now, and knows nothing."""
        model, preprocessing = self._fitted()
        settings: Any = {"seed": self.config.seed, "device": self.config.device, "image_size": preprocessing.size}
        kept = "frozen" if model.frozen_backbone else "tuned"
        backbone = copy.deepcopy(model.learner.backbone)  # an anchor belongs to what was taught
        other = IncrementalClassifier(method, backbone=backbone, backbone_training=kept, progress=False, **settings)
        other._preprocessing = preprocessing
        return other

    # Changing what was taught

    @_with_float64
    def forget(self, name: Any) -> IncrementalClassifier:
        """Take a class out; nothing of it stays."""
        column = self._column(name)
        if len(self.classes_) == 1:
            raise UserError(f"{name} is the only class; delete the model instead.")
        method = copy.deepcopy(self._method)
        method.remove_class(column)
        self._drop(column, method)
        lessons = [without(lesson, str(name)) for lesson in self.lessons_]
        self.lessons_ = [lesson for lesson in lessons if lesson["classes"]]  # a lesson of nothing else was none
        return self

    def rename(self, old: Any, new: Any) -> IncrementalClassifier:
        """Call a class by another name."""
        column = self._column(old)
        kind = self.classes_.dtype.kind
        if kind != np.array([new]).dtype.kind:
            raise UserError(f"class names must stay of one kind: {old!r} cannot become {new!r}.")
        if not str(new).strip():
            raise UserError(f"The new name of {old!r} is empty; choose another.")
        if str(new) in map(str, self.classes_):
            raise UserError(f"{new!r} is the name of a class already; choose another, or merge the two.")
        names = self.classes_.tolist()
        names[column] = new
        self.classes_ = np.array(names)
        lessons = [{**lesson, "classes": renamed(lesson["classes"], str(old), str(new))} for lesson in self.lessons_]
        self.lessons_ = lessons
        return self

    @_with_float64
    def merge(self, into: Any, other: Any) -> IncrementalClassifier:
        """Make two classes one, as if the images of both had been taught as the first."""
        first, second = self._column(into), self._column(other)
        if first == second:
            raise UserError(f"{into} cannot be merged with itself.")
        method = copy.deepcopy(self._method)
        method.merge_classes(first, second)
        self._drop(second, method)
        lessons = [{**lesson, "classes": renamed(lesson["classes"], str(other), str(into))} for lesson in self.lessons_]
        self.lessons_ = lessons
        return self

    def _drop(self, column: int, method: Method) -> None:
        """Go on with a method that knows nothing of this class any more."""
        model = copy.deepcopy(self._fitted()[0])
        head = model.remove_class(column)
        tasks = [classes - (place == head) for place, classes in enumerate(self.tasks_)]
        self._model, self._method, self.tasks_ = model.eval(), method, [classes for classes in tasks if classes]
        self.classes_ = np.delete(self.classes_, column)

    def _column(self, name: Any) -> int:
        """The place of a class, which may be given as the word for a number."""
        self._fitted()
        names = [str(known) for known in self.classes_]
        if str(name) not in names:
            raise unknown("class", name, names)
        return names.index(str(name))

    # Saving and loading

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to predict and to go on learning to one file; it holds no image."""
        model, preprocessing = self._fitted()
        SavedClassifier(
            config=self.config,
            classes=self.classes_,
            tasks=self.tasks_,
            lessons=self.lessons_,
            preprocessing=preprocessing,
            architecture=None if self._origin.given is not None else model.backbone.architecture,  # type: ignore[arg-type]
            frozen_batchnorm=model.frozen_batchnorm,
            frozen_backbone=model.frozen_backbone,
            anchored=model.backbone.shows if isinstance(model.backbone, Anchored) else None,
            network=model.state_dict(),
            kept=self._method.state(),
        ).write(Path(path))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, backbone: nn.Module | None = None, device: str | None = None
    ) -> IncrementalClassifier:
        """The classifier that was saved; a backbone of your own must be given again, its weights are in the file."""
        path = Path(path)
        saved = SavedClassifier.read(path, device)
        if saved.architecture is None and backbone is None:
            name = saved.config.backbone
            raise UserError(
                f"{path} was learnt with a backbone of its own ({name}), whose code it does not hold; load it from "
                "Python and pass the module as backbone=…."
            )
        with cannot_be_used(path):
            classifier = cls.from_config(saved.config)
        if backbone is not None:
            classifier._origin = Origin(saved.config, checked_backbone(backbone))
        saved.check_kept(path, classifier._method, saved.check_network(path, backbone))
        classifier.classes_, classifier.tasks_, classifier.lessons_ = saved.classes, saved.tasks, saved.lessons
        classifier._preprocessing = saved.preprocessing
        where = classifier._device()
        classifier._model = saved.model(backbone, where)
        with cannot_be_used(path), torch.no_grad(), float64_somewhere(where):
            classifier._method.load_state({name: tensor.to(where) for name, tensor in saved.kept.items()})
            nothing = torch.zeros(1, classifier._model.feature_dim, device=where)
            classifier._method.scores(classifier._model, nothing)  # some look at their numbers only when asked
        return classifier

    # As scikit-learn has it

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given."""
        return dict(self._parameters)

    def set_params(self, **parameters: Any) -> IncrementalClassifier:
        """Change settings, before anything is learnt."""
        if len(self.classes_):
            raise UserError("Settings can be changed only before the first lesson; make a new classifier.")
        changed = IncrementalClassifier(**{**self._parameters, **parameters})
        self.__dict__.update(changed.__dict__)  # only now: a mistake changes nothing
        return self

    def __repr__(self) -> str:
        learnt = f"classes: {len(self.classes_)}, lessons: {len(self.lessons_)}" if len(self.classes_) else "untaught"
        return f"IncrementalClassifier(method={self.config.method!r}, backbone={self.config.backbone!r}): {learnt}"

    # Small things

    def fingerprint(self, images: Any, labels: Labels | None = None) -> str:
        """A name for learning these images next: equal for equal settings, classes, images and weights to start from.

        For the first task it leaves out what does not touch its epochs, so most methods have it in common.
        """
        return self._fingerprint(*self._labelled(images, labels))

    def _fingerprint(
        self, images: ImageSet, names: npt.NDArray[Any], past: tuple[ImageSet, Tensor] | None = None
    ) -> str:
        settings = {**deciding(self.config), "options": deciding(self._method.options)}
        if self._model is None:
            size = seen_side(images.size, self.config, self._origin.brought)
            weights = self._origin.model(size, self._method, self._device()).state_dict()
            if self._method.shares_first_task:
                for name in ("method", "options", "incremental", "batchnorm"):
                    del settings[name]
        else:
            weights = {**self._model.state_dict(), **state.prefixed("method", self._method.state())}
        earlier, columns = ([], {}) if past is None else ([past[0]], {"past": past[1]})
        described = [settings, self.classes_.tolist(), names.tolist()]
        return fingerprint(described, {**weights, **columns}, images, *earlier)

    @property
    def kept_bytes(self) -> int:
        """Bytes of what the method keeps between tasks besides the network."""
        return sum(tensor.nbytes for tensor in self._method.state().values())

    @property
    def network_bytes(self) -> int:
        """Bytes of the network and its heads."""
        return sum(tensor.nbytes for tensor in self._fitted()[0].state_dict().values())

    def work(self, images: list[int]) -> list[int]:
        """How many images pass through the epochs of each task, given how many each task has."""
        work = self._method.work(self.config, images)
        never = self._origin.frozen(self._method) and self._method.idle(frozen=True, first=True)
        return [0] * len(work) if never else work

    @property
    def needs_past(self) -> bool:
        """Whether partial_fit must be given earlier images (upper bounds and oracles only)."""
        return self._method.needs_past

    def _labelled(self, images: Any, labels: Labels | None) -> tuple[ImageSet, npt.NDArray[Any]]:
        """Images and the label of each, from whatever was given."""
        c = self.config
        return labelled_images(images, labels, self.stored_size, self.interpolation, c.cache_mb, c.workers)

    def _new_classes(self, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
        new = np.unique(names)
        self._check_kind(new)
        again = np.intersect1d(new, self.classes_)
        if len(again) and not self._method.refines:
            listed = ", ".join(str(name) for name in again[:5])
            able = ", ".join(cls.name for cls in METHODS.values() if cls.refines)
            raise UserError(
                f"already learnt: {listed}; {self.config.method} takes images of new classes only ({able} can)."
            )
        return np.setdiff1d(new, self.classes_)

    def _check_kind(self, names: npt.NDArray[Any]) -> None:
        """Words and whole numbers are never equal, so a mixture is a mistake."""
        if len(self.classes_) and names.dtype.kind != self.classes_.dtype.kind:
            raise UserError(
                f"labels must stay of one kind: the classes so far are like {self.classes_[0].item()!r}, "
                f"these like {names[0].item()!r}."
            )

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
        return images, columns_of(names, self.classes_).to(device)

    @property
    def stored_size(self) -> int | None:
        """The side that images are read with; None before the first task when nothing was asked for."""
        if self._preprocessing is not None:
            return self._preprocessing.stored
        return stored_side(self.config, self._origin.brought)

    @property
    def interpolation(self) -> Interpolation:
        if self._preprocessing is not None:
            return self._preprocessing.interpolation
        return interpolation(self.config, self._origin.brought)

    def _device(self) -> torch.device:
        return chosen_device(self.config.device)

    def _fitted(self) -> tuple[IncrementalModel, Preprocessing]:
        if self._model is None or self._preprocessing is None:
            raise UserError("This classifier has not learnt anything yet; call partial_fit first.")
        return self._model, self._preprocessing


def _array(tensor: Tensor) -> npt.NDArray[np.float32]:
    return cast("npt.NDArray[np.float32]", tensor.float().cpu().numpy())


def _section(value: Any) -> Any:
    return to_dict(value) if dataclasses.is_dataclass(value) else value


def load(path: str | os.PathLike[str], **kwargs: Any) -> IncrementalClassifier:
    """The classifier that was saved to this file."""
    return IncrementalClassifier.load(path, **kwargs)
