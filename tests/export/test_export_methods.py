"""Every method can be exported and answers alike, or says in one sentence why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from exported import ASKED, FIRST, agrees, looks, taught
from torch import Tensor, nn

from conftest import make_blobs, make_learner, quick_learner
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.export import export_classifier
from efcil.methods import METHODS

AT_ONCE = {"torch": ("efc++", "freeze", "fecam", "acil", "lda"), "onnx": ("lda",)}  # slow tests try all the others
REFUSED: dict[str, str] = {}  # methods that cannot be exported, with the words of the reason: there is none


def exported_and_asked(method: str, format: str, folder: Path) -> None:
    classifier, path = taught(method), folder / "model"
    if method in REFUSED:
        with pytest.raises(UserError, match=REFUSED[method]):
            export_classifier(classifier, path, format)
        assert list(folder.iterdir()) == []
        return
    made = export_classifier(classifier, path, format)
    assert made.largest_difference < 1e-5 and made.about["classes"] == ["cat", "dog", "elk"]
    images = looks(8)
    for part in (images[:1], images):
        agrees(classifier, ASKED[format](path, part), part)


def every_method(format: str) -> Any:
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name not in AT_ONCE[format]]
    return pytest.mark.parametrize("method", [*AT_ONCE[format], *slow])


@every_method("torch")
def test_every_method_as_torch(method: str, tmp_path: Path) -> None:
    exported_and_asked(method, "torch", tmp_path)


@every_method("onnx")
def test_every_method_as_onnx(method: str, tmp_path: Path) -> None:
    exported_and_asked(method, "onnx", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_an_anchor_that_shows_layers_of_odd_sides(format: str, tmp_path: Path) -> None:
    """Of 12 pixels the second stage of the network leaves 3."""
    classifier = make_learner("cargo", backbone="resnet9", image_size=12, options={"rank": 3})
    for classes in (["cat", "dog"], ["elk"]):
        classifier.partial_fit(*make_blobs(classes, size=12))
    assert export_classifier(classifier, tmp_path / "model", format).largest_difference < 1e-5
    images = looks(12)
    agrees(classifier, ASKED[format](tmp_path / "model", images), images)


# Methods and networks from outside that nobody has seen


class Choosy(Method):
    """Looks at the image before it decides how to compute, which no fixed program can."""

    name, year, idea = "choosy", 2031, "decides"

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return model.logits(features if features.sum() > 3 else -features)


class Moody(Method):
    """Answers differently every time."""

    name, year, idea = "moody", 2031, "changes"
    asked: ClassVar[int] = 0

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        Moody.asked += 1
        return model.logits(features) + Moody.asked * torch.arange(len(model.weight))


class Rare(Method):
    """Uses an operation on the features that ONNX has not."""

    name, year, idea = "rare", 2031, "decomposes"

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        values = torch.linalg.eigvalsh(features.T @ features)
        return model.logits(features * values)


class Far(Method):
    """Nearest class mean as a reader of CONTRIBUTING would write it."""

    name, year, idea = "far", 2031, "measures"

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return -torch.cdist(features, model.weight)


class Exact(Method):
    """Loses everything in numbers of four bytes."""

    name, year, idea = "exact", 2031, "adds and subtracts"

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return model.logits(features).double() + 1e9 - 1e9


class Doubting(nn.Module):
    feature_dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        colours = x.mean((2, 3)) * self.scale
        return colours if x.mean() > 0 else colours.square()


OUTSIDE = "test_export_methods"


@pytest.mark.parametrize(
    ("method", "format", "sentence"),
    [
        (f"{OUTSIDE}:Choosy", "onnx", r"the scores of .*Choosy are no function of the features that torch.export can"),
        (f"{OUTSIDE}:Moody", "torch", r"Nothing was written: the file would answer otherwise .* by up to 0\.\d"),
        pytest.param(
            *(f"{OUTSIDE}:Rare", "onnx", r"cannot be exported as ONNX, which has nothing for aten\._linalg_eigh"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_exported_says_why_and_leaves_nothing(
    method: str, format: str, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    classifier = quick_learner(method).partial_fit(*FIRST)
    before = tmp_path / "before.onnx"
    before.write_text("an earlier file")
    with pytest.raises(UserError, match=sentence) as refused:
        export_classifier(classifier, before, format)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 350
    assert before.read_text() == "an earlier file" and list(tmp_path.iterdir()) == [before]
    assert capfd.readouterr().out == ""


def test_a_network_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    classifier = quick_learner("finetune", backbone=Doubting()).partial_fit(*FIRST)
    with pytest.raises(UserError, match=r"the backbone Doubting is no function of the image that torch.export can"):
        export_classifier(classifier, tmp_path / "model.pt2", "torch")
    assert list(tmp_path.iterdir()) == []


def test_distances_do_not_depend_on_how_many_images_come(tmp_path: Path) -> None:
    """torch.cdist computes otherwise for more than 25."""
    classifier: Any = quick_learner(f"{OUTSIDE}:Far").partial_fit(
        *make_blobs([f"class {place}" for place in range(30)])
    )
    path = tmp_path / "far.pt2"
    export_classifier(classifier, path, "torch")
    for images in (looks(8)[:3], looks(8, 60)):
        agrees(classifier, ASKED["torch"](path, images), images)


@pytest.mark.slow
def test_numbers_of_eight_bytes_stay_where_four_are_too_few(tmp_path: Path) -> None:
    classifier, path = quick_learner(f"{OUTSIDE}:Exact").partial_fit(*FIRST), tmp_path / "exact.onnx"
    assert export_classifier(classifier, path).largest_difference < 1e-6
    agrees(classifier, ASKED["onnx"](path, looks(8)), looks(8), within=1e-6)
