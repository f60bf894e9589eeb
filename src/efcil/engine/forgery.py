"""Whether a file is a saved classifier through and through, before anything of it is allocated or used.

The checksum finds accidents. These checks find what no accident makes, such as a description that promises more than
the tensors hold, so that every file is either loaded or refused in a sentence that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efcil.backbones.pretrained import Architecture
from efcil.engine.method import Method, words_and_type
from efcil.engine.model import IncrementalModel
from efcil.engine.preprocessing import Preprocessing
from efcil.errors import UserError

KEYS: dict[str, type] = {
    "config": dict,
    "custom_backbone": bool,
    "classes": list,
    "tasks": list,
    "preprocessing": dict,
    "frozen_batchnorm": bool,
}


def refused(path: Path, what: str) -> UserError:
    return UserError(f"{path} cannot be used: {what}; restore it from a copy.")


def check_classes(path: Path, classes: Sequence[Any], tasks: Sequence[Any]) -> None:
    """Every class once, and in one of the tasks."""
    if not tasks or any(type(count) is not int or count < 1 for count in tasks):
        raise refused(path, f"its tasks must be whole numbers of at least 1, not {list(tasks)!s:.60}")
    if sum(tasks) != len(classes):
        raise refused(path, f"its tasks have {sum(tasks)} classes together, but {len(classes)} are named")
    if len(set(classes)) != len(classes):
        raise refused(path, "it names a class twice")


def check_lessons(path: Path, lessons: Any, times: Any) -> None:
    """A list of what happened, each with its classes, and as many times, which the checksum leaves out."""
    if not isinstance(lessons, list) or not all(
        isinstance(lesson, dict) and isinstance(lesson.get("classes"), dict) for lesson in lessons
    ):
        raise refused(path, "its lessons must be a list, each with its classes")
    if not isinstance(times, list) or len(times) != len(lessons):
        raise refused(path, "its times must be a list, one for each lesson")


def check_preprocessing(path: Path, preprocessing: Preprocessing) -> None:
    """Sides of images, and three channels that can be normalised."""
    p = preprocessing
    if not 1 <= p.size <= p.stored:
        raise refused(path, f"images of {p.stored} pixels cannot be shown with {p.size}")
    numbers = [*p.mean, *p.std]
    if (len(p.mean), len(p.std)) != (3, 3) or not all(map(math.isfinite, numbers)) or min(p.std) <= 0:
        raise refused(path, f"its mean {p.mean} and std {p.std} must be three numbers each, the std above zero")


def check_architecture(path: Path, architecture: Architecture) -> None:
    """A network that can be built; its name is looked up by whoever builds it."""
    a = architecture
    if a.width < 1 or a.stem not in ("small", "large") or a.stem_stride < 1:
        raise refused(path, f"a network of width {a.width} with a {a.stem!r} stem of stride {a.stem_stride} is none")


def check_network(path: Path, tensors: Mapping[str, Tensor], pattern: IncrementalModel, tasks: Sequence[int]) -> None:
    """A head for every task, the tensors of the backbone, and no others; nothing that is learnt is infinite."""
    heads = {f"model.heads.{index}": (count, pattern.feature_dim) for index, count in enumerate(tasks)}
    backbone = {f"model.backbone.{name}": tuple(t.shape) for name, t in pattern.backbone.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name, shape in heads.items():
        if found.pop(name, None) != shape:
            raise refused(path, f"{name} is missing or has not the shape {shape} that its tasks ask for")
    if found != backbone:
        differing = min(name for name in found.keys() | backbone.keys() if found.get(name) != backbone.get(name))
        raise UserError(
            f"{path} does not fit the backbone (it differs in {differing}); give the one it was saved with."
        )
    learnt = [f"model.backbone.{name}" for name, _ in pattern.backbone.named_parameters()]  # a mask may be infinite
    for name in [*heads, *learnt]:
        if not torch.isfinite(tensors[name]).all():
            raise refused(path, f"{name} holds infinite numbers")


def check_kept(path: Path, kept: Mapping[str, Tensor], method: Method, sizes: Mapping[str, int]) -> None:
    """What the method declares and nothing else, in its shapes; a size that is not known is the same everywhere."""
    declared = method.kept_shapes()
    if any(shape is None and name in declared and name not in kept for name, shape in method.earlier_shapes.items()):
        earlier = {**declared, **method.earlier_shapes}
        declared = {name: shape for name, shape in earlier.items() if shape is not None}
    if not kept and not method.state():  # it keeps something from a later task on
        return
    for name in sorted(kept.keys() ^ declared.keys()):
        what = "does not keep" if name in kept else "needs"
        raise refused(path, f"{method.name} {what} a tensor method.{name}")
    known = dict(sizes)
    for name, shape in declared.items():
        words, dtype = words_and_type(shape)
        known |= {word: int(word) for word in words if word.isdigit()}
        tensor = kept[name]
        same = len(words) == tensor.ndim and all(
            known.setdefault(word, size) == size for word, size in zip(words, tensor.shape, strict=True)
        )
        if not same or str(tensor.dtype) != f"torch.{dtype}":
            wanted = ", ".join(str(known.get(word, word)) for word in words)
            raise refused(path, f"method.{name} must be {dtype} of shape ({wanted}), not {description(tensor)}")
        if not torch.isfinite(tensor).all():
            raise refused(path, f"method.{name} holds infinite numbers")


def description(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
