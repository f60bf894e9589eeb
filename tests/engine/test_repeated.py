"""Views that come again: the old network looks at them once, and nothing but the views changes by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.engine.context import Context
from efcil.engine.progress import Silent, Step
from efcil.engine.repeated import Repeated
from efcil.errors import UserError
from efcil.methods import METHODS

USES_OLD_FEATURES = ("efc++", "efc", "cargo", "lfl", "fusion")
FIRST, SECOND = make_blobs(["ant", "bee"], 5), make_blobs(["cat", "dog"], 5)


def learner(method: str, epochs: int, views: int | None, **changes: Any) -> IncrementalClassifier:
    training = {"epochs": epochs, "batch_size": 4, "views": views}
    return make_learner(method, augmentation="crop_flip", first={"epochs": 1}, incremental=training, **changes)


def learnt(method: str, epochs: int = 4, views: int | None = None) -> list[Tensor]:
    """Everything that is known after two tasks."""
    classifier = learner(method, epochs, views).partial_fit(*FIRST).partial_fit(*SECOND)
    assert classifier._model is not None
    return [*classifier._model.state_dict().values(), *classifier._method.state().values()]


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("method", USES_OLD_FEATURES)
def test_only_the_first_views_are_computed_and_nothing_else_changes(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plain = Repeated.features

    def counted(repeated: Repeated, x: Tensor, compute: Any) -> Tensor:
        return plain(repeated, x, lambda x: (asked.append(len(x)), compute(x))[1])

    monkeypatch.setattr(Repeated, "features", counted)
    kept = learnt(method, views=2)
    assert asked == [4, 4, 2] * 2
    monkeypatch.setattr(Repeated, "features", lambda _, x, compute: compute(x))  # computed anew in every step
    assert equal(kept, learnt(method, views=2))
    assert not equal(kept, learnt(method, views=3))


def test_as_many_views_as_epochs_are_what_there_is_without_the_setting() -> None:
    assert equal(learnt("efc++", views=4), learnt("efc++"))


def test_what_a_method_draws_besides_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    plain = METHODS["efc++"].loss

    def noted(method: Any, ctx: Context, batch: Any) -> Any:
        drawn.append(int(torch.randint(2**62, (), generator=ctx.rng)))
        return plain(method, ctx, batch)

    monkeypatch.setattr(METHODS["efc++"], "loss", noted)
    learnt("efc++", epochs=4, views=1)
    assert len(set(drawn)) == 12


def test_images_come_again_in_the_batches_of_the_first_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    plain = METHODS["efc++"].loss

    def noted(method: Any, ctx: Context, batch: Any) -> Any:
        shown.append(batch.x.numpy().tobytes())
        return plain(method, ctx, batch)

    monkeypatch.setattr(METHODS["efc++"], "loss", noted)
    learnt("efc++", epochs=5, views=2)
    epochs = [shown[start : start + 3] for start in range(0, len(shown), 3)]
    assert epochs[0] == epochs[2] == epochs[4] != epochs[1] == epochs[3]


class Stop(Silent):
    """Interrupts a task after its third epoch."""

    def epoch(self, step: Step) -> None:
        if step.task == 1 and step.epoch == 2:
            raise KeyboardInterrupt


def test_a_task_that_is_cut_off_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    expected, path = learnt("efc++", views=2), tmp_path / "task.efcil"
    classifier = learner("efc++", 4, 2, watcher=Stop(), checkpoint_seconds=0.0).partial_fit(*FIRST)
    with pytest.raises(KeyboardInterrupt):
        classifier.partial_fit(*SECOND, checkpoint=path)
    classifier.watcher = Silent()
    classifier.partial_fit(*SECOND, checkpoint=path)
    assert classifier._model is not None and classifier.saved_seconds_ > 0
    assert equal(expected, [*classifier._model.state_dict().values(), *classifier._method.state().values()])


def test_the_first_task_has_nothing_to_keep() -> None:
    with pytest.raises(UserError, match=r"^first\.views must be empty"):
        make_learner(first={"views": 2})
