"""IncrementalClassifier as a user meets it: every kind of images and labels, one clear sentence for every mistake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import efcil
from conftest import Images, TinyNet, make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.errors import UserError
from efcil.methods import METHODS
from efcil.trainer import TrainingError

CLASSES = ["cat", "dog"]
IMAGES, LABELS = make_blobs(CLASSES, 4)
CHANNELS_FIRST = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


def quick(method: str = "finetune", **changes: Any) -> IncrementalClassifier:
    """A classifier over a backbone of six features, which learns in milliseconds."""
    return make_learner(method, **{"backbone": TinyNet(), "first": {"lr": 0.05, "epochs": 30}, **changes})


@cache
def fitted() -> IncrementalClassifier:
    return quick().partial_fit(IMAGES, LABELS)


def written(folder: Path, images: Images = IMAGES, suffix: str = "png") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:03}.{suffix}" for index in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def class_folders(root: Path) -> Path:
    for name in CLASSES:
        written(root / name, IMAGES[name == LABELS])
    return root


# Kinds of images

KINDS: dict[str, Callable[[Path], Any]] = {
    "uint8 array": lambda folder: IMAGES,
    "float32 array": lambda folder: IMAGES.astype(np.float32) / 255,
    "float64 array": lambda folder: IMAGES / 255,
    "tensor": lambda folder: CHANNELS_FIRST,
    "float tensor": lambda folder: CHANNELS_FIRST.float() / 255,
    "array with alpha": lambda folder: np.concatenate([IMAGES, IMAGES[..., :1]], axis=-1),
    "reversed view": lambda folder: IMAGES[::-1][::-1],
    "fortran order": lambda folder: np.asfortranarray(IMAGES),
    "list of arrays": lambda folder: list(IMAGES),
    "list of tensors": lambda folder: list(CHANNELS_FIRST),
    "tuple of PIL images": lambda folder: tuple(Image.fromarray(image) for image in IMAGES),
    "list of paths": written,
    "list of path strings": lambda folder: [str(path) for path in written(folder)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_in_any_form_are_the_same_to_learn_and_to_predict(kind: str, tmp_path: Path) -> None:
    images = KINDS[kind](tmp_path)
    expected = fitted().decision_function(IMAGES)
    assert np.array_equal(fitted().decision_function(images), expected)
    learnt = quick(image_size=8).partial_fit(images, LABELS)
    assert np.array_equal(learnt.decision_function(IMAGES), expected)


def test_a_folder_of_class_folders_brings_its_labels(tmp_path: Path) -> None:
    classifier = quick(image_size=8).partial_fit(class_folders(tmp_path))
    assert classifier.classes_.tolist() == CLASSES
    assert np.array_equal(classifier.decision_function(IMAGES), fitted().decision_function(IMAGES))
    assert quick(image_size=8).partial_fit(str(tmp_path)).classes_.tolist() == CLASSES


def test_greyscale_arrays_are_grey_colour_images() -> None:
    grey = IMAGES[..., 0]
    as_colour = np.repeat(grey[..., None], 3, axis=-1)
    for images in (grey, grey[..., None], torch.from_numpy(grey), torch.from_numpy(grey)[:, None]):
        assert np.array_equal(fitted().decision_function(images), fitted().decision_function(as_colour))


def test_arrays_of_different_sizes_and_channels_are_brought_to_one() -> None:
    sizes = [(8, 8, 3), (12, 9, 3), (9, 16, 4), (10, 10)]
    images = [np.full(size, 50 + 40 * index, np.uint8) for index, size in enumerate(sizes)]
    classifier = quick().partial_fit(images, [0, 1, 0, 1])
    assert classifier.stored_size == 8
    large = [np.full((*size, 3), 90, np.uint8) for size in ((40, 30), (8, 8), (8, 64))]
    scores = classifier.decision_function(large)  # one colour at any size is the same image
    assert np.array_equal(scores[0], scores[1]) and np.array_equal(scores[1], scores[2])


def test_images_of_other_sizes_are_brought_to_the_size_of_the_first_task() -> None:
    images, labels = make_blobs(["cow"], 4, size=13)
    classifier = quick().partial_fit(IMAGES, LABELS).partial_fit(images, labels)
    assert classifier.stored_size == 8
    assert classifier.decision_function(images).shape == (4, 3)


def test_files_are_read_with_64_pixels_unless_a_size_is_asked_for(tmp_path: Path) -> None:
    paths = written(tmp_path)
    assert quick().partial_fit(paths, LABELS).stored_size == 64
    assert quick(image_size=16).partial_fit(paths, LABELS).stored_size == 16


@pytest.mark.parametrize("images", [IMAGES, IMAGES / 255], ids=["uint8", "float"])
def test_a_read_only_array_is_fine_and_stays_as_it_is(images: Any) -> None:
    images = images.copy()
    images.flags.writeable = False
    before = images.copy()
    assert np.array_equal(quick().partial_fit(images, LABELS).predict(images), fitted().predict(IMAGES))
    assert np.array_equal(images, before)


def test_the_users_array_is_not_changed() -> None:
    images = IMAGES.copy()
    quick(augmentation="crop_flip").partial_fit(images, LABELS).predict(images)
    assert np.array_equal(images, IMAGES)


# Labels and answers


@pytest.mark.parametrize(
    ("labels", "classes", "kind"),
    [
        (LABELS, ["cat", "dog"], "U"),
        (LABELS.tolist(), ["cat", "dog"], "U"),
        (LABELS.astype(object), ["cat", "dog"], "U"),
        ([7] * 4 + [3] * 4, [3, 7], "i"),
        (np.array([7] * 4 + [3] * 4, np.uint8), [3, 7], "i"),
        (torch.tensor([7] * 4 + [3] * 4), [3, 7], "i"),
        ([-1] * 4 + [True] * 4, [-1, 1], "i"),
        (["ünï", "日本"] * 4, ["ünï", "日本"], "U"),
    ],
)
def test_labels_are_whole_numbers_or_words(labels: Any, classes: list[Any], kind: str) -> None:
    classifier = quick().partial_fit(IMAGES, labels)
    assert classifier.classes_.tolist() == classes and classifier.classes_.dtype.kind == kind
    assert classifier.predict(IMAGES).dtype.kind == kind
    assert set(classifier.predict(IMAGES)) <= set(classes)


@pytest.mark.parametrize("names", [["cat", "dog", "a very long class name", "b"], [10, 2, 30, 4]])
def test_predict_proba_score_and_classes_agree(names: list[Any]) -> None:
    first, second = make_blobs(names[:2]), make_blobs(names[2:])
    classifier = quick("freeze").partial_fit(*first).partial_fit(*second)
    assert classifier.classes_.tolist() == sorted(names[:2]) + sorted(names[2:])
    images, labels = (np.concatenate(part) for part in zip(first, second, strict=True))
    probabilities = classifier.predict_proba(images)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    predicted = classifier.predict(images)
    assert (predicted == classifier.classes_[probabilities.argmax(1)]).all()
    assert classifier.score(images, labels) == np.mean(predicted == labels) > 0.9
    assert classifier.score(images, list(labels)) == classifier.score(images, labels)


def test_predictions_do_not_depend_on_what_else_is_in_the_call() -> None:
    images, _ = make_blobs(["cat", "dog"], 150, seed=3)  # more than one batch of evaluation
    together = fitted().decision_function(images)
    np.testing.assert_allclose(together[:7], fitted().decision_function(images[:7]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(together[-7:], fitted().decision_function(images[-7:]), rtol=1e-4, atol=1e-5)


def test_settings_are_stored_and_reachable() -> None:
    classifier = IncrementalClassifier(epochs=3, first={"lr": 0.5}, seed=4, options={"eta": 0.3})
    assert classifier.config.first.epochs == classifier.config.incremental.epochs == 3
    assert classifier.config.first.lr == 0.5 and classifier.config.first.batch_size == 64
    assert classifier.config.seed == 4 and classifier.config.options["eta"] == 0.3
    assert IncrementalClassifier(epochs=3, first={"epochs": 7}).config.first.epochs == 7


def test_public_names() -> None:
    assert efcil.IncrementalClassifier is IncrementalClassifier
    assert set(efcil.available_methods()) == set(METHODS)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = efcil.nonsense  # type: ignore[attr-defined]


# A backbone of one's own


def test_a_backbone_of_ones_own_is_saved_with_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "own.efcil"
    fitted().save(path)
    blank = TinyNet()
    nn.init.zeros_(blank.linear.weight)
    for loaded in (IncrementalClassifier.load(path, backbone=blank), efcil.load(str(path), backbone=blank)):
        assert np.array_equal(loaded.decision_function(IMAGES), fitted().decision_function(IMAGES))
        loaded.partial_fit(*make_blobs(["cow"], 3))
        assert loaded.classes_.tolist() == ["cat", "dog", "cow"]
    assert (blank.linear.weight == 0).all()  # the module that was given is only a pattern


def test_a_backbone_of_ones_own_is_not_changed_by_learning() -> None:
    backbone = TinyNet()
    before = backbone.linear.weight.clone()
    quick(backbone=backbone).partial_fit(IMAGES, LABELS)
    assert torch.equal(backbone.linear.weight, before)


def test_loading_needs_the_backbone_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "own.efcil"
    fitted().save(path)
    with pytest.raises(UserError, match=r"backbone of its own \(TinyNet\); pass it as backbone="):
        IncrementalClassifier.load(path)

    class Other(nn.Module):
        feature_dim = 6

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 6)

    with pytest.raises(UserError, match=r"own\.efcil does not fit the backbone"):
        IncrementalClassifier.load(path, backbone=Other())


class Drops(TinyNet):
    """A backbone that draws random numbers of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def test_dropout_in_a_backbone_of_ones_own_follows_the_seed() -> None:
    scores = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        scores.append(quick(backbone=Drops()).partial_fit(IMAGES, LABELS).decision_function(IMAGES))
    assert np.array_equal(*scores)


def test_narrow_networks_train_without_harm() -> None:
    """In a process of its own: an error in a convolution kernel would take the tests down with it."""
    code = """
import numpy, torch
from efcil import IncrementalClassifier
torch.set_num_threads(1)
images = numpy.random.default_rng(0).integers(0, 255, (16, 8, 8, 3), dtype=numpy.uint8)
for width in (1, 2, 3, 5, 7, 8):
    classifier = IncrementalClassifier("finetune", width=width, first={"epochs": 4, "rotation": False})
    assert numpy.isfinite(classifier.partial_fit(images, [0, 1] * 8).predict_proba(images)).all()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Mistakes, each with one sentence


def with_nan() -> Any:
    images = IMAGES / 255
    images[0, 0, 0, 0] = np.nan
    return images


BAD_IMAGES: dict[str, tuple[Any, str]] = {
    "two dimensions": (IMAGES[0, :, :, 0], "shape"),
    "five dimensions": (IMAGES[None], "shape"),
    "two channels": (IMAGES[..., :2], "1, 3 or 4 channels"),
    "array with channels first": (CHANNELS_FIRST.numpy(), r"shape \(N, H, W, C\)"),
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
        quick().partial_fit(images, LABELS)
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
        quick().partial_fit(IMAGES, labels)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("labels", [LABELS[:-1], [0.5] * 8, LABELS[:1]])
def test_score_checks_its_labels(labels: Any) -> None:
    with pytest.raises(UserError, match="labels"):
        fitted().score(IMAGES, labels)


@pytest.mark.parametrize(("first", "second"), [([0, 1], ["cow", "elk"]), (["cat", "dog"], [3, 4])])
def test_labels_keep_one_kind_from_task_to_task(first: list[Any], second: list[Any]) -> None:
    classifier = quick().partial_fit(*make_blobs(first))
    with pytest.raises(UserError, match=f"one kind.*{first[0]}.*{second[0]}"):
        classifier.partial_fit(*make_blobs(second))
    assert classifier.classes_.tolist() == first


@pytest.mark.parametrize("use", ["predict", "predict_proba", "decision_function"])
def test_nothing_can_be_predicted_before_something_is_learnt(use: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not learnt anything yet; call partial_fit first"):
        getattr(quick(), use)(IMAGES)
    with pytest.raises(UserError, match="partial_fit first"):
        quick().save(tmp_path / "a.efcil")
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
        quick(device=device).partial_fit(IMAGES, LABELS)


def test_folders_that_cannot_be_learnt_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere is not a folder of class folders"):
        quick().partial_fit(tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no class folders"):
        quick().partial_fit(tmp_path)
    root = class_folders(tmp_path / "pets")
    with pytest.raises(UserError, match="brings its own labels"):
        quick().partial_fit(root, LABELS)
    (root / "empty").mkdir()
    with pytest.raises(UserError, match=r"class folder .*empty holds no images"):
        quick().partial_fit(root)


@pytest.mark.parametrize("content", [b"", b"this is no image", None], ids=["empty", "text", "cut off"])
def test_an_image_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    paths = written(tmp_path)
    paths[3].write_bytes(paths[3].read_bytes()[:70] if content is None else content)
    for use in (lambda: quick().partial_fit(paths, LABELS), lambda: fitted().predict(paths)):
        with pytest.raises(UserError, match=r"003.png.* cannot be read as an image.*replace or remove"):
            use()


def test_an_array_of_paths_is_a_list_of_paths(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for array in (np.array([str(path) for path in paths]), np.array(paths, dtype=object)):
        assert np.array_equal(fitted().predict(array), fitted().predict(IMAGES))


# Losses that stop being numbers


class TurnsToNaN(TinyNet):
    """Makes something that is not a number of an image of a single colour."""

    def forward(self, x: Tensor) -> Tensor:
        flat = (x == x[:, :, :1, :1]).flatten(1).all(1)
        return torch.where(flat[:, None], torch.nan, super().forward(x))


def test_a_loss_that_is_not_a_number_stops_the_task_and_leaves_the_classifier_as_it_was() -> None:
    classifier = quick(backbone=TurnsToNaN()).partial_fit(IMAGES, LABELS)
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
    "other images": lambda path: quick().partial_fit(255 - IMAGES, LABELS, checkpoint=path),
    "other classes": lambda path: quick().partial_fit(IMAGES, np.char.add(LABELS, "s"), checkpoint=path),
    "other settings": lambda path: quick(seed=1).partial_fit(IMAGES, LABELS, checkpoint=path),
    "another network": lambda path: make_learner().partial_fit(IMAGES, LABELS, checkpoint=path),
}


@pytest.mark.parametrize("other", OTHER_TASKS)
def test_a_checkpoint_of_another_task_is_refused(other: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.efcil"
    quick().partial_fit(IMAGES, LABELS, checkpoint=checkpoint)
    with pytest.raises(UserError, match=r"checkpoint\.efcil belongs to another"):
        OTHER_TASKS[other](checkpoint)


def test_the_checkpoint_of_an_earlier_task_does_no_harm(tmp_path: Path) -> None:
    first, second = make_blobs(["cat", "dog"]), make_blobs(["cow", "elk"])
    scores = []
    for checkpoint in (tmp_path / "checkpoint.efcil", None):
        classifier = quick().partial_fit(*first, checkpoint=checkpoint).partial_fit(*second, checkpoint=checkpoint)
        scores.append(classifier.decision_function(IMAGES))
    assert np.array_equal(*scores)
