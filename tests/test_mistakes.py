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

from conftest import QUICK, TinyNet, make_blobs, make_learner, quick_learner, write_class_folders, write_images
from efcil import IncrementalClassifier
from efcil.engine.progress import Silent
from efcil.engine.trainer import TrainingError
from efcil.errors import UserError, unknown
from efcil.methods import METHODS

CLASSES = ["cat", "dog"]
IMAGES, LABELS = make_blobs(CLASSES, 4)
CHANNELS_FIRST = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


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
    "one image as a tensor with channels last": (torch.from_numpy(IMAGES[0]), r"\(8, 8, 3\) can be meant in two ways"),
    "one image with alpha or four": (torch.zeros(4, 8, 8), r"two ways; give \(1, C, H, W\) for one .*\(N, 1, H, W\)"),
    "one image or three of three columns": (IMAGES[0, :3], r"two ways; give \(1, H, W, C\) for one .*\(N, H, W, 1\)"),
    "one column or greyscale images": (IMAGES[0, :, :3], "two ways"),
    "on a device without memory": (CHANNELS_FIRST.to("meta"), "device meta, which holds no pixels"),
    "an array of no shape": (np.array(3, np.uint8), "shape"),
    "a tensor of no shape": (torch.tensor(3, dtype=torch.uint8), "shape"),
    "an array of None": (np.array(None), "NoneType"),
    "an empty array of objects": (np.array([], dtype=object), "empty list"),
    "lists in lists": (IMAGES.tolist(), "list of list"),
    "no images": (IMAGES[:0], r"not \(0, 8, 8, 3\)"),
    "no pixels": (IMAGES[:, :0], "shape"),
    "empty list": ([], "empty list"),
    "numbers": ([1, 2], "list of int"),
    "a mixed list": ([IMAGES[0], "a.png"], "list of ndarray, str"),
    "None": (None, "images must be"),
    "a generator of nothing": (iter([]), "images must be.*an empty list"),
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
    "a set": (set(LABELS), "labels must be a list"),
    "beyond 64 bits": ([0] * 7 + [2**63], "fit into 64 bits, which 9223372036854775808 does not"),
    "far below zero": ([0] * 7 + [-(10**30)], "fit into 64 bits, which -10000"),
    "unsigned": (np.array([0] * 7 + [2**64 - 1], np.uint64), "fit into 64 bits"),
    "an invisible ending": ([*LABELS[:-1], "dog\0"], "must not end with"),
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


@pytest.mark.parametrize(("learnt", "asked"), [(["cat", "dog"], [0, 1]), ([0, 1], ["0", "1"])])
def test_score_takes_labels_of_the_kind_that_was_learnt(learnt: list[Any], asked: list[Any]) -> None:
    classifier = quick_learner().partial_fit(*make_blobs(learnt))
    with pytest.raises(UserError, match=f"one kind.*like {learnt[0]!r}, these like {asked[0]!r}") as caught:
        classifier.score(make_blobs(learnt)[0], np.repeat(asked, 6))
    assert_one_sentence(caught.value)


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
    "method far off": ({"method": "zzz"}, "no method called 'zzz'; `efcil methods` lists all"),
    "field": ({"widht": 4}, "no field called 'widht'; did you mean width"),
    "option outside its section": ({"eta": 1}, "There is no field eta; did you mean options.eta"),
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


def test_an_unknown_backbone_is_refused() -> None:
    with pytest.raises(UserError, match="no backbone called 'resnet19'; did you mean resnet"):
        IncrementalClassifier(backbone="resnet19", epochs=1).partial_fit(IMAGES, LABELS)


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


# Backbones of one's own


class Gives(nn.Module):
    """A backbone that makes of six right features what a mistake would make of them."""

    feature_dim: Any = 6

    def __init__(self, spoil: Callable[[Tensor], Any], feature_dim: Any = 6) -> None:
        super().__init__()
        self.net, self.spoil, self.feature_dim = TinyNet(), spoil, feature_dim

    def forward(self, x: Tensor) -> Any:
        return self.spoil(self.net(x))


class Patches(nn.Module):
    """As a vision transformer: it has a position for the whole and for each of four patches of 8 pixels, no more."""

    feature_dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Conv2d(3, 6, 8, 8), nn.Parameter(torch.zeros(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).flatten(2).mT
        return (torch.cat([patches.mean(1, keepdim=True), patches], dim=1) + self.positions).mean(1)


class TwoWhileTraining(TinyNet):
    def forward(self, x: Tensor) -> Any:
        return (super().forward(x), x) if self.training else super().forward(x)


BAD_BACKBONES: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (lambda: TinyNet, r"an nn.Module, not .*TinyNet.*by calling it"),
    "a function": (lambda: len, "an nn.Module, not <built-in function len>"),
    "no feature_dim": (lambda: nn.Linear(3, 4), r"needs the attribute feature_dim.*not None"),
    "a feature_dim of zero": (lambda: Gives(lambda f: f, 0), "feature_dim.*at least 1, not 0"),
    "a feature_dim that is a word": (lambda: Gives(lambda f: f, "6"), "feature_dim.*not '6'"),
    "no parameters": (lambda: without_parameters(), "Flatten has no parameters"),
    "lazy layers": (lambda: lazy(), "LazyLinear has lazy layers"),
    "a wrong feature_dim": (
        lambda: Gives(lambda f: f, 7),
        r"Gives gives a tensor \(2, 6\) for images of the shape \(2, 3, 8, 8\).*for a tensor \(2, 7\).*feature_dim",
    ),
    "a classifier at its end": (
        lambda: Gives(lambda f: f.repeat(1, 5)),
        r"\(2, 30\).*\(2, 6\).*take away a classifier",
    ),
    "not flattened": (lambda: Gives(lambda f: f[:, :, None, None]), r"\(2, 6, 1, 1\).*\(2, 6\); flatten or pool"),
    "images left out": (lambda: Gives(lambda f: f[:1]), r"\(1, 6\).*\(2, 6\)"),
    "a tuple": (lambda: Gives(lambda f: (f, f)), r"gives tuple for images.*\(2, 6\); return the features alone"),
    "nothing": (lambda: Gives(lambda f: None), "gives NoneType"),
    "a tuple while it is trained": (TwoWhileTraining, "gives tuple"),
    "whole numbers": (lambda: Gives(lambda f: f.long()), "features of torch.int64; make them torch.float32"),
    "another image size": (
        Patches,
        r"fails on images of the shape \(2, 3, 8, 8\) \(RuntimeError: .*\).*set image_size",
    ),
    "an error of its own": (lambda: Gives(lambda f: [][0]), r"fails on .*\(IndexError: list index out of range\)"),
}


def without_parameters() -> nn.Module:
    module = nn.Flatten()
    module.feature_dim = 192  # type: ignore[assignment]
    return module


def lazy() -> nn.Module:
    module = nn.LazyLinear(6)
    module.feature_dim = 6  # type: ignore[assignment]
    return module


class Unwatched(Silent):
    """Fails the test when training begins."""

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        raise AssertionError("training has begun")


@pytest.mark.parametrize("name", BAD_BACKBONES)
def test_a_wrong_backbone_is_refused_before_training_with_the_shape_that_came_out(name: str) -> None:
    make, message = BAD_BACKBONES[name]
    with pytest.raises(UserError, match=message) as caught:
        quick_learner(backbone=make(), watcher=Unwatched()).partial_fit(IMAGES, LABELS)
    assert_one_sentence(caught.value)


def test_a_backbone_is_checked_with_images_of_the_size_that_it_will_see() -> None:
    classifier = quick_learner(backbone=Patches(), image_size=16).partial_fit(IMAGES, LABELS)
    assert classifier.predict(IMAGES).shape == (8,)


def test_the_check_leaves_statistics_and_random_numbers_as_they_are() -> None:
    class Counting(TinyNet):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(self.norm(super().forward(x)), 0.5, self.training)

    classifier = quick_learner(backbone=Counting(), epochs=0, first={})
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    classifier.partial_fit(IMAGES, LABELS)
    assert torch.equal(torch.rand(4), expected)
    assert classifier._fitted()[0].backbone.norm.num_batches_tracked == 0  # type: ignore[union-attr]


# Places that cannot be written


@pytest.mark.parametrize("name", ["", ".", "folder", "file/a.efcil", "a\0b", "x" * 300])
def test_a_place_that_cannot_be_written_is_named_and_nothing_is_lost(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"cannot be written .*; choose another place") as caught:
        fitted().save(f"{tmp_path}/{name}" if name else name)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "mine"


# Features of any size


class Large(TinyNet):
    """A backbone that was trained without any norm, with features in the hundred thousands."""

    def forward(self, x: Tensor) -> Tensor:
        return 1e5 * super().forward(x)


@pytest.mark.parametrize("method", METHODS)
def test_large_features_are_remembered_like_small_ones(method: str) -> None:
    classifier = make_learner(method, backbone=Large(), epochs=0, options=QUICK.get(method, {}))
    past = (IMAGES, LABELS) if classifier.needs_past else None
    classifier.partial_fit(IMAGES, LABELS).partial_fit(*make_blobs(["cow", "elk"], 3), past=past)
    assert np.isfinite(classifier.decision_function(IMAGES)).all()


@pytest.mark.parametrize(
    ("kind", "choices", "hint"),
    [
        ("colour", [], "there is none."),
        ("colour", ["red", "blue"], "there are: blue, red."),
        ("claim", [f"q{number}" for number in range(90)], "`efcil claims` lists all 90."),
        ("class", [f"q{number}" for number in range(14)], "q10, q11 and 2 more."),
    ],
)
def test_of_many_names_a_sentence_has_some_or_the_command_for_all(kind: str, choices: list[str], hint: str) -> None:
    assert str(unknown(kind, "zzz", choices)).endswith(hint)
