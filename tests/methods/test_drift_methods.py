"""LDC, DPCR, ADC and AdaGauss against slow literal definitions, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import PartialContext, TinyNet, make_blobs, make_learner, normal
from efcil import IncrementalClassifier
from efcil.engine.context import Batch
from efcil.engine.model import IncrementalModel
from efcil.methods.adagauss import AdaGauss
from efcil.methods.adc import ADC
from efcil.methods.dpcr import DPCR
from efcil.methods.ldc import LDC
from efcil.parts.attacks import attack, class_drift
from efcil.parts.bottleneck import anti_collapse_loss
from efcil.parts.compensators import class_projector, regression

MODEL: Any = None  # none of these classifiers looks at the heads
TASKS = [make_blobs(["cat", "dog"]), make_blobs(["ant", "bee", "elk"], 5)]
UNBOUNDED = (torch.tensor(-1e9), torch.tensor(1e9))


def cosine_distance(point: Tensor, mean: Tensor) -> float:
    return float(((point / point.norm() - mean / mean.norm()) ** 2).sum())


def learnt(method: str, **changes: Any) -> IncrementalClassifier:
    classifier = make_learner(method, **changes)
    for task in TASKS:
        classifier.partial_fit(*task)
    return classifier


def features_of(classifier: IncrementalClassifier, task: int) -> Tensor:
    """Features of the plain images of a task, float64."""
    assert classifier._model is not None and classifier._preprocessing is not None
    pixels = torch.from_numpy(TASKS[task][0]).permute(0, 3, 1, 2)
    with torch.no_grad():
        x = classifier._preprocessing.normalised(pixels, torch.device("cpu"))
        return classifier._model.features(x).double()


# What they share


@pytest.mark.parametrize("method", ["ldc", "dpcr", "adc"])
def test_the_network_is_that_of_lwf_bit_for_bit(method: str) -> None:
    ours, lwf = (learnt(name, epochs=2)._model for name in (method, "lwf"))
    assert ours is not None and lwf is not None
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), lwf.parameters(), strict=True))


@pytest.mark.parametrize("classifier", [LDC(LDC.Options()), ADC(ADC.Options())], ids=["ldc", "adc"])
def test_scores_are_distances_of_unit_vectors(classifier: LDC | ADC) -> None:
    classifier.means, points = normal(3, 4), normal(5, 4, seed=1)
    expected = [[-cosine_distance(point, mean) for mean in classifier.means] for point in points]
    torch.testing.assert_close(classifier.scores(MODEL, points), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("method", ["ldc", "adc"])
def test_means_of_a_network_that_stays_are_the_means_of_the_images(method: str) -> None:
    """Without later epochs nothing drifts; the task has more images than features, so that the map is the identity."""
    classifier = learnt(
        method, backbone=TinyNet(), incremental={"epochs": 0}, options={"epsilon": 1e-12} if method == "ldc" else {}
    )
    for task, classes in enumerate((["cat", "dog"], ["ant", "bee", "elk"])):
        features, labels = features_of(classifier, task), TASKS[task][1]
        for name in classes:
            column = classifier.classes_.tolist().index(name)
            mean = features[torch.from_numpy(labels == name)].mean(0)
            torch.testing.assert_close(classifier._method.state()["means"][column].double(), mean, rtol=1e-3, atol=1e-3)


# LDC


def test_ldc_carries_means_by_the_least_squares_map() -> None:
    old, new = normal(40, 5), normal(40, 5, seed=1)
    ldc = LDC(LDC.Options(epsilon=0.1))
    ldc.means = normal(3, 5, seed=2)
    gram, cross = torch.zeros(5, 5, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for x, y in zip(old, new, strict=True):
        gram += torch.outer(x, x)
        cross += torch.outer(x, y)
    penalty = 0.1 * sum(float(gram[i, i]) for i in range(5)) / 5
    linear_map = torch.linalg.inv(gram + penalty * torch.eye(5)) @ cross
    torch.testing.assert_close(ldc.moved(old, new), torch.stack([mean @ linear_map for mean in ldc.means]))


def test_ldc_finds_a_linear_drift() -> None:
    old, drift = normal(40, 5), normal(5, 5, seed=1)
    ldc = LDC(LDC.Options())
    ldc.means = normal(3, 5, seed=2)
    torch.testing.assert_close(ldc.moved(old, old @ drift), ldc.means @ drift, rtol=1e-6, atol=1e-6)


# DPCR


def flat(images: int, rank: int, n: int = 6, seed: int = 0) -> Tensor:
    """Features (N, n) that span a space of this dimension only."""
    return normal(images, rank, seed=seed) @ normal(rank, n, seed=seed + 100)


def remembering(*parts: Tensor, **options: Any) -> DPCR:
    """DPCR after a first task of these classes."""
    dpcr, n = DPCR(DPCR.Options(**options)), parts[0].shape[1]
    dpcr.means, dpcr.uncentred_covariances = normal(0, n), normal(0, n, n)
    columns = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    dpcr.remember(torch.cat(parts), columns)
    return dpcr


@pytest.mark.parametrize("images", [2, 4, 50], ids=["fewer images than features", "few images", "many images"])
def test_the_task_map_of_undrifted_features_is_the_identity_on_their_span(images: int) -> None:
    features = flat(images, rank=3)
    task_map = regression(features, features, DPCR.Options().epsilon)
    torch.testing.assert_close(features @ task_map, features, rtol=1e-6, atol=1e-6)
    outside = torch.linalg.svd(features).Vh[min(images, 3) :]  # what no image shows is lost
    torch.testing.assert_close(outside @ task_map, torch.zeros_like(outside), rtol=0, atol=1e-6)


def test_without_drift_dpcr_keeps_what_it_remembers() -> None:
    dpcr = remembering(flat(4, 2, seed=1), flat(1, 1, seed=2))
    means, covariances = dpcr.means, dpcr.uncentred_covariances
    features = normal(30, 6)
    dpcr.transport(features, features)
    torch.testing.assert_close(dpcr.means, means, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dpcr.uncentred_covariances, covariances, rtol=1e-6, atol=1e-6)


def test_dpcr_remembers_sums_of_outer_products() -> None:
    first, second = normal(4, 3), normal(1, 3, seed=1)
    dpcr = remembering(first, second)
    for part, mean, covariance in zip((first, second), dpcr.means, dpcr.uncentred_covariances, strict=True):
        torch.testing.assert_close(mean, sum(part, torch.zeros(3)) / len(part))
        torch.testing.assert_close(covariance, sum((torch.outer(f, f) for f in part), torch.zeros(3, 3)))
    assert dpcr.counts.tolist() == [4, 1]


@pytest.mark.parametrize("rank", [1, 2, 6])
def test_a_class_projector_projects_on_the_span_of_the_class(rank: int) -> None:
    features = flat(10, rank)
    u, s, _ = torch.linalg.svd(features.T @ features)
    u = u[:, s > 1e-8]
    assert u.shape[1] == rank
    torch.testing.assert_close(class_projector(features.T @ features), u @ u.T)
    assert class_projector(torch.zeros(6, 6)).abs().max() == 0  # a class without any feature


def test_dpcr_transports_as_its_equations_say() -> None:
    classes = [flat(4, 2, seed=1), flat(1, 1, seed=2), normal(9, 6, seed=3)]
    old, new = normal(30, 6), normal(30, 6, seed=4)
    dpcr = remembering(*classes, epsilon=1e-12)
    dpcr.transport(old, new)
    task_map = torch.linalg.inv(old.T @ old) @ old.T @ new
    for part, mean, covariance in zip(classes, dpcr.means, dpcr.uncentred_covariances, strict=True):
        basis = torch.linalg.svd(part, full_matrices=False)
        u = basis.Vh[basis.S > 1e-6].T
        class_map = task_map @ u @ u.T
        torch.testing.assert_close(mean, part.mean(0) @ class_map)
        torch.testing.assert_close(covariance, class_map.T @ part.T @ part @ class_map)


def test_the_reconstructed_classifier_is_ridge_regression_on_all_images() -> None:
    parts = [normal(size, 6, seed=size) + size for size in (3, 1, 5, 2)]  # two old classes, two new ones
    dpcr = remembering(*parts[:2], gamma=0.7)
    weight = dpcr.reconstructed(torch.cat(parts[2:]), torch.tensor([2] * 5 + [3] * 2))
    r, q = 0.7 * torch.eye(6, dtype=torch.float64), torch.zeros(6, 4, dtype=torch.float64)
    for column, part in enumerate(parts):
        for feature in part:
            r += torch.outer(feature, feature)
            q[:, column] += feature
    expected = torch.linalg.inv(r) @ q
    torch.testing.assert_close(weight, torch.stack([w / w.norm() for w in expected.T], dim=1))


def test_dpcr_of_a_network_that_stays_is_ridge_regression_on_all_images() -> None:
    classifier = learnt("dpcr", backbone=TinyNet(), incremental={"epochs": 0}, options={"gamma": 0.5, "epsilon": 1e-12})
    features = torch.cat([features_of(classifier, task) for task in (0, 1)])
    columns = np.concatenate([[classifier.classes_.tolist().index(name) for name in task[1]] for task in TASKS])
    targets = torch.nn.functional.one_hot(torch.from_numpy(columns)).double()
    expected = torch.linalg.inv(features.T @ features + 0.5 * torch.eye(6)) @ features.T @ targets
    weight = classifier._method.state()["weight"]
    torch.testing.assert_close(weight, expected / expected.norm(dim=0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(classifier._method.scores(MODEL, features), features @ weight)


# ADC


def network(seed: int = 0) -> IncrementalModel:
    model = IncrementalModel(TinyNet()).double().eval()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * normal(*parameter.shape, seed=seed + index))
    return model


def images(count: int = 5) -> Tensor:
    return normal(count, 3, 4, 4, seed=7)


def test_the_attack_is_normalised_gradient_descent() -> None:
    model, x = network(), images()
    mean, limits = model.features(images() + 1)[0].detach(), (torch.full((3, 1, 1), -1.5), torch.full((3, 1, 1), 2.0))
    expected = x.clone()
    for _ in range(2):
        gradient = torch.zeros_like(expected)
        for index in range(len(expected)):  # the images do not see each other but for the common norm
            image = expected[index : index + 1].clone().requires_grad_()
            ((model.features(image)[0] - mean) ** 2).sum().div(5 * 6).backward()
            assert image.grad is not None
            gradient[index] = image.grad[0]
        expected = (expected - 0.8 * gradient / gradient.square().sum().sqrt()).clamp(-1.5, 2.0)
    torch.testing.assert_close(attack(model, x, mean, 2, 0.8, limits), expected)


def test_attacked_images_are_nearer_to_the_prototype_and_stay_within_the_limits() -> None:
    model, x = network(), images()
    mean = model.features(normal(1, 3, 4, 4, seed=8) + 1)[0].detach()
    with torch.no_grad():
        before = (model.features(x) - mean).norm(dim=1)
        for limits in (UNBOUNDED, (x.amin((0, 2, 3))[:, None, None], x.amax((0, 2, 3))[:, None, None])):
            with torch.enable_grad():
                attacked = attack(model, x, mean, 3, 1.0, limits)
            assert ((model.features(attacked) - mean).norm(dim=1) < before).all()
            assert (attacked >= limits[0]).all() and (attacked <= limits[1]).all()
    assert torch.equal(attack(model, x, mean, 0, 1.0, UNBOUNDED), x)


def test_a_network_that_shows_no_gradient_leaves_images_alone() -> None:
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(attack(model, images(), torch.ones(6, dtype=torch.float64), 3, 25.0, UNBOUNDED), images())


@pytest.mark.parametrize("reachable", [True, False])
def test_adc_measures_the_drift_of_the_images_that_succeed(reachable: bool) -> None:
    old, new, x = network(), network(seed=20), images()
    with torch.no_grad():
        means = old.features(x)[:2].clone()
    means = means if reachable else torch.stack([means[0] - 1e3, means[1]])  # features are never that negative
    attacked = attack(old, x, means[0], 3, 0.5, UNBOUNDED)
    with torch.no_grad():
        success = [
            index
            for index, feature in enumerate(old.features(attacked))
            if (feature - means[0]).norm() < (feature - means[1]).norm()
        ]
        assert bool(success) == reachable and len(success) < len(x)
        shown = [attacked[index] for index in success] or list(x)
        drifts = [new.features(image[None])[0] - old.features(image[None])[0] for image in shown]
    expected = sum(drifts, torch.zeros(6)) / len(drifts)
    torch.testing.assert_close(class_drift(old, new, x, means, 0, 3, 0.5, UNBOUNDED), expected)


# AdaGauss


def test_the_anti_collapse_loss_is_the_capped_diagonal_of_the_cholesky_factor() -> None:
    z = normal(9, 3) * torch.tensor([0.5, 1.0, 3.0])
    centred = z - z.sum(0) / 9
    covariance = sum((torch.outer(row, row) for row in centred), torch.zeros(3, 3)) / 8
    lower = torch.zeros(3, 3, dtype=torch.float64)
    for i in range(3):  # Cholesky by hand
        for j in range(i + 1):
            rest = covariance[i, j] - lower[i, :j] @ lower[j, :j]
            lower[i, j] = rest.sqrt() if i == j else rest / lower[j, j]
    expected = -sum(min(float(lower[i, i]), 0.8) for i in range(3)) / 3
    assert min(float(lower[i, i]) for i in range(3)) < 0.8 < max(float(lower[i, i]) for i in range(3))
    assert float(anti_collapse_loss(z, beta=0.8)) == pytest.approx(expected, abs=1e-5)


def test_the_anti_collapse_loss_spreads_collapsed_features() -> None:
    z = flat(20, 2, n=4).requires_grad_()
    before = anti_collapse_loss(z, 1.0)
    before.backward()
    assert z.grad is not None and torch.isfinite(z.grad).all()
    assert anti_collapse_loss(z.detach() - 0.1 * z.grad, 1.0) < before
    assert anti_collapse_loss(normal(4, 4), 1.0) == 0  # too few rows for four directions


def test_the_loss_of_adagauss() -> None:
    model, old, x, y = network(), network(seed=20), images(7), torch.tensor([2, 3, 2, 3, 4, 4, 2])
    ctx: Any = PartialContext(
        model=model, old=old, known=2, classes=3, first=False, rng=torch.Generator(), device=torch.device("cpu")
    )
    adagauss = AdaGauss(AdaGauss.Options(bottleneck=4, alpha=0.5, beta=0.2, lambda_distillation=3.0))
    adagauss.bottleneck = normal(4, 6, seed=5)
    adagauss.before_task(ctx)
    assert str(adagauss.maps["distiller"][1]) == "GELU(approximate='none')"
    assert [tuple(layer.weight.shape) for layer in (adagauss.maps["distiller"][0], adagauss.maps["distiller"][2])] == [
        (128, 4),
        (4, 128),
    ]
    for module in (adagauss.trained, adagauss.maps):
        module.double()
    terms = adagauss.loss(ctx, Batch(x, y))
    head, total = adagauss.trained["head"], 0.0
    with torch.no_grad():
        z = torch.stack([adagauss.bottleneck @ feature for feature in model.features(x)])
        z_old = torch.stack([adagauss.bottleneck @ feature for feature in old.features(x)])
        cross_entropy = -sum(float((head @ row).log_softmax(0)[label - 2]) for row, label in zip(z, y, strict=True)) / 7
        for row, target in zip(z, z_old, strict=True):
            total += float(((adagauss.maps["distiller"](row) - target) ** 2).sum()) / (7 * 4)
    assert terms["ce"].item() == pytest.approx(cross_entropy)
    assert terms["distillation"].item() == pytest.approx(3.0 * total)
    assert terms["anti_collapse"].item() == pytest.approx(0.5 * float(anti_collapse_loss(z, 0.2)))


@pytest.mark.parametrize("rotation", [True, False])
def test_the_first_task_of_adagauss(rotation: bool) -> None:
    model, x, y = network(), images(7), torch.tensor([0, 1, 0, 1, 2, 2, 0])
    config = make_learner(first={"rotation": rotation}).config
    ctx: Any = PartialContext(
        **{"model": model, "classes": 3, "first": True, "config": config},
        **{"rng": torch.Generator(), "device": torch.device("cpu")},
    )
    adagauss = AdaGauss(AdaGauss.Options(bottleneck=4, alpha=0.5, beta=0.2))
    adagauss.before_task(ctx)
    adagauss.trained.double()
    terms = adagauss.first_loss(ctx, Batch(x, y))
    with torch.no_grad():
        turns = range(4 if rotation else 1)
        z = torch.cat(
            [model.features(i.rot90(k, (1, 2))[None]) @ adagauss.trained["bottleneck"].T for i in x for k in turns]
        )
        labels = [c if k == 0 else 3 + 3 * c + k - 1 for c in y.tolist() for k in turns]
        outputs = (adagauss.trained["head"] @ z.T).T
    losses = [-float(row.log_softmax(0)[label]) for row, label in zip(outputs, labels, strict=True)]
    assert list(terms) == ["ce", "anti_collapse"]
    assert terms["ce"].item() == pytest.approx(sum(losses) / len(losses))
    assert terms["anti_collapse"].item() == pytest.approx(0.5 * float(anti_collapse_loss(z, 0.2)))


def test_the_first_task_of_adagauss_shows_as_many_rotations_as_set_and_smooths_labels() -> None:
    model, x, y = network(), images(7), torch.tensor([0, 1, 0, 1, 2, 2, 0])
    seen: list[int] = []
    model.backbone.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    losses = []
    for smoothing in (0.0, 0.3):
        config = make_learner(first={"rotations_shown": 2, "label_smoothing": smoothing}).config
        ctx: Any = PartialContext(
            **{"model": model, "classes": 3, "first": True, "config": config},
            **{"rng": torch.Generator().manual_seed(1), "device": torch.device("cpu")},
        )
        adagauss = AdaGauss(AdaGauss.Options(bottleneck=4))
        adagauss.before_task(ctx)
        adagauss.trained.double()
        losses.append(float(adagauss.first_loss(ctx, Batch(x, y))["ce"].detach()))
    assert seen == [14, 14]  # each of the seven images in two rotations
    assert losses[0] != losses[1]


def test_adagauss_scores_are_mahalanobis_distances_of_unit_vectors() -> None:
    adagauss = AdaGauss(AdaGauss.Options())
    adagauss.bottleneck, adagauss.means = normal(3, 5), normal(2, 3, seed=1)
    adagauss.covariance_factors, points = normal(2, 3, 3, seed=2).tril(), normal(4, 5, seed=3)
    expected = torch.zeros(4, 2, dtype=torch.float64)
    for column, (mean, factor) in enumerate(zip(adagauss.means, adagauss.covariance_factors, strict=True)):
        covariance = factor @ factor.T
        covariance = covariance + 3 * covariance.diagonal().mean() * torch.eye(3)
        deviation = covariance.diagonal().sqrt()
        inverse = torch.linalg.inv(covariance / deviation[:, None] / deviation[None])
        for row, point in enumerate(points):
            z = adagauss.bottleneck @ point
            difference = z / z.norm() - mean / mean.norm()
            expected[row, column] = -(difference @ inverse @ difference)
    torch.testing.assert_close(adagauss.scores(MODEL, points), expected)


def test_gaussians_of_a_network_that_stays_are_those_of_the_images() -> None:
    classifier = learnt("adagauss", backbone=TinyNet(), incremental={"epochs": 0}, options={"bottleneck": 3})
    state = classifier._method.state()
    for task in (0, 1):
        z = features_of(classifier, task) @ state["bottleneck"].double().T
        for name in set(TASKS[task][1].tolist()):
            column = classifier.classes_.tolist().index(name)
            own = z[torch.from_numpy(TASKS[task][1] == name)]
            factor = state["covariance_factors"][column].double()
            torch.testing.assert_close(state["means"][column].double(), own.mean(0), rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(factor @ factor.T, own.T.cov(), rtol=1e-3, atol=1e-3)


def test_ldc_moves_the_old_means_by_its_map_and_adds_the_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = make_learner("ldc").partial_fit(*make_blobs(["cat", "dog"]))
    method = classifier._method
    assert isinstance(method, LDC)
    before = method.means.clone()
    monkeypatch.setattr(LDC, "moved", lambda self, old, new: self.means + len(old))
    images, labels = make_blobs(["elk"])
    classifier.partial_fit(images, labels)
    after = classifier._method.means
    assert torch.equal(after[:2], before + len(images))
    assert after.shape == (3, before.shape[1])
