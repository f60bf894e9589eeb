"""EVERY method on a device that refuses what a GPU refuses, with the results that it has on the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretend import MixedDevices, PretendTensor
from torch import Tensor, nn

import efcil.methods.adagauss
from conftest import make_learner
from efcil import IncrementalClassifier
from efcil.engine.progress import Silent
from efcil.methods import METHODS
from efcil.parts import compensators
from test_contract import CASES as CONTRACT
from test_contract import TASKS, TEST_IMAGES, Stop, held, teach, teach_all

DRIFTS = ("kernel", "none", "linear", "ridge", "mlp", "adversarial", "dual-projection", "oracle")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **CONTRACT,
    **{f"efc {drift}": ("efc", {"drift": drift}) for drift in DRIFTS},
    "efc true covariances": ("efc", {"drift": "efm", "covariance": "oracle"}),
    "efc normalised": ("efc", {"normalise_efm": True, "kernel": "literal", "statistics_view": "eval"}),
}
CASES |= {
    f"efc++ {kind} {dtype}": (
        "efc++",
        {**CONTRACT["efc++"][1], "kept_covariance": {"kind": kind, "rank": 3, "dtype": dtype}},
    )
    for kind, dtype in (("low-rank", "float32"), ("shared", "float16"), ("diagonal", "float32"), ("full", "float16"))
}
COMPENSATORS_TRIED = {options.get("drift") for _, options in CASES.values()}


class SmallNet(nn.Module):
    """A backbone with what the real ones have: convolutions, BatchNorm, pooling."""

    feature_dim = 8

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Conv2d(4, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learned map needs a thousand steps to be good; ten show where its numbers are."""
    short = partial(compensators.mlp, steps=10)
    monkeypatch.setitem(compensators.COMPENSATORS, "mlp", short)
    monkeypatch.setattr(efcil.methods.adagauss, "mlp", short)


def learner(case: str, device: str) -> IncrementalClassifier:
    method, options = CASES[case]
    training = {"epochs": 2, "batch_size": 16}
    return make_learner(
        *(method,),
        **{"options": options, "backbone": SmallNet(), "device": device, "augmentation": "crop_flip"},
        **{"first": training, "incremental": training},
    )


def loaded(path: Path, device: str) -> IncrementalClassifier:
    return IncrementalClassifier.load(path, backbone=SmallNet(), device=device)


def same_results(one: IncrementalClassifier, other: IncrementalClassifier, tolerance: float = 0.0) -> None:
    """Scores, probabilities and how usual images are, and all that is kept."""
    same = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    same(one.decision_function(TEST_IMAGES), other.decision_function(TEST_IMAGES))
    here, there = one.answers(TEST_IMAGES), other.answers(TEST_IMAGES)
    same(here.probabilities, there.probabilities)
    assert (here.familiarity is None) == (there.familiarity is None)
    if here.familiarity is not None and there.familiarity is not None:
        same(here.familiarity, there.familiarity)
    kept, also = one._method.state(), other._method.state()
    assert kept.keys() == also.keys()
    for name, tensor in kept.items():
        same(tensor.cpu(), also[name].cpu(), err_msg=name)
    accuracies = one.estimated_accuracy(), other.estimated_accuracy()
    assert accuracies[0] == (None if accuracies[1] is None else pytest.approx(accuracies[1], abs=10 * tolerance))


@pytest.mark.parametrize(
    "case", [*METHODS, *(pytest.param(c, marks=pytest.mark.slow) for c in CASES if c not in METHODS)]
)
def test_two_lessons_saved_loaded_and_resumed_are_those_of_the_cpu(case: str, tmp_path: Path) -> None:
    expected = teach_all(learner(case, "cpu"), TASKS[:2])
    classifier = teach_all(learner(case, "pretend"), TASKS[:1])
    classifier.save(tmp_path / "one.efcil")
    classifier.watcher = Stop(KeyboardInterrupt, epoch=1)
    with pytest.raises(KeyboardInterrupt):
        teach(classifier, TASKS[1], TASKS[:1], checkpoint=tmp_path / "checkpoint.efcil")
    resumed = loaded(tmp_path / "one.efcil", "pretend")
    resumed.watcher = Silent()
    teach(resumed, TASKS[1], TASKS[:1], checkpoint=tmp_path / "checkpoint.efcil")
    same_results(resumed, expected)
    resumed.save(tmp_path / "two.efcil")
    same_results(loaded(tmp_path / "two.efcil", "cpu"), expected)
    expected.save(tmp_path / "two.efcil")
    same_results(loaded(tmp_path / "two.efcil", "pretend"), expected)
    model, _ = resumed._fitted()
    on_device = [*model.state_dict().values(), *(t for t in held(resumed._method) if t.ndim and t.numel())]
    assert all(isinstance(tensor, PretendTensor) for tensor in on_device)


def test_every_drift_compensator_is_tried() -> None:
    assert compensators.COMPENSATORS.keys() <= COMPENSATORS_TRIED


@pytest.mark.parametrize("case", ["efc++", "lda"])
def test_what_else_a_classifier_can_do_works_there(case: str) -> None:
    classifier = teach_all(learner(case, "pretend"), TASKS[:2])
    assert "images" in str(classifier.plan(*TASKS[2]))
    assert classifier.predict(TEST_IMAGES, unknown=True).shape == (len(TEST_IMAGES),)
    if case == "lda":
        assert len(classifier.validation()[0]) == len(TASKS[1][1])
        classifier.merge("ant", "bee")
    classifier.forget("dog")
    assert np.isfinite(classifier.decision_function(TEST_IMAGES)).all()


MIXES: dict[str, tuple[str, str, Any]] = {  # a method, one of its hooks, and a mistake in it
    "labels left on the CPU": (
        "lwf",
        "loss",
        lambda original: lambda self, ctx, batch: original(self, ctx, type(batch)(batch.x, batch.y.cpu())),
    ),
    "means kept on the CPU": (
        "freeze",
        "after_task",
        lambda original: lambda self, ctx: (original(self, ctx), setattr(self, "means", self.means.cpu())),
    ),
    "noise drawn on the CPU": (
        "finetune",
        "augment",
        lambda original: (
            lambda self, ctx, batch: type(batch)(batch.x + torch.randn(batch.x.shape, generator=ctx.rng), batch.y)
        ),
    ),
}


@pytest.mark.parametrize("mistake", MIXES)
def test_a_method_that_mixes_devices_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, hook, spoilt = MIXES[mistake]
    monkeypatch.setattr(METHODS[name], hook, spoilt(getattr(METHODS[name], hook)))
    with pytest.raises(MixedDevices):
        test_two_lessons_saved_loaded_and_resumed_are_those_of_the_cpu(name, tmp_path)
