"""Saved files that no accident makes: each is refused in a sentence, before it takes memory, and no honest file is."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_state import classifier_bytes, load, refused

from conftest import QUICK, TinyNet, make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.engine import state
from efcil.methods import METHODS

# Files that no accident makes: the checksum is right, the content is not


def forged(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any], content: bytes | None = None) -> bytes:
    """The saved classifier with this change to its tensors and its description, and the checksum that goes with it."""
    path.write_bytes(classifier_bytes() if content is None else content)
    tensors, meta = state.read(path, "classifier")
    change(tensors, meta)
    state.write(path, "classifier", tensors, meta)
    return path.read_bytes()


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


FORGERIES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    **{
        f"no {key}": (lambda tensors, meta, key=key: meta.pop(key), f"has no {key} of type")
        for key in ("config", "custom_backbone", "classes", "tasks", "preprocessing", "frozen_batchnorm")
    },
    "classes that are a word": (lambda t, m: m.update(classes="ab"), "has no classes of type list"),
    "a flag that is a number": (lambda t, m: m.update(frozen_batchnorm=1), "has no frozen_batchnorm of type bool"),
    "a billion classes": (lambda t, m: m.update(tasks=[10**9]), "its tasks have 1000000000 classes together, but 2"),
    "a task of no class": (lambda t, m: m.update(tasks=[2, 0]), r"whole numbers of at least 1, not \[2, 0\]"),
    "a task of half classes": (lambda t, m: m.update(tasks=[1.5, 0.5]), "whole numbers of at least 1"),
    "tasks otherwise cut": (lambda t, m: m.update(tasks=[1, 1]), r"model.heads.0 is missing or .* \(1, 6\)"),
    "nothing learnt": (lambda t, m: m.update(tasks=[], classes=[]), "whole numbers of at least 1"),
    "a class more": (lambda t, m: m["classes"].append("cow"), "2 classes together, but 3 are named"),
    "a class twice": (lambda t, m: m.update(classes=["cat", "cat"]), "names a class twice"),
    "classes of two kinds": (lambda t, m: m.update(classes=["cat", 1]), "one kind only"),
    "classes that are lists": (lambda t, m: m.update(classes=[["cat"], ["dog"]]), "flat list"),
    "a class beyond 64 bits": (lambda t, m: m.update(classes=[0, 2**64]), "64 bits"),
    "lessons without classes": (lambda t, m: m.update(lessons=[{"what": "taught"}]), "its lessons must be a list"),
    "lessons that are a number": (lambda t, m: m.update(lessons=3), "its lessons must be a list"),
    "a time too many": (lambda t, m: m.update(times=[None] * 5), "times must be a list, one for each lesson"),
    "times that are a number": (lambda t, m: m.update(times=3), "times must be a list"),
    "an unknown method": (lambda t, m: m["config"].update(method="frieze"), "no method called 'frieze'"),
    "an unknown setting": (lambda t, m: m["config"].update(colour=3), "no field called 'colour'"),
    "an unknown option": (lambda t, m: m["config"].update(options={"x": 1}), "no field in options called 'x'"),
    "an anchor of another kind": (
        lambda t, m: m.update(anchored="tail"),
        "its anchor shows 'tail', not layers or feat",
    ),
    "an anchor that is missing": (lambda t, m: m.update(anchored="layers"), "model.heads.0 is missing or"),
    "no side": (lambda t, m: m["preprocessing"].pop("size"), "preprocessing.size is missing"),
    "a side of zero": (lambda t, m: m["preprocessing"].update(size=0), "pixels cannot be shown with 0"),
    "two channels": (lambda t, m: m["preprocessing"].update(mean=[0.5, 0.5]), "three numbers each"),
    "a spread of zero": (lambda t, m: m["preprocessing"].update(std=[0.0] * 3), "std above zero"),
    "a mean that is no number": (lambda t, m: m["preprocessing"].update(mean=[float("nan")] * 3), "three numbers each"),
    "no head": (lambda t, m: t.pop("model.heads.0"), "model.heads.0 is missing"),
    "a head too many": (lambda t, m: t.update({"model.heads.1": zeros(2, 6)}), "differs in model.heads.1"),
    "a head of another size": (lambda t, m: t.update({"model.heads.0": zeros(2, 7)}), r"model.heads.0 .* \(2, 6\)"),
    "no weight": (lambda t, m: t.pop("model.backbone.linear.weight"), "does not fit the backbone .*linear.weight"),
    "another weight": (lambda t, m: t.update({"model.backbone.linear.bias": zeros(9)}), "does not fit .*linear.bias"),
    "a tensor of nobody": (lambda t, m: t.update({"extra": zeros(1)}), "differs in extra"),
    "NaN in a weight": (lambda t, m: t["model.heads.0"].fill_(torch.nan), "model.heads.0 holds NaN"),
    "NaN in the memory": (lambda t, m: t["method.means"].fill_(torch.nan), "method.means holds NaN"),
    "infinity in the memory": (lambda t, m: t["method.means"].fill_(torch.inf), "method.means holds infinite"),
    "a function's name": (lambda t, m: t.update({"method.scores": zeros(2)}), "freeze does not keep .*method.scores"),
    "no memory": (lambda t, m: t.pop("method.means"), "freeze needs a tensor method.means"),
    "a memory of other classes": (
        lambda t, m: t.update({"method.means": zeros(3, 6)}),
        r"method.means must be float32 of shape \(2, 6\), not float32 of shape \(3, 6\)",
    ),
    "a memory of whole numbers": (lambda t, m: t.update({"method.means": zeros(2, 6).long()}), "not int64 of shape"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused_in_a_sentence_that_names_it(name: str, tmp_path: Path) -> None:
    change, message = FORGERIES[name]
    path = tmp_path / "forged.efcil"
    assert re.search(message, refused(path, forged(path, change)))


# The same for a network of our own, which is loaded or serves another classifier as its backbone


@cache
def network_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.efcil"
        make_learner("finetune").partial_fit(*make_blobs(["cat", "dog"])).save(path)
        return path.read_bytes()


def as_backbone(path: Path) -> IncrementalClassifier:
    return make_learner("freeze", backbone=str(path)).partial_fit(*make_blobs(["cow", "hen"]))


NETWORK_FORGERIES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    **{
        name: FORGERIES[name] for name in FORGERIES if name.startswith("no ") and name not in ("no weight", "no memory")
    },
    **{name: FORGERIES[name] for name in ("a billion classes", "a class twice", "an unknown setting")},
    **{name: FORGERIES[name] for name in ("a side of zero", "two channels", "a spread of zero", "NaN in a weight")},
    "no weight": (lambda t, m: t.pop("model.backbone.stem.conv.weight"), r"does not fit .*stem.conv.weight"),
    "another weight": (lambda t, m: t.update({"model.backbone.stem.conv.weight": zeros(9)}), "does not fit .*stem"),
    "infinity in a weight": (
        lambda t, m: t["model.backbone.stem.conv.weight"].fill_(torch.inf),
        "conv.weight holds inf",
    ),
    "infinity in a head": (lambda t, m: t["model.heads.0"].fill_(torch.inf), "model.heads.0 holds infinite"),
    "a network nobody knows": (lambda t, m: m["architecture"].update(name="resnet99"), "no backbone called 'resnet99'"),
    "an architecture that is a word": (lambda t, m: m.update(architecture="resnet18"), "architecture is a section"),
    "a field of no architecture": (lambda t, m: m["architecture"].update(depth=3), "no field in architecture"),
    "a negative width": (lambda t, m: m["architecture"].update(width=-4), "a network of width -4"),
    "a width of words": (lambda t, m: m["architecture"].update(width="wide"), "architecture.width"),
    "a stem that is none": (lambda t, m: m["architecture"].update(stem="medium"), "with a 'medium' stem"),
    "no stride": (lambda t, m: m["architecture"].update(stem_stride=0), "stem of stride 0"),
}


@pytest.mark.parametrize("read", [IncrementalClassifier.load, as_backbone], ids=["loaded", "as backbone"])
@pytest.mark.parametrize("name", NETWORK_FORGERIES)
def test_a_forged_network_is_refused_in_a_sentence_that_names_it(
    name: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    change, message = NETWORK_FORGERIES[name]
    path = tmp_path / "forged.efcil"
    content = forged(path, change, network_bytes())
    assert re.search(message, refused(path, content, read))


def test_a_network_that_was_not_forged_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.efcil"
    path.write_bytes(network_bytes())
    assert as_backbone(path).classes_.tolist() == ["cow", "hen"]
    assert IncrementalClassifier.load(path).classes_.tolist() == ["cat", "dog"]


def test_a_mask_may_be_infinite(tmp_path: Path) -> None:
    """Transformers hide places with −∞, in a buffer that nobody learns."""
    backbone = TinyNet()
    backbone.register_buffer("mask", torch.full((3,), -torch.inf))
    make_learner("freeze", backbone=backbone).partial_fit(*make_blobs(["cat", "dog"])).save(tmp_path / "a.efcil")
    assert IncrementalClassifier.load(tmp_path / "a.efcil", backbone=backbone).tasks_ == [2]


# What methods keep: numbers that cannot be true of each other

KEPT_FORGERIES: dict[str, tuple[str, dict[str, torch.Tensor], str]] = {
    "too many rows": ("lda", {"counts": torch.tensor([7, 6])}, "ask for 11 rows of factors, but there are 10"),
    "too few rows": ("lda", {"counts": torch.tensor([6, 5])}, "ask for 9 rows of factors, but there are 10"),
    "a class of no image": ("lda", {"counts": torch.tensor([0, 12])}, "a class of 0 images is counted"),
    "less than no image": ("lda", {"counts": torch.tensor([-3, 6])}, "a class of -3 images is counted"),
    "countless images": ("lda", {"counts": torch.full((2,), 2**62)}, "ask for 12 rows of factors"),
    "means of half the bits": ("lda", {"means": zeros(2, 6)}, "must be float64 of shape .* not float32"),
    "rows that are no share": ("efc++", {"factor_rows": torch.tensor([99, 1])}, "must share out"),
    "means of twice the bits": ("efc++", {"means": zeros(2, 6).double()}, "must be float32 of shape .* not float64"),
    "covariances of nothing": ("apr", {"covariance_factors": zeros(2, 6, 6)}, "its numbers do not belong together"),
    "spreads of nothing": ("adagauss", {"covariance_factors": zeros(2, 6, 6)}, "its numbers do not belong together"),
    "an EFM of half the bits": ("efc++", {"efm": zeros(6, 6).half()}, "must be float32 of shape .* not float16"),
}


@pytest.mark.parametrize("name", KEPT_FORGERIES)
def test_forged_numbers_of_a_method_are_refused(name: str, tmp_path: Path) -> None:
    method, changed, message = KEPT_FORGERIES[name]
    path = tmp_path / "a.efcil"
    make_learner(method, backbone=TinyNet(), options=QUICK.get(method, {})).partial_fit(
        *make_blobs(["cat", "dog"])
    ).save(path)
    tensors, meta = state.read(path, "classifier")
    state.write(path, "classifier", {**tensors, **state.prefixed("method", changed)}, meta)
    assert re.search(message, refused(path, path.read_bytes()))


def test_a_network_wider_than_the_file_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    path = tmp_path / "wide.efcil"
    content = forged(path, lambda t, m: m["architecture"].update(width=10**6), network_bytes())  # petabytes of weights
    for read in (IncrementalClassifier.load, as_backbone):
        assert "model.heads.0" in refused(path, content, read)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_what_every_method_keeps_after_each_task_is_accepted(method: str, tasks: int, tmp_path: Path) -> None:
    classifier = make_learner(method, backbone=TinyNet(), options=QUICK.get(method, {}))
    first = make_blobs(["cat", "dog"])
    for task in [first, make_blobs(["cow"], 3)][:tasks]:
        classifier.partial_fit(*task, past=first if classifier.needs_past else None)
    classifier.save(tmp_path / "a.efcil")
    loaded = load(tmp_path / "a.efcil")
    assert np.array_equal(loaded.decision_function(first[0]), classifier.decision_function(first[0]))


def test_unknown_sizes_must_agree_within_a_file(tmp_path: Path) -> None:
    """The bottleneck of AdaGauss has a length of its own, the same in all of its tensors."""
    path = tmp_path / "a.efcil"
    make_learner("adagauss", backbone=TinyNet(), options={"bottleneck": 3}).partial_fit(
        *make_blobs(["cat", "dog"])
    ).save(path)
    tensors, meta = state.read(path, "classifier")
    state.write(path, "classifier", {**tensors, "method.means": zeros(2, 4)}, meta)
    assert "method.means must be float32 of shape (2, 3)" in refused(path, path.read_bytes())
