"""All settings: frozen dataclasses whose defaults are the paper's, read from plain dictionaries.

A setting is resolved in this order, later wins: the default here, a preset of the package, the method's own recipe,
that preset's section for the method, then the user's own words: a YAML file, its section for the method, and
``--set field=value`` or keywords in Python.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from efcil.errors import UserError, unknown

T = TypeVar("T")
WORKERS, CACHE_MB = 4, 2048  # what nobody sets, see ClassifierConfig
RISING, ONE_CYCLE_START = 0.25, 0.04  # one-cycle: the part of the steps that rises, and the factor it begins with


def moves_no_number(default: Any) -> Any:
    """A field that decides how fast or where something is computed, and never what comes out; digests leave it out."""
    return field(default=default, metadata={"moves_no_number": True})


def added_later(default: Any) -> Any:
    """A field that older settings do not have; digests leave its default out, so that older results still count."""
    return field(default=default, metadata={"added_later": default})


@dataclass(frozen=True)
class Training:
    """How one task is trained; the defaults are an incremental step of EFC++ on CIFAR-100 (appendix D.2)."""

    epochs: int = 100
    """Passes over the images of the task."""
    batch_size: int = 64
    """Images per optimiser step, over all processes."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam or stochastic gradient descent; a fresh one for every task."""
    lr: float = 1e-4
    """Learning rate of the heads, and of the backbone unless backbone_lr is given."""
    backbone_lr: float | None = None
    """Learning rate of the backbone; empty means the same as lr."""
    momentum: float = 0.9
    """Momentum, for sgd."""
    weight_decay: float = 2e-4
    """L2 weight decay."""
    schedule: Literal["milestones", "linear", "cosine", "one-cycle"] = "milestones"
    """How the learning rate changes: by milestones, or step by step: falling to zero in a line or half a cosine, or
    one-cycle, which first rises for a quarter of the steps and then falls like the cosine."""
    milestones: tuple[float, ...] = ()
    """Fractions of the epochs after which the learning rate is multiplied by gamma, for the schedule of that name."""
    gamma: float = 0.1
    """Factor at each milestone."""
    steps: int | None = None
    """About so many optimiser steps, whatever the number of images: epochs and batch size follow; empty: as set."""

    views: int | None = added_later(None)
    """After so many epochs their batches come again; of methods that compare features the old network's are computed
    once and kept meanwhile, images × views × n numbers; empty: every epoch shows each image anew."""

    def __post_init__(self) -> None:
        at_least(
            self,
            steps=1,
            views=1,
            epochs=0,
            batch_size=1,
            lr=0.0,
            backbone_lr=0.0,
            momentum=0.0,
            weight_decay=0.0,
            gamma=0.0,
        )
        if any(not 0 < milestone < 1 for milestone in self.milestones):
            raise UserError(f"milestones must lie between 0 and 1 (fractions of the epochs), not {self.milestones}.")

    @property
    def turns(self) -> int:
        """How many rotations of each image an epoch shows; 0: images are not rotated, and shown once."""
        return 0

    def lr_factor(self, epoch: int, part: float = 0.0) -> float:
        """The factor on the learning rates in this epoch (counted from 0), of which this part is done."""
        if self.schedule == "milestones":
            return float(self.gamma ** sum(epoch >= round(m * self.epochs) for m in self.milestones))
        done = (epoch + part) / self.epochs
        if self.schedule == "linear":
            return 1 - done
        if self.schedule == "one-cycle":
            if done < RISING:
                return ONE_CYCLE_START + (1 - ONE_CYCLE_START) * done / RISING
            done = (done - RISING) / (1 - RISING)
        return (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class FirstTask(Training):
    """How the first task is trained, the same for every method (appendix D.2)."""

    lr: float = 1e-3
    milestones: tuple[float, ...] = (0.45, 0.90)
    rotation: bool = True
    """Self-rotation: rotated copies of every image as extra classes of a throw-away head."""
    rotations_shown: int = 4
    """How many of the four rotations of each image an epoch shows, drawn anew every time; the paper shows all."""
    label_smoothing: float = 0.0
    """Part of each label that is spread over all classes; also when all images are learnt together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        part_of_one(self, "label_smoothing")
        if self.views is not None:
            raise UserError("views must be empty: the first task has no old network whose features could be kept.")
        if not 1 <= self.rotations_shown <= 4:
            raise UserError(f"rotations_shown must lie between 1 and 4, not {self.rotations_shown}.")

    @property
    def turns(self) -> int:
        return self.rotations_shown if self.rotation else 0


@dataclass(frozen=True)
class PreprocessingConfig:
    """What a network wants of an image besides its size; empty: what a pretrained backbone brings, else measured."""

    crop: float | None = None
    """Share of the side at which images are read that the network sees, such as 0.875 for 224 of 256 pixels."""
    mean: tuple[float, ...] | None = None
    """Mean of red, green and blue, from 0 to 1; empty and not pretrained: that of the first lesson."""
    std: tuple[float, ...] | None = None
    """Spread of red, green and blue, from 0 to 1; goes with mean."""
    interpolation: Literal["bilinear", "bicubic"] | None = None
    """How images are resized; empty and not pretrained: bilinear."""

    def __post_init__(self) -> None:
        if self.crop is not None and not 0 < self.crop <= 1:
            raise UserError(f"crop must lie above 0 and be at most 1, not {self.crop}.")
        if (self.mean is None) != (self.std is None):
            raise UserError("mean and std of the preprocessing go together; give both or none.")
        if self.mean is not None and self.std is not None:
            if (len(self.mean), len(self.std)) != (3, 3):
                raise UserError("mean and std must have three numbers each, for red, green and blue.")
            if not all(map(math.isfinite, self.mean)) or not all(0 < value < math.inf for value in self.std):
                raise UserError(f"mean must be numbers and std numbers above 0, not {self.mean} and {self.std}.")


@dataclass(frozen=True)
class ClassifierConfig:
    """Everything that decides what an IncrementalClassifier learns, apart from the images."""

    method: str = "efc++"
    """Name of the method, as listed by `efcil methods`, or module:Class for one from elsewhere."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's own settings, such as lambda_efm."""
    backbone: str = "resnet18"
    """resnet18 or resnet9 (from scratch), efficientnet-lite0 to 2, timm:NAME, or a file of weights; from Python any
    nn.Module with a feature_dim can be given instead."""
    backbone_training: Literal["auto", "frozen", "tuned"] = "auto"
    """frozen: never changed; tuned: trained on from its weights, BatchNorm frozen; auto: what is pretrained is frozen
    for methods that only need features and tuned for others, what is not is trained as the method wants it."""
    width: int = 64
    """Channels of the first stage; the paper's ResNet-18 has 64, which gives 512 features, as 32 does for resnet9."""
    stem: Literal["auto", "small", "large"] = "auto"
    """small: 3×3 convolution for 32 or 64 pixels; large: 7×7, stride 2, max-pool for 224; auto: by image size."""
    stem_stride: int = 1
    """Stride of the small stem; 2 makes a network four times cheaper."""
    image_size: int | None = None
    """Side of the square images in pixels; empty: what a pretrained backbone wants, else as the first arrays come,
    64 for files."""
    preprocessing: PreprocessingConfig = field(default_factory=PreprocessingConfig)
    """What the network wants of an image besides its size."""
    augmentation: Literal["auto", "none", "crop", "crop_flip", "cifar_reference", "resized_crop_flip", "trivial"] = (
        "auto"
    )
    """Random changes to training images; auto: crop_flip up to 64 pixels, resized_crop_flip above."""
    batchnorm: Literal["frozen", "learning"] | None = None
    """frozen: BatchNorm stays as the first task left it; learning: it learns on; empty: as the method has it."""
    first: FirstTask = field(default_factory=FirstTask)
    """Training of the first task."""
    incremental: Training = field(default_factory=Training)
    """Training of every later task."""
    seed: int = 0
    """Seed of every random draw."""
    device: str = moves_no_number("auto")
    """auto, cpu, cuda, …; another device rounds differently, but computes the same."""
    precision: Literal["fp32", "bf16", "fp16"] = added_later("fp32")
    """How the inside of the network is computed: in 32 bits, or in 16 (with scaled gradients in fp16); its features,
    losses and all that is kept of the classes have 32 bits or more in any case."""
    compile: bool = moves_no_number(False)
    """Whether the network is compiled while it learns; rounds differently, but computes the same."""
    deterministic: bool = moves_no_number(False)
    """Whether a GPU has to give the same bits every time; an operation that cannot is an error. A CPU always does."""
    workers: int = moves_no_number(WORKERS)
    """Threads that decode and augment images ahead of the training step; 0: the training step does it itself."""
    worker_processes: bool = moves_no_number(False)
    """Whether these are processes, which share no interpreter: where many cores read files for a fast GPU (Linux)."""
    cache_mb: int = moves_no_number(CACHE_MB)
    """Images from files are decoded once and kept if they take at most so many megabytes (of 1,048,576 bytes)."""
    checkpoint_seconds: float = moves_no_number(120.0)
    """A checkpoint is written at the end of an epoch if the last one is so old, and always after the last epoch."""

    def __post_init__(self) -> None:
        at_least(self, width=1, stem_stride=1, seed=0, image_size=4, workers=0, cache_mb=0, checkpoint_seconds=0.0)


@dataclass(frozen=True)
class DataConfig:
    """Which images a run uses."""

    name: str = "cifar100"
    """Name of the image set, as listed by `efcil data list`, or folder, or domains."""
    images_per_class: int | None = None
    """Keep only the first so many training images of each class; empty keeps all."""
    held_out: int = 0
    """Measure on the last so many training images of each class instead of the test images, to choose settings."""
    packed: str | None = moves_no_number(None)
    """A folder for files with the resized pixels of all images, made on first use, then read in their place."""

    def __post_init__(self) -> None:
        at_least(self, images_per_class=1, held_out=0)


@dataclass(frozen=True)
class StreamConfig:
    """How the classes are split into tasks (Table 1)."""

    kind: Literal["cold", "warm", "domain"] = "cold"
    """cold: equal tasks; warm: a large first task, counted as step 0; domain: one task per domain."""
    steps: int = 10
    """Number of incremental steps; a warm start has one more task, its step 0. Unused for domains."""
    first_classes: int = 0
    """Classes of step 0 of a warm start, |C_0| in Table 1."""
    shuffle: bool = True
    """Shuffle the class order by the seed; otherwise the order of the data set."""
    skip_classes: int = added_later(0)
    """Leave out the first so many classes of the order: a warm start without its step 0, as in §8.2."""
    tasks: int | None = added_later(None)
    """End after so many tasks of the stream, the first one included; empty: all of them."""

    def __post_init__(self) -> None:
        at_least(self, steps=1, first_classes=0, skip_classes=0, tasks=1)


@dataclass(frozen=True)
class RunConfig:
    """One benchmark run: data, stream and classifier."""

    data: DataConfig = field(default_factory=DataConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    classifier: ClassifierConfig = field(default_factory=ClassifierConfig)


def at_least(config: Any, **bounds: float) -> None:
    """Refuse a field below its smallest sensible value."""
    for name, least in bounds.items():
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:  # false for NaN too
            raise UserError(f"{name} must be at least {least}, not {value}.")


def part_of_one(config: Any, name: str) -> None:
    """Refuse a share that is not one."""
    if not 0 <= getattr(config, name) <= 1:
        raise UserError(f"{name} must lie between 0 and 1, not {getattr(config, name)}.")


def from_dict(cls: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """Build a config from a dictionary, checking every name and type.

    What a __post_init__ refuses begins with the name of its field, so that the section can be put before it.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{path[:-1] or 'a config'} is a section with fields of its own, not the value {values!r}.")
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            deeper = [section for section in names if name in _fields(hints[section])]
            if deeper:
                meant = " or ".join(f"{path}{section}.{name}".removeprefix("classifier.") for section in deeper)
                raise UserError(f"There is no field {path}{name}; did you mean {meant}?")
            raise unknown(f"field in {path[:-1]}" if path else "field", name, names)
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        if f.name not in values and f.default is f.default_factory is dataclasses.MISSING:
            raise UserError(f"{path}{f.name} is missing.")
    converted = {name: _convert(hints[name], value, f"{path}{name}") for name, value in values.items()}
    try:
        return cls(**converted)
    except UserError as error:
        raise UserError(f"{path}{error}") from None


def check_placed(settings: Iterable[str], **sections: Any) -> None:
    """Refuse among the settings of a classifier what belongs to these sections beside them, and say where it goes."""
    for name in settings:
        meant = [f"{section}.{name}" for section, kind in sections.items() if name in _fields(kind)]
        if meant and name not in _fields(ClassifierConfig):
            raise UserError(f"There is no field {name}; did you mean {' or '.join(meant)}?")


def _fields(kind: Any) -> list[str]:
    """The names of the fields of a section; of anything else none."""
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain dictionaries and lists, ready for YAML or JSON."""
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def deciding(config: Any, complete: bool = False) -> dict[str, Any]:
    """Every setting that can move a number, defaults included, as plain dictionaries and lists.

    Only if it is to be ``complete`` are those in it that were added later and have their default.
    """
    return {
        f.name: deciding(value, complete) if dataclasses.is_dataclass(value) else _plain(value)
        for f in dataclasses.fields(config)
        for value in [getattr(config, f.name)]
        if not f.metadata.get("moves_no_number")
        and (complete or "added_later" not in f.metadata or value != f.metadata["added_later"])
    }


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over`` put in, section by section."""
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _convert(hint: Any, value: Any, path: str) -> Any:
    """``value`` as the type of its field, or a sentence saying what was expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        return from_dict(hint, value, f"{path}.")
    if origin is Literal:
        if value not in arguments:
            raise unknown(f"value for {path}", value, [str(choice) for choice in arguments])
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, path)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path} must be a list such as [0.45, 0.9], not {value!r}.")
        return tuple(_convert(arguments[0], item, path) for item in value)
    if hint is float and isinstance(value, str | int) and not isinstance(value, bool):  # YAML reads 1e-4 as a word
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    if hint in (int, float, str, bool):
        if type(value) is not hint:
            kinds = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
            raise UserError(f"{path} must be {kinds[hint]}, not {value!r}.")
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"{path} is a section with fields of its own, not the value {value!r}.")
    return dict(value)
