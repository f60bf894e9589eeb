"""Wrong input gets one clear sentence from IncrementalClassifier, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import TinyNet, make_blobs, make_learner, quick_learner, write_class_folders, write_images
from efcil import IncrementalClassifier
from efcil.engine.trainer import TrainingError
from efcil.errors import UserError
from efcil.methods import METHODS

CLASSES = ["cat", "dog"]
IMAGES, LABELS = make_blobs(CLASSES, 4)


@cache
def fitted() -> IncrementalClassifier:
    return quick_learner().partial_fit(IMAGES, LABELS)


def with_nan() -> Any:
    images = IMAGES / 255
    images[0, 0, 0, 0] = np.nan
    return images


BAD_IMAGES: dict[str, tuple[Any, str]] = {
    "two dimensions": (IMAGES[0, :, :, 0], "shape"),
    "five dimensions": (IMAGES[None], "shape"),
    "two channels": (IMAGES[..., :2], "1, 3 or 4 channels"),
    "array with channels first": (IMAGES.transpose(0, 3, 1, 2), r"shape \(N, H, W, C\)"),
    "tensor with channels last": (torch.from_numpy(IMAGES), r"shape \(N, C, H, W\)"),
    "int64": (IMAGES.astype(np.int64), "uint8 from 0 to 255, not int64"),
    "uint16": (IMAGES.astype(np.uint16), "uint8 from 0 to 255, not uint16"),
    "bool": (IMAGES > 100, "uint8 from 0 to 255, not bool"),
    "complex": (IMAGES.astype(complex), "uint8 from 0 to 255"),
    "objects": (IMAGES.astype(object), "images|pixels"),
    "NaN": (with_nan(), "NaN"),
    "infinite": (np.full(IMAGES.shape, np.inf), "NaN or infinite"),
    "above one": (IMAGES.astype(float), r"lie in \[0, 1\].*uint8"),
    "below zero": (IMAGES / 255 - 0.9, r"lie in \[0, 1\]"),
    "no images": (IMAGES[:0], r"not \(0, 8, 8, 3\)"),
    "no pixels": (IMAGES[:, :0], "shape"),
    "empty list": ([], "empty list"),
    "numbers": ([1, 2], "list of int"),
    "a mixed list": ([IMAGES[0], "a.png"], "list of ndarray, str"),
    "None": (None, "images must be"),
    "a generator": (iter(IMAGES), "images must be"),
    "a missing file": (["nowhere.png"] * 8, "no image file 'nowhere.png'"),
    "a list with an array of no shape": ([np.uint8(3)[()], IMAGES[0]], "images must"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_wrong_images_get_one_clear_sentence(name: str) -> None:
    images, message = BAD_IMAGES[name]
    with pytest.raises(UserError, match=message) as caught:
        quick_learner().partial_fit(images, LABELS)
    assert_one_sentence(caught.value)
    with pytest.raises(UserError, match=message):
        fitted().predict(images)


def assert_one_sentence(error: BaseException) -> None:
    text = str(error)
    assert "\n" not in text and text.endswith((".", "?", "…")) and len(text) < 400


BAD_LABELS: dict[str, tuple[Any, str]] = {
    "too few": (LABELS[:-1], "8 images but"),
    "too many": ([*LABELS, "cat"], "8 images but"),
    "none": ([], "8 images but"),
    "missing": (None, "labels are missing"),
    "real numbers": (np.linspace(0, 1, 8), "whole numbers or.* words"),
    "real numbers in a list": ([0.5] * 8, "whole numbers or.* words"),
    "a column": (np.zeros((8, 1), int), "flat list"),
    "ragged": ([[1]] * 7 + [[1, 2]], "flat list"),
    "one-hot": (np.eye(8, dtype=int), "flat list"),
    "None among words": ([*LABELS[:-1], None], "whole numbers or.* words"),
    "words and numbers": ([*LABELS[:-1], 1], "kind"),
    "one number": (5, "labels"),
    "one word": ("catalogs", "labels"),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_wrong_labels_get_one_clear_sentence(name: str) -> None:
    labels, message = BAD_LABELS[name]
    with pytest.raises(UserError, match=message) as caught:
        quick_learner().partial_fit(IMAGES, labels)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("labels", [LABELS[:-1], [0.5] * 8, LABELS[:1]])
def test_score_checks_its_labels(labels: Any) -> None:
    with pytest.raises(UserError, match="labels"):
        fitted().score(IMAGES, labels)


@pytest.mark.parametrize(("first", "second"), [([0, 1], ["cow", "elk"]), (["cat", "dog"], [3, 4])])
def test_labels_keep_one_kind_from_task_to_task(first: list[Any], second: list[Any]) -> None:
    classifier = quick_learner().partial_fit(*make_blobs(first))
    with pytest.raises(UserError, match=f"one kind.*{first[0]}.*{second[0]}"):
        classifier.partial_fit(*make_blobs(second))
    assert classifier.classes_.tolist() == first


@pytest.mark.parametrize("use", ["predict", "predict_proba", "decision_function"])
def test_nothing_can_be_predicted_before_something_is_learnt(use: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not learnt anything yet; call partial_fit first"):
        getattr(quick_learner(), use)(IMAGES)
    with pytest.raises(UserError, match="partial_fit first"):
        quick_learner().save(tmp_path / "a.efcil")
    assert not (tmp_path / "a.efcil").exists()


BAD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "efc+"}, r"no method called 'efc\+'; did you mean .*efc\+\+"),
    "method far off": ({"method": "zzz"}, r"no method called 'zzz'; there are: .*finetune"),
    "field": ({"widht": 4}, "no field called 'widht'; did you mean width"),
    "field of a section": ({"first": {"epoch": 4}}, "no field in first called 'epoch'; did you mean epochs"),
    "option": ({"options": {"lamda_efm": 4}}, "no field in options called 'lamda_efm'; did you mean lambda_efm"),
    "option of another method": ({"method": "finetune", "options": {"eta": 1.0}}, "'eta'"),
    "section as a value": ({"first": 3}, "first is a section"),
    "options as a value": ({"options": 3}, "options"),
    "word for a number": ({"width": "wide"}, "width must be a whole number"),
    "real for whole": ({"width": 4.5}, "width must be a whole number"),
    "negative": ({"epochs": -1}, "epochs must be at least 0"),
    "choice": ({"stem": "tiny"}, "value for stem called 'tiny'"),
    "augmentation": ({"augmentation": "crop_flap"}, "did you mean crop_flip"),
    "learning rate": ({"first": {"lr": -0.1}}, "lr must be at least 0"),
    "rebalancing": ({"options": {"rebalancing": {"epochs": -1}}}, "epochs must be at least 0"),
    "momentum of rebalancing": ({"options": {"rebalancing": {"momentum": -1.0}}}, "momentum must be at least 0"),
    "learning rate of the backbone": ({"first": {"backbone_lr": -0.1}}, "backbone_lr must be at least 0"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_wrong_settings_are_refused_at_once_with_the_nearest_names(name: str) -> None:
    settings, message = BAD_SETTINGS[name]
    with pytest.raises(UserError, match=message) as caught:
        IncrementalClassifier(**{"method": "efc++", **settings})
    assert_one_sentence(caught.value)


def test_an_unknown_backbone_and_one_without_feature_dim_are_refused() -> None:
    with pytest.raises(UserError, match="no backbone called 'resnet19'; did you mean resnet18"):
        IncrementalClassifier(backbone="resnet19", epochs=1).partial_fit(IMAGES, LABELS)
    with pytest.raises(UserError, match="needs the attribute feature_dim"):
        IncrementalClassifier(backbone=nn.Linear(3, 4))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(UserError, match=f"device '{device}' cannot be used"):
        quick_learner(device=device).partial_fit(IMAGES, LABELS)


def test_folders_that_cannot_be_learnt_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere is not a folder of class folders"):
        quick_learner().partial_fit(tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no class folders"):
        quick_learner().partial_fit(tmp_path)
    root = write_class_folders(tmp_path / "pets", IMAGES, LABELS)
    with pytest.raises(UserError, match="brings its own labels"):
        quick_learner().partial_fit(root, LABELS)
    (root / "empty").mkdir()
    with pytest.raises(UserError, match=r"class folder .*empty holds no images"):
        quick_learner().partial_fit(root)


@pytest.mark.parametrize("content", [b"", b"this is no image", None], ids=["empty", "text", "cut off"])
def test_an_image_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    paths = write_images(tmp_path, IMAGES)
    paths[3].write_bytes(paths[3].read_bytes()[:70] if content is None else content)
    for use in (lambda: quick_learner().partial_fit(paths, LABELS), lambda: fitted().predict(paths)):
        with pytest.raises(UserError, match=r"003.png.* cannot be read as an image.*replace or remove"):
            use()


# Losses that stop being numbers


class TurnsToNaN(TinyNet):
    """Makes something that is not a number of an image of a single colour."""

    def forward(self, x: Tensor) -> Tensor:
        flat = (x == x[:, :, :1, :1]).flatten(1).all(1)
        return torch.where(flat[:, None], torch.nan, super().forward(x))


def test_a_loss_that_is_not_a_number_stops_the_task_and_leaves_the_classifier_as_it_was() -> None:
    classifier = quick_learner(backbone=TurnsToNaN()).partial_fit(IMAGES, LABELS)
    before = classifier.decision_function(IMAGES)
    with pytest.raises(TrainingError, match=r"task 2, epoch 1 \(ce = nan\).*learning rate") as caught:
        classifier.partial_fit(np.zeros((4, 8, 8, 3), np.uint8), ["cow"] * 4)
    assert_one_paragraph(caught.value)
    assert classifier.classes_.tolist() == CLASSES
    assert np.array_equal(classifier.decision_function(IMAGES), before)
    classifier.partial_fit(*make_blobs(["elk"], 3))
    assert classifier.classes_.tolist() == ["cat", "dog", "elk"]


def assert_one_paragraph(error: BaseException) -> None:
    assert "\n" not in str(error) and str(error).endswith(".")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epochs", [1, 4], ids=["in the last step", "on the way"])
def test_a_learning_rate_that_is_far_too_large_is_a_training_error(method: str, epochs: int) -> None:
    classifier = make_learner(method, first={"lr": 1e30, "rotation": False, "epochs": epochs})
    with pytest.raises(TrainingError, match=r"task 1.*learning rate"):
        classifier.partial_fit(IMAGES, LABELS)
    assert classifier.tasks_ == []


# Checkpoints


OTHER_TASKS: dict[str, Callable[[Path], Any]] = {
    "other images": lambda path: quick_learner().partial_fit(255 - IMAGES, LABELS, checkpoint=path),
    "other classes": lambda path: quick_learner().partial_fit(IMAGES, np.char.add(LABELS, "s"), checkpoint=path),
    "other settings": lambda path: quick_learner(seed=1).partial_fit(IMAGES, LABELS, checkpoint=path),
    "another network": lambda path: make_learner().partial_fit(IMAGES, LABELS, checkpoint=path),
}


@pytest.mark.parametrize("other", OTHER_TASKS)
def test_a_checkpoint_of_another_task_is_refused(other: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.efcil"
    quick_learner().partial_fit(IMAGES, LABELS, checkpoint=checkpoint)
    with pytest.raises(UserError, match=r"checkpoint\.efcil belongs to another"):
        OTHER_TASKS[other](checkpoint)
