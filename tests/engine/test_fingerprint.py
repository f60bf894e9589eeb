"""A checkpoint is accepted by the very task that wrote it and by no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TinyNet, make_blobs, make_learner, quick_learner, write_images
from efcil.data.images import on_disk
from efcil.engine import numerics
from efcil.engine.fingerprint import fingerprint
from efcil.engine.progress import Silent, Step
from efcil.errors import UserError

FIRST, SECOND = make_blobs(["a", "b"], 20), make_blobs(["c", "d"], 20)


def other_pixel(images: Any) -> Any:
    changed = images.copy()
    changed[-1, 0, 0, 0] ^= 1  # one bit of the last image
    return changed


def test_one_pixel_of_the_last_image_makes_another_task() -> None:
    learner = quick_learner()
    assert learner.fingerprint(*FIRST) == quick_learner().fingerprint(*FIRST)
    assert learner.fingerprint(*FIRST) != learner.fingerprint(other_pixel(FIRST[0]), FIRST[1])


def test_the_weights_of_a_given_backbone_count() -> None:
    trained = TinyNet()
    with torch.no_grad():
        trained.linear.bias[0] += 1
    assert quick_learner(backbone=trained).fingerprint(*FIRST) != quick_learner().fingerprint(*FIRST)


@pytest.mark.parametrize("what", ["network", "method"])
def test_what_was_learnt_before_counts(what: str) -> None:
    learners = [quick_learner("freeze").partial_fit(*FIRST) for _ in range(2)]
    assert learners[0].fingerprint(*SECOND) == learners[1].fingerprint(*SECOND)
    weights = learners[1]._model.state_dict() if what == "network" else learners[1]._method.state()  # type: ignore[union-attr]
    next(iter(weights.values())).view(-1)[0] += 1
    assert learners[0].fingerprint(*SECOND) != learners[1].fingerprint(*SECOND)


def test_defaults_and_numerics_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = quick_learner("efc").partial_fit(*FIRST).fingerprint(*SECOND)
    assert quick_learner("efc", options={"eta": 0.1}).partial_fit(*FIRST).fingerprint(*SECOND) == before  # the default
    monkeypatch.setattr(numerics, "VERSION", numerics.VERSION + 1)
    assert quick_learner("efc").partial_fit(*FIRST).fingerprint(*SECOND) != before


def test_most_methods_have_the_first_task_in_common() -> None:
    same = {make_learner(name, incremental={"lr": lr}).fingerprint(*FIRST) for name in ("efc", "lwf") for lr in (1, 2)}
    assert len(same) == 1
    assert make_learner("efc", seed=1).fingerprint(*FIRST) not in same


class Interrupting(Silent):
    """Stops after the first epoch of the second task."""

    def epoch(self, step: Step) -> None:
        if step.task == 1:
            raise KeyboardInterrupt


def test_a_checkpoint_is_refused_by_another_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"incremental": {"epochs": 3}}
    learner = quick_learner(**settings).partial_fit(*FIRST)
    learner.watcher = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        learner.partial_fit(*SECOND, checkpoint=tmp_path / "checkpoint")
    other = quick_learner(**settings).partial_fit(other_pixel(FIRST[0]), FIRST[1])  # learnt something else before
    with pytest.raises(UserError, match="belongs to another task"):
        other.partial_fit(*SECOND, checkpoint=tmp_path / "checkpoint")
    learner.watcher = Silent()
    learner.partial_fit(*SECOND, checkpoint=tmp_path / "checkpoint")


def test_earlier_images_that_a_method_learns_from_count(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"incremental": {"epochs": 3}, "first": {"epochs": 3}}
    learner = quick_learner("joint", **settings).partial_fit(*FIRST)
    learner.watcher = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        learner.partial_fit(*SECOND, past=FIRST, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(UserError, match="belongs to another task"):
        learner.partial_fit(*SECOND, past=(other_pixel(FIRST[0]), FIRST[1]), checkpoint=tmp_path / "checkpoint")


def test_files_count_by_path_size_and_time(tmp_path: Path) -> None:
    paths = write_images(tmp_path / "images", FIRST[0])
    images = on_disk(paths, 8)
    before = fingerprint([], {}, images)
    assert fingerprint([], {}, on_disk(paths, 8)) == before
    assert fingerprint([], {}, on_disk(paths, 9)) != before
    assert fingerprint([], {}, images.subset(torch.arange(len(paths) - 1))) != before
    about = paths[-1].stat()
    os.utime(paths[-1], ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    touched = fingerprint([], {}, images)
    assert touched != before
    paths[-1].write_bytes(paths[-1].read_bytes() + b"0")
    os.utime(paths[-1], ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert fingerprint([], {}, images) != touched
    paths[-1].unlink()
    with pytest.raises(UserError, match=f"{paths[-1].name}.*cannot be read"):
        fingerprint([], {}, images)
