"""What the tests of exported files share: small taught classifiers, and how a file is asked."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from conftest import QUICK, Images, make_blobs, make_learner, quick_learner
from efcil import IncrementalClassifier
from efcil.export import export_classifier

FIRST, LATER = make_blobs(["cat", "dog"]), make_blobs(["elk"])


def taught(method: str, **changes: Any) -> IncrementalClassifier:
    """Two lessons on a backbone of six features."""
    classifier = quick_learner(method, options=QUICK.get(method, {}), **changes)
    classifier.partial_fit(*FIRST)
    return classifier.partial_fit(*LATER, **({"past": FIRST} if classifier.needs_past else {}))


@cache
def network() -> IncrementalClassifier:
    """Two lessons on a small residual network that sees the middle 12 of 16 pixels; it can tell what is unknown."""
    settings: dict[str, Any] = {"image_size": 12, "preprocessing": {"crop": 0.75, "interpolation": "bicubic"}}
    classifier = make_learner("lda", backbone="resnet9", stem_stride=1, **settings)
    for classes in (["cat", "dog"], ["elk"]):
        classifier.partial_fit(*make_blobs(classes, size=16))
    return classifier


@cache
def exported_bytes(format: str) -> bytes:
    """The same as a file, which nothing else was written beside."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pets")
        export_classifier(network(), path, format)
        assert list(Path(folder).iterdir()) == [path]
        return path.read_bytes()


def looks(side: int, count: int = 30) -> Images:
    """Images of the classes and of noise, in numbers that no batch of the check has."""
    blobs, _ = make_blobs(["cat", "dog", "elk"], count // 3 - 2, size=side, seed=3)
    noise = np.random.default_rng(4).integers(0, 256, (count - len(blobs), side, side, 3), dtype=np.uint8)
    return np.concatenate([blobs, noise])


def asked_onnx(path: Path, images: Images) -> dict[str, Any]:
    """What onnxruntime says with the file."""
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


def asked_torch(path: Path, images: Images) -> dict[str, Any]:
    """What PyTorch says with the file."""
    answers = torch.export.load(path).module()(torch.from_numpy(images))
    return {name: told.numpy() for name, told in answers.items()}


ASKED = {"onnx": asked_onnx, "torch": asked_torch}


def agrees(classifier: IncrementalClassifier, said: dict[str, Any], images: Images, within: float = 1e-4) -> None:
    """Every number is the model's, and nothing is said that the method cannot tell."""
    answers = classifier.answers(images)
    np.testing.assert_allclose(said["probabilities"], answers.probabilities, rtol=0, atol=within)
    assert said["probabilities"].dtype == np.float32
    if answers.familiarity is None:
        assert set(said) == {"probabilities"}
        return
    assert set(said) == {"probabilities", "familiarity", "unknown"}
    np.testing.assert_allclose(said["familiarity"], answers.familiarity, rtol=0, atol=within)
    clear = np.abs(answers.familiarity - 0.05) > within
    assert clear.sum() > len(images) / 2 and (said["unknown"] == answers.unknown)[clear].all()
