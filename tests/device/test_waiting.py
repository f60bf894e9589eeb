"""While a network is trained, the CPU does not wait for a GPU with every step."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from pretend import waits_counted
from test_on_device import CASES, SmallNet, few_steps
from torch import Tensor

from conftest import make_blobs, make_learner
from efcil.engine import device, losses, trainer
from efcil.engine.context import Context
from efcil.engine.progress import Silent, Step
from efcil.engine.trainer import TrainingError, train_epochs
from efcil.methods import METHODS

__all__ = ["few_steps"]  # a fixture, for these tests too
FIRST, SECOND = make_blobs(["cat", "dog"], 12), make_blobs(["ant", "bee"], 12)
QUICK = ("efc++", "efc", "cargo", "lwf", "il2a")
EXEMPTIONS = {  # asks in every step, and why
    "il2a": "how many pairs of images mix two classes depends on the labels of the batch",
}


@pytest.fixture(autouse=True)
def read_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr(losses, "READ_SECONDS", math.inf)


def waits_in_epochs(case: str, batch_size: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], Counter[str]]:
    """Of two lessons with an epoch each, only while their epochs last."""
    reads: Counter[str] = Counter()
    sends: Counter[str] = Counter()

    def counting(*inputs: Any) -> None:
        with waits_counted() as (read, sent):
            train_epochs(*inputs)
        reads.update(read)
        sends.update(sent)

    monkeypatch.setattr(trainer, "train_epochs", counting)
    method, options = CASES[case]
    training = {"epochs": 1, "batch_size": batch_size}
    classifier = make_learner(
        *(method,),
        **{"options": options, "backbone": SmallNet(), "device": "pretend"},
        **{"first": training, "incremental": training},
    )
    classifier.partial_fit(*FIRST)
    classifier.partial_fit(*SECOND, **({"past": FIRST} if classifier.needs_past else {}))
    return reads, sends


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in METHODS]
)
def test_more_steps_in_an_epoch_do_not_ask_more_of_the_device(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = waits_in_epochs(case, 12, monkeypatch)
    many, _ = waits_in_epochs(case, 6, monkeypatch)
    grown = {place: (few[place], count) for place, count in many.items() if count > few[place]}
    assert bool(grown) == (case in EXEMPTIONS), grown


def test_copies_of_training_images_and_labels_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pinned, so that a GPU can fetch them while the CPU goes on."""
    pinned: list[Tensor] = []
    monkeypatch.setattr(device, "PINNED", ("pretend",))
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    for case in ("efc++", "lwf", "cargo"):
        pinned.clear()
        few, many = (waits_in_epochs(case, size, monkeypatch)[1] for size in (12, 6))
        assert sum(tensor.dtype == torch.uint8 for tensor in pinned) >= 12  # two lessons of two and of four batches
        assert many.total() == few.total()


def test_the_losses_of_an_epoch_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Notes(Silent):
        def __init__(self) -> None:
            self.told: list[Step] = []

        def epoch(self, step: Step) -> None:
            self.told.append(step)

    found = []
    for where in ("cpu", "pretend"):
        notes, training = Notes(), {"epochs": 2, "batch_size": 5}
        classifier = make_learner(
            "lwf", backbone=SmallNet(), device=where, watcher=notes, first=training, incremental=training
        )
        classifier.partial_fit(*FIRST).partial_fit(*SECOND)
        found.append(notes.told)
    assert found[0] == found[1]
    assert all(math.isfinite(value) for step in found[1] for value in step.losses.values())


@pytest.mark.parametrize("seconds", [0.0, math.inf])
def test_a_loss_that_is_no_number_ends_the_epoch_before_anything_is_kept(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once if the device was asked, or else when the epoch is over."""
    monkeypatch.setattr(losses, "READ_SECONDS", seconds)
    given, steps, epochs = iter([1.0, math.nan, 1.0, 1.0]), [], []

    def loss(self: Any, ctx: Context, batch: Any) -> dict[str, Tensor]:
        return {"ce": next(given) + 0 * ctx.model(batch.x).sum()}

    monkeypatch.setattr(METHODS["finetune"], "first_loss", loss)
    monkeypatch.setattr(METHODS["finetune"], "after_step", lambda self, ctx: steps.append(1))
    monkeypatch.setattr(METHODS["finetune"], "after_epoch", lambda self, ctx: epochs.append(1))
    training = {"epochs": 3, "batch_size": 6}
    with pytest.raises(TrainingError, match=r"stopped being a number in task 1, epoch 1 \(ce = nan\)"):
        make_learner(backbone=SmallNet(), device="pretend", first=training).partial_fit(*FIRST)
    assert (len(steps), len(epochs)) == (1 if seconds == 0 else 4, 0)
