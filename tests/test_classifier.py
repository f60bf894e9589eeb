"""IncrementalClassifier as a user meets it: every kind of images, of labels and of backbones."""

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
from conftest import TinyNet, make_blobs, quick_learner, write_class_folders, write_images
from efcil import IncrementalClassifier
from efcil.errors import UserError
from efcil.methods import METHODS

CLASSES = ["cat", "dog"]
IMAGES, LABELS = make_blobs(CLASSES, 4)
CHANNELS_FIRST = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


@cache
def fitted() -> IncrementalClassifier:
    return quick_learner().partial_fit(IMAGES, LABELS)


# Kinds of images

KINDS: dict[str, Callable[[Path], Any]] = {
    "uint8 array": lambda folder: IMAGES,
    "float32 array": lambda folder: IMAGES.astype(np.float32) / 255,
    "float64 array": lambda folder: IMAGES / 255,
    "tensor": lambda folder: CHANNELS_FIRST,
    "float tensor": lambda folder: CHANNELS_FIRST.float() / 255,
    "array with alpha": lambda folder: np.concatenate([IMAGES, np.full_like(IMAGES[..., :1], 255)], axis=-1),
    "reversed view": lambda folder: IMAGES[::-1][::-1],
    "fortran order": lambda folder: np.asfortranarray(IMAGES),
    "list of arrays": lambda folder: list(IMAGES),
    "list of tensors": lambda folder: list(CHANNELS_FIRST),
    "tuple of PIL images": lambda folder: tuple(Image.fromarray(image) for image in IMAGES),
    "list of paths": lambda folder: write_images(folder, IMAGES),
    "tensor with gradients": lambda folder: (CHANNELS_FIRST.float() / 255).requires_grad_(),
    "computed tensor": lambda folder: (CHANNELS_FIRST.float() / 255).requires_grad_() * 1.0,
    "list of path strings": lambda folder: [str(path) for path in write_images(folder, IMAGES)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_in_any_form_are_the_same_to_learn_and_to_predict(kind: str, tmp_path: Path) -> None:
    images = KINDS[kind](tmp_path)
    expected = fitted().decision_function(IMAGES)
    assert np.array_equal(fitted().decision_function(images), expected)
    learnt = quick_learner(image_size=8).partial_fit(images, LABELS)
    assert np.array_equal(learnt.decision_function(IMAGES), expected)


def test_a_generator_of_images_is_a_list_of_images() -> None:
    classifier = quick_learner().partial_fit(iter(IMAGES), LABELS)
    assert np.array_equal(classifier.decision_function(iter(IMAGES)), fitted().decision_function(IMAGES))


ONE: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: IMAGES[5],
    "array with alpha": lambda folder: np.concatenate([IMAGES[5], np.full_like(IMAGES[5, :, :, :1], 255)], axis=-1),
    "float array": lambda folder: IMAGES[5] / 255,
    "tensor": lambda folder: CHANNELS_FIRST[5],
    "PIL image": lambda folder: Image.fromarray(IMAGES[5]),
    "path": lambda folder: write_images(folder, IMAGES)[5],
    "path string": lambda folder: str(write_images(folder, IMAGES)[5]),
    "array of a path": lambda folder: np.array(str(write_images(folder, IMAGES)[5])),
}


@pytest.mark.parametrize("kind", ONE)
def test_one_image_alone_gets_one_answer(kind: str, tmp_path: Path) -> None:
    image, several = ONE[kind](tmp_path), IMAGES[5:6]
    assert np.array_equal(fitted().decision_function(image), fitted().decision_function(several))
    assert np.array_equal(fitted().predict_proba(image), fitted().predict_proba(several))
    assert fitted().predict(image).tolist() == fitted().predict(several).tolist()
    assert fitted().score(image, [LABELS[5]]) == fitted().score(several, LABELS[5:6])


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_greyscale_arrays_one_upon_the_other_stay_as_many(count: int) -> None:
    assert len(fitted().predict(IMAGES[:count, :, :, 0])) == count


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
def test_images_on_a_graphics_card_are_the_same_images() -> None:
    expected = fitted().decision_function(IMAGES)
    assert np.array_equal(fitted().decision_function(CHANNELS_FIRST.cuda()), expected)
    assert np.array_equal(fitted().decision_function(list(CHANNELS_FIRST.cuda())), expected)


def test_a_folder_of_class_folders_brings_its_labels(tmp_path: Path) -> None:
    classifier = quick_learner(image_size=8).partial_fit(write_class_folders(tmp_path, IMAGES, LABELS))
    assert classifier.classes_.tolist() == CLASSES
    assert np.array_equal(classifier.decision_function(IMAGES), fitted().decision_function(IMAGES))
    assert quick_learner(image_size=8).partial_fit(str(tmp_path)).classes_.tolist() == CLASSES


def test_greyscale_arrays_are_grey_colour_images() -> None:
    grey = IMAGES[..., 0]
    as_colour = np.repeat(grey[..., None], 3, axis=-1)
    for images in (grey, grey[..., None], torch.from_numpy(grey), torch.from_numpy(grey)[:, None]):
        assert np.array_equal(fitted().decision_function(images), fitted().decision_function(as_colour))


def test_arrays_of_different_sizes_and_channels_are_brought_to_one() -> None:
    sizes = [(8, 8, 3), (12, 9, 3), (9, 16, 4), (10, 10)]
    images = [np.full(size, 50 + 40 * index, np.uint8) for index, size in enumerate(sizes)]
    classifier = quick_learner().partial_fit(images, [0, 1, 0, 1])
    assert classifier.stored_size == 8
    large = [np.full((*size, 3), 90, np.uint8) for size in ((40, 30), (8, 8), (8, 64))]
    alone = [classifier.decision_function([image])[0] for image in large]  # one colour at any size is the same image
    assert np.array_equal(alone[0], alone[1]) and np.array_equal(alone[1], alone[2])
    together = classifier.decision_function(large)  # rows of one product may round differently
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


def test_images_of_other_sizes_are_brought_to_the_size_of_the_first_task() -> None:
    images, labels = make_blobs(["cow"], 4, size=13)
    classifier = quick_learner().partial_fit(IMAGES, LABELS).partial_fit(images, labels)
    assert classifier.stored_size == 8
    assert classifier.decision_function(images).shape == (4, 3)


def test_files_are_read_with_64_pixels_unless_a_size_is_asked_for(tmp_path: Path) -> None:
    paths = write_images(tmp_path, IMAGES)
    assert quick_learner().partial_fit(paths, LABELS).stored_size == 64
    assert quick_learner(image_size=16).partial_fit(paths, LABELS).stored_size == 16


@pytest.mark.parametrize("images", [IMAGES, IMAGES / 255], ids=["uint8", "float"])
def test_a_read_only_array_is_fine_and_stays_as_it_is(images: Any) -> None:
    images = images.copy()
    images.flags.writeable = False
    before = images.copy()
    assert np.array_equal(quick_learner().partial_fit(images, LABELS).predict(images), fitted().predict(IMAGES))
    assert np.array_equal(images, before)


def test_the_users_array_is_not_changed() -> None:
    images = IMAGES.copy()
    quick_learner(augmentation="crop_flip").partial_fit(images, LABELS).predict(images)
    assert np.array_equal(images, IMAGES)


def test_an_array_of_paths_is_a_list_of_paths(tmp_path: Path) -> None:
    paths = write_images(tmp_path, IMAGES)
    for array in (np.array([str(path) for path in paths]), np.array(paths, dtype=object)):
        assert np.array_equal(fitted().predict(array), fitted().predict(IMAGES))


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
    classifier = quick_learner().partial_fit(IMAGES, labels)
    assert classifier.classes_.tolist() == classes and classifier.classes_.dtype.kind == kind
    assert classifier.predict(IMAGES).dtype.kind == kind
    assert set(classifier.predict(IMAGES)) <= set(classes)


@pytest.mark.parametrize("names", [["cat", "dog", "a very long class name", "b"], [10, 2, 30, 4]])
def test_predict_proba_score_and_classes_agree(names: list[Any]) -> None:
    first, second = make_blobs(names[:2]), make_blobs(names[2:])
    classifier = quick_learner("freeze").partial_fit(*first).partial_fit(*second)
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
    quick_learner(backbone=backbone).partial_fit(IMAGES, LABELS)
    assert torch.equal(backbone.linear.weight, before)


def test_loading_needs_the_backbone_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "own.efcil"
    fitted().save(path)
    with pytest.raises(UserError, match=r"backbone of its own \(TinyNet\), .* pass the module as backbone="):
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
        scores.append(quick_learner(backbone=Drops()).partial_fit(IMAGES, LABELS).decision_function(IMAGES))
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


# Checkpoints


def test_the_checkpoint_of_an_earlier_task_does_no_harm(tmp_path: Path) -> None:
    first, second = make_blobs(["cat", "dog"]), make_blobs(["cow", "elk"])
    scores = []
    for checkpoint in (tmp_path / "checkpoint.efcil", None):
        classifier = (
            quick_learner().partial_fit(*first, checkpoint=checkpoint).partial_fit(*second, checkpoint=checkpoint)
        )
        scores.append(classifier.decision_function(IMAGES))
    assert np.array_equal(*scores)
