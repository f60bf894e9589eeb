"""EVERY method on a device that has no float64, as Apple's, with the results that it has on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pretend import MixedDevices, PretendTensor, without_float64
from test_on_device import CASES, few_steps, learner, loaded, same_results

from efcil.engine import float64
from efcil.engine.float64 import float64_somewhere
from test_contract import TASKS, TEST_IMAGES, teach_all

__all__ = ["few_steps"]  # a fixture, for these tests too
DEVICE = torch.device("pretend")
ROUNDING = 1e-4  # a copy lies otherwise in memory than a part of something larger, and is summed in another order
QUICK = ("efc++", "lda")


@pytest.fixture(autouse=True)
def no_float64_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(float64, "WITHOUT", {"pretend"})
    with without_float64():
        yield


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_two_lessons_are_those_of_the_cpu(case: str, tmp_path: Path) -> None:
    expected = teach_all(learner(case, "cpu"), TASKS[:2])
    classifier = teach_all(learner(case, "pretend"), TASKS[:2])
    same_results(classifier, expected, ROUNDING)
    classifier.save(tmp_path / "a.efcil")
    same_results(loaded(tmp_path / "a.efcil", "pretend"), expected, ROUNDING)
    assert all(isinstance(tensor, PretendTensor) for tensor in classifier._fitted()[0].state_dict().values())


def test_what_else_a_classifier_can_do_works_there() -> None:
    classifier = teach_all(learner("lda", "pretend"), TASKS[:2])
    assert "images" in str(classifier.plan(*TASKS[2]))
    assert classifier.predict(TEST_IMAGES, unknown=True).shape == (len(TEST_IMAGES),)
    assert len(classifier.validation()[0]) == len(TASKS[1][1])
    classifier.merge("ant", "bee").forget("dog")
    assert np.isfinite(classifier.decision_function(TEST_IMAGES)).all()


def test_float64_is_on_the_cpu_and_what_comes_out_of_it_on_the_device() -> None:
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]]).to(DEVICE)
    with float64_somewhere(DEVICE):
        wide = x.double()
        made = torch.eye(2, dtype=torch.float64, device=DEVICE), wide.new_zeros(2), torch.zeros_like(wide), wide @ wide
        mixed = wide + x, torch.cat([wide, x]), x * torch.linalg.eigh(wide)[0], wide[x > 1], x.sum(dtype=torch.float64)
        back = wide.float(), wide > 0, wide.argmax(1), wide.to(x), (wide + 1).to(torch.float32)
        into = torch.zeros(2, 2, device=DEVICE).copy_(wide), torch.ones(2, 2, device=DEVICE).mul_(wide)
        plain = x @ x, x.cpu(), torch.arange(2)
    assert all(tensor.dtype == torch.float64 and tensor.device.type == "cpu" for tensor in (wide, *made, *mixed))
    assert all(tensor.dtype != torch.float64 and tensor.device.type == "pretend" for tensor in (*back, *into))
    assert all(torch.equal(tensor.cpu(), x.cpu()) for tensor in into)
    assert [tensor.device.type for tensor in plain] == ["pretend", "cpu", "cpu"]


def test_gradients_come_back_from_float64() -> None:
    x = torch.tensor([1.0, 2.0]).to(DEVICE).requires_grad_()
    with float64_somewhere(DEVICE):
        loss = (x.double() ** 2).sum().to(x.dtype)
        assert loss.device.type == "pretend"
        loss.backward()
    assert x.grad is not None and x.grad.device.type == "pretend" and x.grad.tolist() == [2.0, 4.0]


def test_other_mixtures_are_refused_as_ever() -> None:
    with float64_somewhere(DEVICE), pytest.raises(MixedDevices):
        torch.ones(2, device=DEVICE) + torch.ones(2)
    with pytest.raises(TypeError, match="float64"):
        torch.ones(2, device=DEVICE).double()
