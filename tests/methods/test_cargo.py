"""CARGO: its loss has no unit, and its Gaussians go where the affine map of the current images takes them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from conftest import PartialContext, TinyNet, make_blobs, make_learner, quick_learner
from efcil.backbones.anchored import Anchored
from efcil.backbones.layered import quarters
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.methods import cargo
from efcil.methods.cargo import Cargo
from efcil.parts.affine import FOLDS
from efcil.parts.carried import CarriedGaussians, quadratic_discriminant

FIRST, SECOND = make_blobs(["cat", "dog"], 8), make_blobs(["ant", "bee", "elk"], 8)
QUICK = {"rank": 3}


class Net:
    """Features are the pixels times a factor; the newest head looks at three classes."""

    feature_dim, frozen_backbone = 4, False

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.newest = torch.linspace(-1, 1, 12).reshape(3, 4) / factor

    @property
    def learner(self) -> Net:
        return self

    def features(self, x: Tensor) -> Tensor:
        return self.factor * x


def task(old: Any, new: Any, x: Tensor, y: Tensor) -> Any:
    """A later task of these images, as far as a loss looks at it."""
    seen = {"columns": y, "extract": lambda network, augmented: (network.features(x).detach(),)}
    return PartialContext(first=False, known=2, model=new, old=old, **seen)


def terms(unit: float, shift: float = 0.0) -> dict[str, Tensor]:
    """The loss where all features are measured in another unit, and all images of the task are shifted."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 4, generator=rng) + shift, torch.tensor([2, 3, 4, 2, 3, 4])
    spread = unit * torch.randn(40, 4, generator=rng)
    method = Cargo(Cargo.Options(damping=0.5, anchor="none"))
    method.gaussians = CarriedGaussians.of(spread, torch.arange(40) % 2, 2)
    ctx = task(Net(unit), Net(2 * unit), x, y)
    method.before_task(ctx)
    return method.loss(ctx, cargo.Batch(x, y))


def test_with_an_anchor_the_loss_is_that_of_the_network_that_learns() -> None:
    """The newest head has columns for each network; those of the second are trained, and its part of Σ is the unit."""
    classifier = make_learner("cargo", options={**QUICK, "damping": 0.5})
    for lesson in (FIRST, SECOND):
        classifier.partial_fit(*lesson)
    model, method = classifier._model, classifier._method
    own, x, y = model.learner.feature_dim, torch.rand(6, 3, 16, 16), torch.tensor([2, 3, 4, 2, 3, 4])
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for weight in moved.learner.parameters():
            weight.add_(0.01)
    ctx = task(model, moved, x, y)
    method.before_task(ctx)
    found = method.loss(ctx, cargo.Batch(x, y))
    new, old = moved.learner.features(x), model.learner.features(x)
    means = torch.stack([old[y == column].double().mean(0) for column in (2, 3, 4)])
    apart = max(1, (method.gaussians.apart(means.detach()) - 1) ** 2)
    variance = method.gaussians.covariance.diagonal()[-own:].sum()
    torch.testing.assert_close(found["drift"], 0.5 * apart * (new - old).square().sum(1).mean() / variance)
    ce = F.cross_entropy(new @ moved.newest[:, -own:].T, torch.tensor([0, 1, 2, 0, 1, 2]))
    torch.testing.assert_close(found["ce"], ce)


def test_the_loss_by_hand() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=rng)
    spread = torch.randn(40, 4, generator=rng)
    variance = torch.stack([spread[column::2].T.cov().trace() for column in (0, 1)]).mean()
    found = terms(1.0)
    torch.testing.assert_close(found["drift"], 0.5 * x.square().sum(1).mean() / variance)  # δ = 2x − x
    ce = F.cross_entropy(2 * x @ Net(2.0).newest.T, torch.tensor([0, 1, 2, 0, 1, 2]))
    torch.testing.assert_close(found["ce"], ce)


def test_the_further_new_images_lie_apart_the_more_the_network_is_held() -> None:
    """Images that are all shifted differ no more from each other, but more from the old ones than classes do."""
    near, far = (float(terms(1.0, shift)["drift"]) for shift in (0.0, 3.0))
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 4, generator=rng), torch.tensor([2, 3, 4, 2, 3, 4])
    old = CarriedGaussians.of(torch.randn(40, 4, generator=rng), torch.arange(40) % 2, 2)
    shifted = torch.stack([(x + 3)[y == column].mean(0) for column in (2, 3, 4)])
    longer = float((x + 3).square().sum() / x.square().sum())  # δ = x
    assert old.apart(shifted - 3) < 2 < old.apart(shifted)
    assert far / near == pytest.approx(longer * (old.apart(shifted) - 1) ** 2, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-3, 50.0])
def test_the_unit_of_the_features_changes_nothing(unit: float) -> None:
    torch.testing.assert_close(terms(unit), terms(1.0), rtol=1e-3, atol=1e-5)


def test_classes_without_spread_give_numbers() -> None:
    """Of the drift of features of length √3 no more than its thousandth part counts, in any unit."""
    for unit in (1.0, 50.0):
        alike = CarriedGaussians.of(unit * torch.ones(4, 3), torch.tensor([0, 0, 1, 1]), 2)
        single = CarriedGaussians.of(unit * torch.ones(2, 3), torch.tensor([0, 1]), 2)
        assert alike.variance(3) == single.variance(3) == pytest.approx(3e-3 * unit**2)
        behind = torch.cat([7 * unit * torch.ones(4, 2), unit * torch.ones(4, 3)], dim=1)  # an anchor's features first
        assert CarriedGaussians.of(behind, torch.tensor([0, 0, 1, 1]), 2).variance(3) == alike.variance(3)


def test_directions_of_its_own_are_never_all_of_a_covariance() -> None:
    with pytest.raises(UserError, match="own_share must be below 1"):
        Cargo.Options(own_share=1.0)


def test_one_image_of_each_class_is_no_reason_to_diverge() -> None:
    training = {"epochs": 3, "optimizer": "sgd", "lr": 1e-3}
    classifier = make_learner("cargo", options=QUICK, incremental=training)
    classifier.partial_fit(*make_blobs(["cat", "dog"], 1)).partial_fit(*SECOND)
    assert np.isfinite(classifier.predict_proba(SECOND[0])).all()


@pytest.mark.parametrize("anchor", ["none", "features", "layers"])
def test_old_gaussians_follow_the_map_of_the_current_images(anchor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"incremental": {"epochs": 3, "lr": 1e-2}, "augmentation": "crop"}
    classifier = make_learner("cargo", options={**QUICK, "anchor": anchor}, **settings)
    classifier.partial_fit(*FIRST)
    before, own = classifier._method.gaussians, classifier._model.learner.feature_dim
    first = copy.deepcopy(classifier)
    seen: dict[str, Any] = {}

    def fitting(old: Tensor, new: Tensor, columns: Tensor) -> Any:
        seen["pairs"] = (old, new, columns)
        seen["map"] = original(old, new, columns)
        return seen["map"]

    original = cargo.fitted
    monkeypatch.setattr(cargo, "fitted", fitting)
    classifier.partial_fit(*SECOND)
    old, new, columns = seen["pairs"]
    assert old.shape == new.shape == (2 * 24, own) and not torch.equal(old, new)
    assert torch.equal(columns, torch.arange(2, 5).repeat_interleave(8).repeat(2))
    torch.testing.assert_close(old[:24], torch.cat(list(first._features(SECOND[0])))[:, -own:])  # plain images
    torch.testing.assert_close(new[:24], torch.cat(list(classifier._features(SECOND[0])))[:, -own:])
    assert not torch.allclose(old[24:], old[:24], rtol=0.01)  # and augmented ones, seen by the same two networks
    assert float((new[24:] - old[24:]).norm() / (new[:24] - old[:24]).norm()) == pytest.approx(1, abs=0.5)
    carried, after = before.carried(seen["map"]), classifier._method.gaussians
    assert not torch.allclose(carried.means[:, -own:], before.means[:, -own:])
    torch.testing.assert_close(after.means[:2], carried.means)
    torch.testing.assert_close(after.directions[:2], carried.directions)
    assert len(after) == 5
    with torch.no_grad():
        shown = torch.cat(list(classifier._features(SECOND[0])))  # new classes are remembered as they are
    expected = CarriedGaussians.of(shown, torch.arange(3).repeat_interleave(8), 3)
    torch.testing.assert_close(after.means[2:], expected.means)
    torch.testing.assert_close(after.directions[2:].abs(), expected.directions.abs(), rtol=1e-3, atol=1e-4)


def test_classes_are_told_by_the_discriminant_of_the_gaussians() -> None:
    classifier = make_learner("cargo", options={**QUICK, "own_share": 0.2, "shrinkage": 0.1})
    classifier.partial_fit(*FIRST)
    features = torch.rand(6, classifier._model.feature_dim)
    for lesson in (SECOND, make_blobs(["fox"], 8)):
        told = quadratic_discriminant(classifier._method.gaussians, 0.2, 0.1).scores(features)
        assert torch.equal(classifier._method.scores(classifier._model, features), told)
        classifier.partial_fit(*lesson)  # what was made ready before does not count any more
        features = torch.rand(6, classifier._model.feature_dim)
    classifier.forget("dog")
    told = quadratic_discriminant(classifier._method.gaussians, 0.2, 0.1).scores(features)
    assert told.shape == (6, 5) and torch.equal(classifier._method.scores(classifier._model, features), told)


def test_what_is_drawn_has_the_covariance_that_classes_are_told_by() -> None:
    rng = torch.Generator().manual_seed(0)
    spread = torch.randn(60, 4, generator=rng) @ torch.randn(4, 4, generator=rng)
    method = Cargo(Cargo.Options(rank=2, own_share=0.4, shrinkage=0.2))
    method.gaussians = CarriedGaussians.of(spread, torch.arange(60) % 2, 2)
    drawn, columns = method.drawn(40_000, rng)
    kept = method.gaussians
    base = 0.8 * 0.6 * kept.covariance + 0.2 * 0.6 * kept.covariance.diagonal().mean() * torch.eye(4)
    for column in range(2):
        own = drawn[columns == column]
        expected = base + 0.4 * 0.8 * kept.directions[column].T @ kept.directions[column]
        torch.testing.assert_close(own.T.cov(), expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))
        torch.testing.assert_close(own.mean(0), kept.means[column], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("network", ["own", "resnet9", "resnet18"])
def test_the_first_network_stays_as_it_was_and_the_other_learns(network: str, tmp_path: Path) -> None:
    layered = network != "own"
    backbone = {"backbone": network, "width": 8} if layered else {"backbone": TinyNet()}
    classifier = make_learner("cargo", options=QUICK, incremental={"epochs": 3, "lr": 1e-2}, **backbone)
    classifier.partial_fit(*FIRST)
    images = torch.rand(4, 3, 16, 16)
    first = copy.deepcopy(classifier._model.learner.backbone).eval()
    places = [mean for maps in first.layers(images)[:-1] for mean in quarters(maps)] if layered else []
    expected, own = torch.cat([first(images), *places], 1), first.feature_dim
    whole = expected.shape[1] + own
    assert layered == (whole > 2 * own)
    for lesson in (SECOND, make_blobs(["fox", "gnu"], 8)):
        classifier.partial_fit(*lesson)
        features = classifier._model.eval().features(images)
        assert features.shape == (4, whole)
        torch.testing.assert_close(features[:, :-own], expected, rtol=0, atol=0)
        assert not torch.allclose(features[:, -own:], expected[:, :own])
        assert classifier._method.gaussians.means.shape[1] == whole  # all are looked at
    classifier.save(tmp_path / "two.efcil")
    again = type(classifier).load(tmp_path / "two.efcil", backbone=classifier._origin.given)
    assert torch.equal(again._model.features(images), features)
    assert (again.predict_proba(SECOND[0]) == classifier.predict_proba(SECOND[0])).all()
    again.partial_fit(*make_blobs(["hen"], 8))  # it can go on
    assert again._model.feature_dim == whole


def test_a_network_that_no_task_changes_needs_no_anchor_and_no_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first_loss", "loss"):
        monkeypatch.setattr(Cargo, name, None)
    classifier = quick_learner("cargo", options=QUICK, backbone_training="frozen")
    classifier.partial_fit(*FIRST)
    before, looks = classifier._method.state()["means"].clone(), []
    extract = Context.extract
    monkeypatch.setattr(Context, "extract", lambda *args, **kwargs: looks.append(1) or extract(*args, **kwargs))
    classifier.partial_fit(*SECOND)
    assert classifier._model.feature_dim == TinyNet.feature_dim
    assert torch.equal(classifier._method.state()["means"][: len(before)], before)  # no map is looked for
    assert len(looks) == 1 and classifier.work([10, 10]) == [0, 0]


def test_a_classifier_that_starts_with_the_network_takes_no_anchor_along(tmp_path: Path) -> None:
    classifier = make_learner("cargo", options=QUICK)
    classifier.partial_fit(*FIRST).partial_fit(*SECOND)
    other = classifier.untaught("cargo")
    assert not isinstance(other._origin.given, Anchored)
    other.partial_fit(*FIRST)
    assert other._model.feature_dim == classifier._model.feature_dim
    other.save(tmp_path / "other.efcil")
    again = type(other).load(tmp_path / "other.efcil", backbone=other._origin.given)
    assert (again.predict(FIRST[0]) == other.predict(FIRST[0])).all()


def test_a_compiled_lesson_compiles_the_network_that_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compiled.append(self))
    classifier = make_learner("cargo", options=QUICK, compile=True)
    for lesson in (FIRST, SECOND, make_blobs(["fox", "gnu"], 8)):
        classifier.partial_fit(*lesson)
    assert len(compiled) == 3 and not any(isinstance(network, Anchored) for network in compiled)


@pytest.mark.parametrize(("anchor", "whole"), [("none", 32), ("features", 64), ("layers", 160)])
def test_the_time_of_a_lesson_is_that_of_the_features_it_will_have(
    anchor: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a network of 32 features, 8 and 16 channels in its earlier layers; each size is taken for its seconds."""
    monkeypatch.setattr(cargo, "seconds_at", lambda size, work, power=3: size)
    classifier = make_learner("cargo", options={"anchor": anchor})
    classifier.partial_fit(*FIRST)
    ctx: Any = PartialContext(
        first=True,
        model=IncrementalModel(classifier._model.learner.backbone),
        images=range(16),
        classes=2,
        device="cpu",
    )
    assert classifier._method.seconds_after(ctx) == 2 * whole + whole
    later: Any = PartialContext(first=False, model=classifier._model, images=range(16), classes=2, device="cpu")
    maps = 1 + FOLDS  # of the features of the network that learns
    assert classifier._method.seconds_after(later) == maps * 32 + 2 * whole + whole


def test_what_is_loaded_decides_at_once() -> None:
    first, second = (make_learner("cargo", options=QUICK).partial_fit(*lesson) for lesson in (FIRST, SECOND))
    expected = second.decision_function(SECOND[0])
    second._method.scores(second._model, torch.zeros(1, second._model.feature_dim))
    second._method.load_state(first._method.state())
    assert not np.array_equal(second.decision_function(SECOND[0]), expected)
