"""The promises that EVERY method keeps; a method that is added later is tested by being in METHODS.

A case is a method, or a method with options that change what it needs. A promise that a case does not make is listed
in EXEMPTIONS with the reason, and where it can be seen the test checks that the exemption is still needed.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import efcil.classifier
from conftest import GENERATOR, QUICK, Images, Labels, TinyNet, make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.bench.footprint import sizes_and_type
from efcil.data.images import ImageSet, Pixels
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel, trained_weights
from efcil.engine.progress import Silent, Step
from efcil.engine.trainer import learn_task
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.parts.inversion import Generator, Inversion

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, QUICK.get(name, {})) for name in METHODS},
    "efc++ oracle": ("efc++", {"drift": "oracle", **QUICK["efc++"]}),
    "efc oracle": ("efc", {"drift": "oracle"}),
    "efc++ efim": ("efc++", {"regularizer": "efim", **QUICK["efc++"]}),
    "efc++ adversarial": ("efc++", {"drift": "adversarial", **QUICK["efc++"]}),
    "efc dual-projection": ("efc", {"drift": "dual-projection"}),
}

EXEMPTIONS: dict[str, dict[str, str]] = {
    "no old image": {
        "joint": "the upper bound trains on all images, which it is given as past=",
        "efc++ oracle": "measures the true means of old classes, for analysis only",
        "efc oracle": "measures the true means of old classes, for analysis only",
    },
    "only colours of the task itself": {
        "abd": "generated images look like old ones on purpose; that none IS an old one is tested",
        "r-dfcil": "as abd",
        "apr": "attacks on images are not clamped in training, as published; that none IS an old one is tested",
    },
    "old heads stay while the backbone trains": {
        "efc": "PR-ACE trains all heads together with the backbone (Eq. 17)",
        "efc oracle": "as efc",
        "efc dual-projection": "as efc",
        "ceos-acb": "as efc",
        "joint": "cross-entropy over all classes",
        "pass": "prototypes of old classes train their heads together with the backbone",
        "il2a": "as pass",
        "ssre": "as pass",
        "fusion": "as pass",
        "abd": "generated images of old classes train their heads together with the backbone",
        "r-dfcil": "as abd",
    },
    "one size for any number of images": {
        "lda": "a thin factor has a row fewer than its class has images, until it has as many as there are features",
        "efc++": "as lda",
        "efc": "as lda",
        "ceos-acb": "as lda",
        "il2a": "as lda",
    },
    "the first task of fine-tuning": {
        "si": "follows the path of the weights from the first step on",
        "rwalk": "as si",
        "adagauss": "trains a bottleneck with the backbone",
        "bicyc": "as adagauss",
        "gatf": "as adagauss",
    },
}

HEADER_FIELDS = {
    *("format", "version", "kind", "checksum"),
    *("config", "custom_backbone", "classes", "tasks", "lessons", "times", "preprocessing"),
    *("architecture", "frozen_batchnorm", "frozen_backbone", "anchored"),
}

Task = tuple[Images, Labels]
TASKS: list[Task] = [make_blobs(["cat", "dog"]), make_blobs(["ant", "bee", "elk"], 5), make_blobs(["cow"], 4)]
TEST_IMAGES = make_blobs(["cat", "dog", "ant", "bee", "elk", "cow"], 2, seed=1)[0]

every_case = pytest.mark.parametrize("case", CASES)
every_method = pytest.mark.parametrize("case", METHODS)


def exempt(case: str, promise: str) -> bool:
    return case in EXEMPTIONS[promise]


def fresh(case: str, **changes: Any) -> IncrementalClassifier:
    method, options = CASES[case]
    return make_learner(method, **{"options": options, **changes})


def teach(
    classifier: IncrementalClassifier, task: Task, before: Sequence[Task] = (), **extra: Any
) -> IncrementalClassifier:
    """One partial_fit, with the images of earlier tasks for the cases that need them, and only for those."""
    if classifier.needs_past and before:
        extra["past"] = tuple(np.concatenate(part) for part in zip(*before, strict=True))
    return classifier.partial_fit(*task, **extra)


def teach_all(classifier: IncrementalClassifier, tasks: Sequence[Task]) -> IncrementalClassifier:
    for index, task in enumerate(tasks):
        teach(classifier, task, tasks[:index])
    return classifier


def saved(classifier: IncrementalClassifier, folder: Path) -> bytes:
    """Everything the classifier is, as bytes: equal states are equal files."""
    path = folder / "compare.efcil"
    classifier.save(path)
    return path.read_bytes()


@cache
def state_after(case: str, tasks: int, epochs: int = 1) -> bytes:
    """The saved state of a classifier that learnt the first tasks without interruption."""
    with tempfile.TemporaryDirectory() as folder:
        return saved(teach_all(fresh(case, epochs=epochs), TASKS[:tasks]), Path(folder))


def restored(state: bytes, folder: Path) -> IncrementalClassifier:
    path = folder / "restored.efcil"
    path.write_bytes(state)
    return IncrementalClassifier.load(path)


def contents(state: bytes, folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    path = folder / "contents.efcil"
    path.write_bytes(state)
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name).clone() for name in names}, json.loads(file.metadata()["efcil"])


# No image of an earlier task


class Eye(nn.Module):
    """A backbone that notes the blue channel of everything it is shown; copies note it in the same place."""

    feature_dim = 6
    blue: list[Tensor] = []  # noqa: RUF012 (shared on purpose)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3 * 8 * 8, self.feature_dim)

    def forward(self, x: Tensor) -> Tensor:
        self.blue.append(x[:, 2].detach().flatten().clone())
        return torch.relu(self.linear(x.flatten(1)))


def marked(classes: Sequence[str], low: int) -> Task:
    """Images whose blue channel lies in [low, low + 60]."""
    images, labels = make_blobs(classes)
    images[..., 2] = low + images[..., 2].astype(int) * 60 // 255
    return images, labels


@every_case
def test_no_image_of_an_earlier_task_reaches_a_method(case: str) -> None:
    tasks = [marked(["cat", "dog"], 0), marked(["ant", "bee"], 100)]
    first_blue = tasks[0][0][..., 2] / 255
    first_images = torch.from_numpy(255 * first_blue).flatten(1)  # (N, pixels)
    classifier = fresh(case, backbone=Eye())
    for index, (images, labels) in enumerate(tasks):
        Eye.blue.clear()
        classifier.partial_fit(images, labels, past=tasks[0] if index else None)  # past is offered to every method
        seen = 255 * (torch.cat(Eye.blue) * first_blue.std() + first_blue.mean())
        old_pixels = bool((seen < 80).any())
        if index and exempt(case, "only colours of the task itself"):
            assert old_pixels
            old_pixels = bool((torch.cdist(seen.view(-1, first_images.shape[1]).double(), first_images) < 10).any())
        new_pixels = bool((seen > 80).any())
        assert (old_pixels, new_pixels) == [(True, False), (exempt(case, "no old image"), True)][index]


@every_method
def test_images_are_let_go_of_after_learning(case: str) -> None:
    classifier, references = fresh(case), []
    for index, (images, labels) in enumerate(TASKS[:2]):
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        references.append(weakref.ref(pixels))
        teach(classifier, (ImageSet(Pixels(pixels)), labels), TASKS[:index])  # type: ignore[arg-type]
        del pixels
    gc.collect()
    assert [reference() for reference in references] == [None, None]


@every_case
def test_only_exempt_cases_ask_for_earlier_images(case: str) -> None:
    classifier = fresh(case)
    classifier.partial_fit(*TASKS[0])
    assert classifier.needs_past == exempt(case, "no old image")
    if classifier.needs_past:
        with pytest.raises(UserError, match=r"not exemplar-free.*past="):
            classifier.partial_fit(*TASKS[1])


@pytest.mark.parametrize("case", EXEMPTIONS["no old image"])
@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda images, labels: (images[:-1], labels), "give one label per image"),
        (lambda images, labels: (images[labels != labels[-1]], labels[labels != labels[-1]]), "differs in dog"),
        (lambda images, labels: (images, np.where(labels == labels[-1], "doe", labels)), "differs in doe, dog"),
    ],
)
def test_earlier_images_must_be_those_of_all_classes(case: str, spoilt: Any, message: str, tmp_path: Path) -> None:
    classifier = restored(state_after(case, 1), tmp_path)
    with pytest.raises(UserError, match=message):
        classifier.partial_fit(*TASKS[1], past=spoilt(*TASKS[0]))
    assert saved(classifier, tmp_path) == state_after(case, 1)


@every_case
def test_only_what_is_declared_is_saved_and_no_image(case: str, tmp_path: Path) -> None:
    """Declared shapes are made of classes, features, weights and options, and one of the rows of thin factors.

    There is no word for a number of images.
    """
    method, options = CASES[case]
    tensors, header = contents(state_after(case, 2), tmp_path)
    classifier = IncrementalClassifier.load(tmp_path / "contents.efcil")
    model, _ = classifier._fitted()
    generator = Generator(8, GENERATOR["latent"], GENERATOR["width"], torch.default_generator)
    sizes = {
        **vars(build_method(method, options).options),
        "m": len(classifier.classes_),
        "n": model.feature_dim,
        "r": sum(min(images - 1, model.feature_dim) for images in (6, 6, 5, 5, 5)),
        "P": sum(weight.numel() for weight in trained_weights(model)),
        "G": sum(parameter.numel() for parameter in generator.parameters()),
        "B": sum(buffer.numel() for buffer in generator.buffers() if buffer.is_floating_point()),
    }
    declared = {name: sizes_and_type(shape, sizes) for name, shape in METHODS[method].shapes.items()}
    kept = {name.removeprefix("method."): t for name, t in tensors.items() if name.startswith("method.")}
    if case == "efc++ efim":  # the one option that keeps more
        assert kept.pop("fisher").shape == (sizes["P"],)
    assert {name: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in kept.items()} == declared
    network = {name for name in tensors if not name.startswith("method.")}
    assert {name for name in network if not name.startswith("model.backbone.")} == {"model.heads.0", "model.heads.1"}
    assert header.keys() == HEADER_FIELDS


@every_method
def test_the_saved_size_does_not_grow_with_the_number_of_images(case: str, tmp_path: Path) -> None:
    sizes, shapes = [], []
    n = 160  # features, those of an anchor and its layers included
    for per_class in (n + 1, n + 5) if exempt(case, "one size for any number of images") else (5, 20):
        tasks = [make_blobs(["cat", "dog"], per_class), make_blobs(["ant", "bee"], per_class)]
        state = saved(teach_all(fresh(case), tasks), tmp_path)
        sizes.append(len(state))
        shapes.append({name: tensor.shape for name, tensor in contents(state, tmp_path)[0].items()})
    assert shapes[0] == shapes[1]
    assert abs(sizes[0] - sizes[1]) <= 64  # decimals of the pixel means in the header; one image has 192 bytes


# Between tasks


def held(thing: Any) -> list[Tensor]:
    """All tensors in a thing, however deep; names that begin with _ are what can be computed again."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, nn.Module):
        return list(thing.state_dict().values())
    if hasattr(thing, "__dict__"):
        thing = {
            name: value for name, value in vars(thing).items() if not name.startswith("_") and name != "validation"
        }
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
    return [tensor for part in parts for tensor in held(part)]


@every_case
def test_before_the_first_task_a_method_holds_nothing(case: str) -> None:
    method = build_method(*CASES[case])
    assert all(tensor.numel() == 0 or tensor.ndim == 0 for tensor in held(method))
    assert "counts" not in method.state() or method.state()["counts"].dtype == torch.int64


@every_case
def test_after_a_task_a_method_holds_what_a_loaded_one_does(case: str) -> None:
    """What is needed only while a task is learnt is let go of."""
    classifier, before = fresh(case), vars(build_method(*CASES[case])).keys()
    for index, task in enumerate(TASKS[:2]):
        teach(classifier, task, TASKS[:index])
    method, loaded = classifier._method, build_method(*CASES[case])
    loaded.load_state(method.state())
    assert sorted(tensor.shape for tensor in held(method)) == sorted(tensor.shape for tensor in held(loaded))
    assert {name for name in vars(method) if name != "validation"} == {name for name in before if name != "validation"}


# Scores


@every_case
def test_scores_have_one_column_per_class_in_the_order_of_classes_(case: str) -> None:
    classifier, expected = fresh(case), ["cat", "dog", "ant", "bee", "elk", "cow"]
    for index, count in enumerate((2, 5, 6)):
        teach(classifier, TASKS[index], TASKS[:index])
        assert classifier.classes_.tolist() == expected[:count]
        scores = classifier.decision_function(TEST_IMAGES)
        assert scores.shape == (len(TEST_IMAGES), count)
        assert np.isfinite(scores).all()
        assert (classifier.predict(TEST_IMAGES) == classifier.classes_[scores.argmax(1)]).all()
    assert classifier.tasks_ == [2, 3, 1]


@every_method
def test_the_first_task_is_learnt(case: str) -> None:
    classes = ["red", "green", "blue"]
    recipe = {"epochs": 40, "lr": 0.05, "rotation": False}
    classifier = fresh(case, backbone=TinyNet(), first=recipe).partial_fit(*make_blobs(classes))
    assert classifier.score(*make_blobs(classes, seed=1)) > 0.9


@every_case
def test_a_frozen_backbone_stays_as_it_was_and_its_classes_are_named(case: str, tmp_path: Path) -> None:
    """Also by methods that hold weights back, which have none to hold then."""
    network = TinyNet()
    classifier = teach_all(fresh(case, backbone=network, backbone_training="frozen"), TASKS)
    assert classifier.predict_proba(TEST_IMAGES).shape == (len(TEST_IMAGES), 6)
    tensors, _ = contents(saved(classifier, tmp_path), tmp_path)
    assert torch.equal(tensors["model.backbone.linear.weight"], network.linear.weight)
    loaded = IncrementalClassifier.load(tmp_path / "compare.efcil", backbone=TinyNet())
    assert np.array_equal(loaded.decision_function(TEST_IMAGES), classifier.decision_function(TEST_IMAGES))


# Saving, stopping, going on


@every_case
def test_saved_and_loaded_predicts_and_learns_on_bit_equally(case: str, tmp_path: Path) -> None:
    classifier = teach_all(fresh(case), TASKS[:2])
    classifier.save(tmp_path / "a.efcil")
    loaded = IncrementalClassifier.load(tmp_path / "a.efcil")
    assert np.array_equal(classifier.decision_function(TEST_IMAGES), loaded.decision_function(TEST_IMAGES))
    assert saved(loaded, tmp_path) == saved(classifier, tmp_path)
    for one in (classifier, loaded):
        teach(one, TASKS[2], TASKS[:2])
    assert saved(loaded, tmp_path) == saved(classifier, tmp_path)
    assert np.array_equal(classifier.predict_proba(TEST_IMAGES), loaded.predict_proba(TEST_IMAGES))


def as_contributing_says() -> type[Method]:
    """The method that CONTRIBUTING.md shows, as it stands there."""
    (code,) = re.findall(
        r"```python\n(.*?)```", (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(code, names)
    added: type[Method] = names["FirstMeans"]
    return added


def test_a_method_as_contributing_says_keeps_the_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = as_contributing_says()
    monkeypatch.setitem(METHODS, added.name, added)
    monkeypatch.setitem(CASES, added.name, (added.name, {}))
    test_only_what_is_declared_is_saved_and_no_image(added.name, tmp_path)
    test_saved_and_loaded_predicts_and_learns_on_bit_equally(added.name, tmp_path)
    test_an_interrupted_task_changes_nothing(added.name, Stop(KeyboardInterrupt), tmp_path)


def test_a_method_that_does_not_say_what_it_keeps_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = type("Forgetful", (as_contributing_says(),), {"name": "forgetful", "shapes": {}})
    monkeypatch.setitem(METHODS, "forgetful", forgetful)
    monkeypatch.setitem(CASES, "forgetful", ("forgetful", {}))
    with pytest.raises(UserError, match="cdist"):  # the loaded one has no means
        test_saved_and_loaded_predicts_and_learns_on_bit_equally("forgetful", tmp_path)


class Stop(Silent):
    """Raises in the given epoch of training, or, for a method that runs no epoch, after the epochs."""

    def __init__(self, error: type[BaseException], epoch: int = 0) -> None:
        self.error, self.when = error, epoch

    def step(self, step: Step) -> None:
        if step.epoch >= self.when:
            raise self.error("stop")

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        if name == "after the epochs":
            raise self.error("stop")


class StopAfterEpochs(Stop):
    """Raises once all epochs are done, before the method finishes the task."""

    def step(self, step: Step) -> None: ...


class Epochs(Silent):
    """Notes the epochs that are run."""

    def __init__(self) -> None:
        self.run: list[int] = []

    def epoch(self, step: Step) -> None:
        self.run.append(step.epoch)


@every_method
def test_progress_counts_the_work_that_was_announced(case: str) -> None:
    seen = [0, 0]

    class Count(Silent):
        def step(self, step: Step) -> None:
            seen[step.task] += step.images

    classifier = fresh(case, epochs=2, watcher=Count())
    teach_all(classifier, TASKS[:2])
    images = [len(labels) for _, labels in TASKS[:2]]
    assert seen == classifier.work(images)
    assert seen[0] == 2 * 4 * images[0]  # the first task shows every image in four rotations


@pytest.mark.parametrize(("case", "shown"), [("finetune", 1), ("pass", 4), ("il2a", 5), ("abd", 2), ("r-dfcil", 2)])
def test_images_are_counted_as_the_network_sees_them(case: str, shown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, passed = IncrementalModel.features, [0]

    def watched(model: IncrementalModel, x: Tensor) -> Tensor:
        passed.append(len(x))
        return features(model, x)

    class Compare(Silent):
        def step(self, step: Step) -> None:
            if step.task == 1:
                assert passed[-1] <= step.images if case == "il2a" else passed[-1] == step.images
                counts.append(step.images)

    counts: list[int] = []
    monkeypatch.setattr(IncrementalModel, "features", watched)
    teach_all(fresh(case, epochs=2, watcher=Compare()), TASKS[:2])
    assert sum(counts) == 2 * shown * len(TASKS[1][1])  # of IL2A an upper bound: two images of one class do not mix


@pytest.mark.parametrize("stop", [Stop(ZeroDivisionError), Stop(KeyboardInterrupt), StopAfterEpochs(KeyboardInterrupt)])
@every_method
def test_an_interrupted_task_changes_nothing(case: str, stop: Stop, tmp_path: Path) -> None:
    classifier = restored(state_after(case, 1), tmp_path)
    classifier.watcher = stop
    with pytest.raises(stop.error):
        teach(classifier, TASKS[1], TASKS[:1])
    assert saved(classifier, tmp_path) == state_after(case, 1)
    classifier.watcher = Silent()
    teach(classifier, TASKS[1], TASKS[:1])
    assert saved(classifier, tmp_path) == state_after(case, 2)


@every_method
def test_a_task_interrupted_at_its_very_end_changes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*inputs: Any) -> None:
        learn_task(*inputs)  # the method has updated all it remembers
        raise KeyboardInterrupt

    classifier = restored(state_after(case, 1), tmp_path)
    monkeypatch.setattr(efcil.classifier, "learn_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        teach(classifier, TASKS[1], TASKS[:1])
    assert saved(classifier, tmp_path) == state_after(case, 1)
    assert classifier.classes_.tolist() == ["cat", "dog"] and classifier.tasks_ == [2]


@every_method
def test_an_interrupted_first_task_changes_nothing(case: str, tmp_path: Path) -> None:
    classifier = fresh(case, watcher=Stop(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        classifier.partial_fit(*TASKS[0])
    assert len(classifier.classes_) == 0 and classifier.tasks_ == []
    with pytest.raises(UserError, match="not learnt anything"):
        classifier.predict(TEST_IMAGES)
    classifier.watcher = Silent()
    assert saved(classifier.partial_fit(*TASKS[0]), tmp_path) == state_after(case, 1)


@pytest.mark.parametrize("task", [0, 1], ids=["first task", "second task"])
@every_case
def test_a_task_resumed_from_its_checkpoint_ends_bit_equal(case: str, task: int, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.efcil"

    # One classifier learnt the task before itself, the other was loaded, as after a kill.
    stopped = teach_all(fresh(case, epochs=3), TASKS[:task])
    stopped.watcher = Stop(KeyboardInterrupt, epoch=2)
    with pytest.raises(KeyboardInterrupt):
        teach(stopped, TASKS[task], TASKS[:task], checkpoint=checkpoint)
    resumed = restored(state_after(case, task, epochs=3), tmp_path) if task else fresh(case, epochs=3)
    watcher = Epochs()
    resumed.watcher = watcher
    had_epochs = checkpoint.exists()
    teach(resumed, TASKS[task], TASKS[:task], checkpoint=checkpoint)
    assert watcher.run == ([2] if had_epochs else [])  # finished epochs are not run again
    assert saved(resumed, tmp_path) == state_after(case, task + 1, epochs=3)


class Steps(Silent):
    """Counts the training steps."""

    def __init__(self) -> None:
        self.count = 0

    def step(self, step: Step) -> None:
        self.count += 1


@pytest.mark.parametrize("task", [0, 1], ids=["first task", "second task"])
@every_case
def test_a_task_stopped_after_its_epochs_does_not_repeat_them(
    case: str, task: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped when the method has changed all that it changes, with no checkpoint but that of the last epoch."""
    method = METHODS[CASES[case][0]]
    stopped, checkpoint = teach_all(fresh(case, epochs=3), TASKS[:task]), tmp_path / "checkpoint.efcil"
    stopped.config = dataclasses.replace(stopped.config, checkpoint_seconds=1e9)
    after_task = method.after_task

    def interrupted(self: Method, ctx: Context) -> None:
        after_task(self, ctx)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(method, "after_task", interrupted)
        teach(stopped, TASKS[task], TASKS[:task], checkpoint=checkpoint)
    resumed = restored(state_after(case, task, epochs=3), tmp_path) if task else fresh(case, epochs=3)
    resumed.watcher = steps = Steps()
    teach(resumed, TASKS[task], TASKS[:task], checkpoint=checkpoint)
    assert steps.count == 0
    assert saved(resumed, tmp_path) == state_after(case, task + 1, epochs=3)


@pytest.mark.parametrize("stop", [Stop(KeyboardInterrupt), Stop(KeyboardInterrupt, epoch=2)], ids=["at once", "later"])
@pytest.mark.parametrize("case", ["abd", "r-dfcil"])
def test_a_generator_that_was_trained_is_not_trained_again(
    case: str, stop: Stop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, unbroken = tmp_path / "checkpoint.efcil", [state_after(case, tasks, epochs=3) for tasks in (1, 2)]
    train, trained = Inversion.train, []

    def noting(self: Inversion, *inputs: Any) -> None:
        trained.append(self)
        train(self, *inputs)

    monkeypatch.setattr(Inversion, "train", noting)
    stopped = restored(unbroken[0], tmp_path)
    stopped.watcher = stop
    for attempt in range(2):  # killed, resumed, killed again before it got any further
        with pytest.raises(KeyboardInterrupt):
            teach(stopped, TASKS[1], checkpoint=checkpoint)
        assert len(trained) == 1, attempt
    resumed = teach(restored(unbroken[0], tmp_path), TASKS[1], checkpoint=checkpoint)
    assert len(trained) == 1
    assert saved(resumed, tmp_path) == unbroken[1]


@every_case
def test_a_first_task_begun_by_fine_tuning_ends_bit_equal(case: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.efcil"
    with pytest.raises(KeyboardInterrupt):
        fresh("finetune", epochs=3, watcher=Stop(KeyboardInterrupt, epoch=2)).partial_fit(
            *TASKS[0], checkpoint=checkpoint
        )
    other = fresh(case, epochs=3)
    if exempt(case, "the first task of fine-tuning"):
        with pytest.raises(UserError, match="belongs to another task"):
            other.partial_fit(*TASKS[0], checkpoint=checkpoint)
    else:
        other.partial_fit(*TASKS[0], checkpoint=checkpoint)
        assert saved(other, tmp_path) == state_after(case, 1, epochs=3)


def test_a_task_trained_with_sgd_resumes_bit_equally_too(tmp_path: Path) -> None:
    recipe = {"epochs": 3, "optimizer": "sgd", "lr": 1e-2, "milestones": [0.5]}
    checkpoint = tmp_path / "checkpoint.efcil"
    stopped = fresh("finetune", first=recipe, watcher=Stop(KeyboardInterrupt, epoch=2))
    with pytest.raises(KeyboardInterrupt):
        stopped.partial_fit(*TASKS[0], checkpoint=checkpoint)
    resumed = fresh("finetune", first=recipe).partial_fit(*TASKS[0], checkpoint=checkpoint)
    unbroken = fresh("finetune", first=recipe).partial_fit(*TASKS[0])
    assert saved(resumed, tmp_path) == saved(unbroken, tmp_path)


@every_method
def test_same_seed_same_result_other_seed_other_result(case: str, tmp_path: Path) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.rand(100)  # random numbers that are drawn elsewhere do not matter
        states.append(saved(teach_all(fresh(case, seed=seed, augmentation="crop_flip"), TASKS[:2]), tmp_path))
    assert states[0] == states[1]
    one, other = (restored(state, tmp_path).decision_function(TEST_IMAGES) for state in states[1:])
    assert not np.allclose(one, other)


# Awkward tasks


def of_sizes(**sizes: int) -> Task:
    """So many images of each class."""
    parts = [make_blobs([name], size) for name, size in sizes.items()]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def greyscale(task: Task) -> Task:
    return task[0][..., 0], task[1]


def with_alpha(task: Task) -> Task:
    return np.concatenate([task[0], np.full_like(task[0][..., :1], 7)], axis=-1), task[1]


AWKWARD: dict[str, list[Task]] = {
    "a class of one image": [of_sizes(cat=6, dog=1), of_sizes(ant=1, bee=6)],
    "every class of one image": [of_sizes(cat=1, dog=1), of_sizes(ant=1, bee=1)],
    "one class": [of_sizes(cat=6), of_sizes(ant=6)],
    "a single image": [of_sizes(cat=1), of_sizes(ant=1)],
    "one image more than a batch": [of_sizes(cat=4, dog=5), of_sizes(ant=4, bee=5)],
    "very unequal classes": [of_sizes(cat=1, dog=30, cow=3), of_sizes(ant=30, bee=1)],
    "greyscale": [greyscale(of_sizes(cat=4, dog=4)), greyscale(of_sizes(ant=4))],
    "RGBA": [with_alpha(of_sizes(cat=4, dog=4)), with_alpha(of_sizes(ant=4))],
    "images of one colour": [(np.full((4, 8, 8, 3), 9, np.uint8), np.array(["cat", "dog"] * 2)), of_sizes(ant=4)],
}


WITH_ROTATION = ("a class of one image", "one class")


@pytest.mark.parametrize(
    ("awkward", "rotation"), [(name, False) for name in AWKWARD] + [(name, True) for name in WITH_ROTATION]
)
@every_method
def test_awkward_tasks_work(case: str, awkward: str, rotation: bool) -> None:
    tasks = AWKWARD[awkward]
    recipe = {"batch_size": 8, "epochs": 1}
    classifier = teach_all(fresh(case, first={**recipe, "rotation": rotation}, incremental=recipe), tasks)
    probabilities = classifier.predict_proba(tasks[1][0])
    assert probabilities.shape == (len(tasks[1][0]), len(classifier.classes_))
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("classes", [["cat", "dog"], ["cow", "dog"]], ids=["all again", "one again"])
@every_case
def test_a_class_seen_before_is_refined_or_refused(case: str, classes: list[str], tmp_path: Path) -> None:
    classifier = restored(state_after(case, 2), tmp_path)
    if METHODS[CASES[case][0]].refines:
        known = set(classifier.classes_)
        teach(classifier, make_blobs(classes, 3), TASKS[:2])
        assert set(classifier.classes_) == known | set(classes)
        assert saved(classifier, tmp_path) != state_after(case, 2)
        return
    with pytest.raises(UserError, match=r"already learnt: .*dog.*new classes only"):
        teach(classifier, make_blobs(classes, 3), TASKS[:2])
    assert saved(classifier, tmp_path) == state_after(case, 2)


# What must not move


@every_case
def test_old_heads_stay_bit_identical_while_the_backbone_trains(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[Context] = []
    unchanged: list[bool] = []

    class LookAtHeads(Silent):
        def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
            ctx = contexts[-1]
            if ctx.old is not None and name == "after the epochs":
                unchanged.append(torch.equal(ctx.model.heads[0], ctx.old.heads[0]))

    def noting(ctx: Context, *rest: Any) -> None:
        contexts.append(ctx)
        learn_task(ctx, *rest)

    monkeypatch.setattr(efcil.classifier, "learn_task", noting)
    teach_all(fresh(case, watcher=LookAtHeads()), TASKS[:2])
    assert unchanged == [not exempt(case, "old heads stay while the backbone trains")]


def of_learner(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without those of an anchor, and named as in a network that has none."""
    return {name.replace(".learning.", "."): value for name, value in tensors.items() if ".anchor." not in name}


@every_method
def test_batchnorm_stays_as_the_first_task_left_it(case: str, tmp_path: Path) -> None:
    before, after = (of_learner(contents(state_after(case, tasks), tmp_path)[0]) for tasks in (1, 2))
    same = [torch.equal(before[name], after[name]) for name in before if ".norm." in name]
    assert len(same) > 50  # weight, bias, mean, variance and count of every layer
    assert all(same) == METHODS[CASES[case][0]].freezes_batchnorm


@pytest.mark.parametrize("batchnorm", ["frozen", "learning"])
@every_method
def test_batchnorm_does_as_it_is_told(case: str, batchnorm: str, tmp_path: Path) -> None:
    """Whatever the method's own way is; a network that is not trained after the first task has nothing to learn."""
    classifier, statistics = fresh(case, batchnorm=batchnorm), []
    for index in (0, 1):
        teach(classifier, TASKS[index], TASKS[:index])
        tensors, _ = contents(saved(classifier, tmp_path), tmp_path)
        statistics.append([value for name, value in of_learner(tensors).items() if ".norm.running_mean" in name])
    same = [torch.equal(before, after) for before, after in zip(*statistics, strict=True)]
    assert len(same) > 10
    trained = not METHODS[CASES[case][0]].freezes_backbone
    assert (not any(same)) if batchnorm == "learning" and trained else all(same)
    assert saved(IncrementalClassifier.load(tmp_path / "compare.efcil"), tmp_path) == saved(classifier, tmp_path)


@every_method
def test_the_old_network_is_left_alone_while_the_new_one_trains(case: str) -> None:
    classifier = fresh(case)
    classifier.partial_fit(*TASKS[0])
    before = classifier.decision_function(TEST_IMAGES)

    class PredictMeanwhile(Silent):
        def epoch(self, step: Step) -> None:
            assert np.array_equal(classifier.decision_function(TEST_IMAGES), before)

    classifier.watcher = PredictMeanwhile()
    teach(classifier, TASKS[1], TASKS[:1])
    assert classifier.decision_function(TEST_IMAGES).shape[1] == 5
