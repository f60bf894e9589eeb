"""Freeze, FeCAM, FeTrIL, ACIL, DS-AL and SDC against slow literal definitions, in float64."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from conftest import TinyNet, make_blobs, make_learner
from efcil.data.augment import AUGMENTATIONS
from efcil.data.images import image_set
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import JITTER
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.progress import Step
from efcil.errors import UserError
from efcil.methods import fetril
from efcil.methods.acil import ACIL
from efcil.methods.ds_al import DSAL
from efcil.methods.fecam import FeCAM, correlation, inverse_root, shrunk, tukey
from efcil.methods.fetril import FeTrIL, Nearest, fit_svm, pseudo_features
from efcil.methods.freeze import Freeze
from efcil.methods.sdc import SDC
from efcil.paper.drift import Kernel
from efcil.parts.ridge import RecursiveRidge

MODEL: Any = None  # none of these classifiers looks at the heads


def clusters(*sizes: int, n: int = 6, seed: int = 0, first: int = 0) -> tuple[Tensor, Tensor]:
    """Non-negative features (N, n) around one centre per class, and their columns; sizes are images per class."""
    rng = torch.Generator().manual_seed(seed)
    columns = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) + first
    centres = 2 * torch.rand(first + len(sizes), n, generator=rng, dtype=torch.float64)
    noise = torch.randn(len(columns), n, generator=rng, dtype=torch.float64)
    return torch.relu(centres[columns] + 0.3 * noise), columns


def context(features: Tensor, columns: Tensor, classes: int, known: int = 0, drift: Tensor | None = None) -> Context:
    """A task whose images have these features (N, 6), and old features that lie ``drift`` before them."""
    images = make_blobs(["a"], len(features))[0]
    ctx = Context(
        config=make_learner().config,
        task=int(known > 0),
        model=IncrementalModel(TinyNet()),
        old=IncrementalModel(TinyNet()) if known else None,
        images=image_set(images),
        columns=columns,
        classes=classes,
        preprocessing=Preprocessing.of(image_set(images), make_learner().config, None),
        augmentation=AUGMENTATIONS["none"],
        device=torch.device("cpu"),
        rng=torch.Generator().manual_seed(0),
    )
    for size in (known, classes) if known else (classes,):
        ctx.model.grow(size)
    old_features = features if drift is None else features - drift
    ctx.extract = lambda *models, augmented: [  # type: ignore[method-assign, misc, assignment]
        features if model is ctx.model else old_features for model in models
    ]
    return ctx


def learnt(method: Method, *tasks: tuple[Tensor, Tensor]) -> Any:
    """The method after these tasks."""
    known = 0
    for features, columns in tasks:
        classes = len(columns.unique())
        method.after_task(context(features, columns, classes, known))
        known += classes
    return method


TASKS = [clusters(9, 5, 12), clusters(7, 10, first=3, seed=1)]
TEST = clusters(2, 2, 2, 2, 2, seed=2)[0]


# Freeze


def test_freeze_predicts_the_nearest_mean() -> None:
    method = learnt(Freeze(Freeze.Options()), *TASKS)
    means = [x[columns == c].sum(0) / (columns == c).sum() for x, columns in TASKS for c in columns.unique()]
    expected = [[-float((x - mean).square().sum()) for mean in means] for x in TEST]
    torch.testing.assert_close(method.scores(MODEL, TEST), torch.tensor(expected).double(), rtol=1e-5, atol=1e-6)


# FeCAM


def shrunk_by_hand(covariance: Tensor, gamma1: float, gamma2: float) -> Tensor:
    """Σ + γ1 V1 I + γ2 V2 (1 − I), entry by entry."""
    n = len(covariance)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    others = [float(covariance[i, j]) for i, j in pairs if covariance[i, j] != 0]
    v1 = sum(float(covariance[i, i]) for i in range(n)) / n
    v2 = sum(others) / len(others) if others else 0.0
    result = covariance.clone()
    for i in range(n):
        result[i, i] += gamma1 * v1
    for i, j in pairs:
        result[i, j] += gamma2 * v2
    return result


def fecam_by_hand(features: Tensor, x: Tensor, options: FeCAM.Options) -> float:
    """Minus the distance of one image to one class, with the transformations and the pseudo-inverse as published."""
    power = options.tukey_lambda
    covariance = (features**power).T.cov() + JITTER * torch.eye(features.shape[1], dtype=torch.float64)
    for _ in range(options.shrinkages):
        covariance = shrunk_by_hand(covariance, options.gamma1, options.gamma2)
    normalised = covariance.clone()
    for i, j in torch.cartesian_prod(*[torch.arange(len(covariance))] * 2).tolist():
        normalised[i, j] = covariance[i, j] / math.sqrt(covariance[i, i] * covariance[j, j])
    point = (x / x.norm()) ** power
    mean = features.mean(0) ** power
    delta = point / point.norm() - mean / mean.norm()
    return -float(delta @ torch.linalg.pinv(normalised) @ delta)


@pytest.mark.parametrize(
    "options",
    [{}, {"shrinkages": 1}, {"shrinkages": 0}, {"gamma1": 3.0, "gamma2": 0.5}, {"tukey_lambda": 1.0}],
    ids=str,
)
def test_fecam_scores_are_the_published_distances(options: dict[str, Any]) -> None:
    method = learnt(FeCAM(FeCAM.Options(**options)), *TASKS)
    parts = [features[columns == column] for features, columns in TASKS for column in columns.unique()]
    expected = torch.tensor([[fecam_by_hand(part, x, method.options) for part in parts] for x in TEST])
    torch.testing.assert_close(method.scores(MODEL, TEST), expected.double(), rtol=1e-5, atol=1e-6)


def test_fecam_with_identity_covariances_is_the_nearest_mean_of_transformed_features() -> None:
    method = learnt(FeCAM(FeCAM.Options()), *TASKS)
    method.whitenings = torch.eye(6, dtype=torch.float64).expand(5, 6, 6)
    distance = torch.cdist(F.normalize(TEST.sqrt()), F.normalize(method.means.sqrt())).square()
    torch.testing.assert_close(method.scores(MODEL, TEST), -distance)


def test_fecam_shrinkage_leaves_zeros_out_of_the_mean() -> None:
    covariance = torch.tensor([[2.0, 1.0, 0.0], [1.0, 4.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[4.0, 2.0, 1.0], [2.0, 6.0, 1.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
    assert torch.equal(shrunk(covariance, 1.0, 1.0), expected)
    assert torch.equal(shrunk(covariance, 0.0, 0.0), covariance)
    assert torch.equal(shrunk(torch.eye(3), 2.0, 5.0), 3 * torch.eye(3))


def test_fecam_normalised_covariances_have_a_unit_diagonal_and_no_scale() -> None:
    features = TASKS[0][0]
    covariance, scale = features.T.cov(), torch.linspace(0.1, 7, 6, dtype=torch.float64)
    torch.testing.assert_close(correlation(covariance), features.T.corrcoef())
    torch.testing.assert_close(correlation((features * scale).T.cov()), correlation(covariance))


def test_fecam_whitening_is_a_root_of_the_inverse() -> None:
    matrix = TASKS[0][0].T.cov()
    root = inverse_root(matrix)
    torch.testing.assert_close(root @ root.T, matrix.inverse())


def test_fecam_directions_that_shrinkage_made_negative_do_not_count() -> None:
    """Two correlated live features of four: Σ + V1 I + V2 (1 − I) is indefinite."""
    covariance = torch.zeros(4, 4, dtype=torch.float64)
    covariance[:2, :2] = torch.tensor([[1.0, 0.9], [0.9, 1.0]])
    matrix = correlation(shrunk(covariance, 1.0, 1.0))
    values, vectors = torch.linalg.eigh(matrix)
    assert values[0] < -0.1
    root = inverse_root(matrix)
    expected = sum(torch.outer(v, v) / value for value, v in zip(values, vectors.T, strict=True) if value > 0)
    torch.testing.assert_close(root @ root.T, expected)


def test_fecam_features_below_zero_count_as_zero() -> None:
    features = torch.tensor([[-1.0, 0.0, 4.0]])
    assert torch.equal(tukey(features, 0.5), torch.tensor([[0.0, 0.0, 2.0]]))
    assert torch.equal(tukey(features, 1.0), features)


# FeTrIL


@pytest.mark.parametrize("nearest", ["euclidean", "cosine"])
def test_fetril_pseudo_features_are_those_of_the_nearest_new_class_translated(nearest: Nearest) -> None:
    features, columns = clusters(4, 3, 5, first=2, seed=3)
    new_means = torch.stack([features[columns == 2 + k].mean(0) for k in range(3)])
    old_means = torch.stack([3 * new_means[1] + 0.01, new_means[2] + 0.01])
    expected, expected_columns = [], []
    for c, old in enumerate(old_means):
        if nearest == "cosine":
            closeness = [float(old @ new / old.norm() / new.norm()) for new in new_means]
        else:
            closeness = [-float((old - new).norm()) for new in new_means]
        k = max(range(3), key=closeness.__getitem__)
        for f in features[columns == 2 + k]:
            expected.append(f - new_means[k] + old)
            expected_columns.append(c)
    moved, moved_columns = pseudo_features(features, columns, old_means, new_means, nearest)
    torch.testing.assert_close(moved, torch.stack(expected))
    assert moved_columns.tolist() == expected_columns
    for c, mean in enumerate(old_means):
        torch.testing.assert_close(moved[moved_columns == c].mean(0), mean)


def test_fetril_the_two_ways_to_be_nearest_differ() -> None:
    features, columns = clusters(4, 3, 5, first=1, seed=3)
    new_means = torch.stack([features[columns == 1 + k].mean(0) for k in range(3)])
    chosen = [
        len(pseudo_features(features, columns, 0.05 * new_means[2:], new_means, nearest)[0])
        for nearest in ("euclidean", "cosine")
    ]
    assert chosen[1] == 5 and chosen[0] != 5


def test_fetril_with_translation_zero_is_a_linear_svm_on_the_features() -> None:
    features, columns = clusters(8, 6, first=2, seed=4)
    new_means = torch.stack([features[columns == 2 + k].mean(0) for k in range(2)])
    moved, moved_columns = pseudo_features(features, columns, new_means, new_means, "euclidean")
    torch.testing.assert_close(moved, features)
    weight, bias = fit_svm(moved, moved_columns, 1.0, 1e-4)
    svm = LinearSVC(dual=False).fit(F.normalize(features).numpy(), (columns - 2).numpy())
    decisions = torch.from_numpy(svm.decision_function(F.normalize(TEST).numpy()))
    torch.testing.assert_close((F.normalize(TEST) @ weight.T + bias)[:, 1], decisions)


def test_fetril_tells_its_settings_to_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    def noting(**settings: Any) -> LinearSVC:
        told.append(settings)
        return LinearSVC(**settings)

    monkeypatch.setattr(fetril, "support_vector_machine", lambda: noting)
    learnt(FeTrIL(FeTrIL.Options(svm_c=0.5, svm_tolerance=1e-3)), *TASKS)
    assert told == [{"dual": False, "C": 0.5, "tol": 1e-3}] * len(TASKS)


@pytest.mark.parametrize("sizes", [(8, 6, 7), (8, 6), (3, 1, 1, 9)], ids=str)
def test_fetril_scores_are_the_decisions_of_the_svm(sizes: tuple[int, ...]) -> None:
    features, columns = clusters(*sizes, seed=5)
    method = learnt(FeTrIL(FeTrIL.Options()), (features, columns))
    svm = LinearSVC(dual=False, C=1.0, tol=1e-4).fit(F.normalize(features).numpy(), columns.numpy())
    decisions = torch.from_numpy(svm.decision_function(F.normalize(TEST).numpy()))
    if len(sizes) == 2:
        decisions = torch.stack([-decisions, decisions], dim=1)
    torch.testing.assert_close(method.scores(MODEL, TEST), decisions)
    predicted = torch.from_numpy(svm.predict(F.normalize(TEST).numpy()))
    assert torch.equal(method.scores(MODEL, TEST).argmax(1), predicted)


def test_fetril_learns_from_new_features_and_translated_ones() -> None:
    method = learnt(FeTrIL(FeTrIL.Options(svm_c=2.0)), *TASKS)
    (old, old_columns), (new, new_columns) = TASKS
    old_means = torch.stack([old[old_columns == c].mean(0) for c in range(3)])
    new_means = torch.stack([new[new_columns == c].mean(0) for c in (3, 4)])
    pseudo, pseudo_columns = pseudo_features(new, new_columns, old_means, new_means, "euclidean")
    weight, bias = fit_svm(torch.cat([pseudo, new]), torch.cat([pseudo_columns, new_columns]), 2.0, 1e-4)
    torch.testing.assert_close(method.means, torch.cat([old_means, new_means]))
    torch.testing.assert_close(method.scores(MODEL, TEST), F.normalize(TEST) @ weight.T + bias)


def test_fetril_of_one_class_has_nothing_to_tell_apart() -> None:
    method = learnt(FeTrIL(FeTrIL.Options()), clusters(4))
    assert torch.equal(method.scores(MODEL, TEST), torch.zeros(10, 1, dtype=torch.float64))


def test_fetril_without_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    with pytest.raises(UserError, match=r"scikit-learn.*efcil\[baselines\]"):
        make_learner("fetril").partial_fit(*make_blobs(["cat", "dog"]))


# ACIL and DS-AL


SPLITS = [[30], [10, 20], [1, 1, 27, 1], [5] * 6]


def ridge_by_hand(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    """(XᵀX + γ I)⁻¹ XᵀY."""
    return torch.linalg.solve(x.T @ x + gamma * torch.eye(x.shape[1], dtype=torch.float64), x.T @ y)


def expansion(size: int = 40) -> Tensor:
    return torch.randn(6, size, generator=torch.Generator().manual_seed(7), dtype=torch.float64) / 2


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("gamma", [0.1, 1e-3])
def test_acil_after_any_tasks_is_ridge_regression_on_all_data(sizes: list[int], gamma: float) -> None:
    """Fewer rows than expanded features, and classes that arrive one task after the other."""
    features, columns = clusters(6, 6, 6, 6, 6)
    method = ACIL(ACIL.Options(gamma=gamma))
    method.expansion = expansion()
    method.ridge = RecursiveRidge.start(40, gamma, torch.device("cpu"))
    for rows, labels in zip(features.split(sizes), columns.split(sizes), strict=True):
        method.learn(rows, labels, int(labels.max()) + 1)
    hidden = torch.relu(features @ method.expansion)
    weight = ridge_by_hand(hidden, F.one_hot(columns).double(), gamma)
    torch.testing.assert_close(method.ridge.weight, weight, rtol=0, atol=1e-8)
    torch.testing.assert_close(
        method.scores(MODEL, TEST), torch.relu(TEST @ method.expansion) @ weight, rtol=0, atol=1e-8
    )
    inverse = (hidden.T @ hidden + gamma * torch.eye(40, dtype=torch.float64)).inverse()
    torch.testing.assert_close(method.ridge.inverse, inverse, rtol=0, atol=1e-8 / gamma)


def test_acil_with_more_rows_than_one_step_takes() -> None:
    features, columns = clusters(400, 300)
    method = ACIL(ACIL.Options())
    method.expansion = expansion()
    method.ridge = RecursiveRidge.start(40, 0.1, torch.device("cpu"))
    method.learn(features, columns, 2)
    expected = ridge_by_hand(torch.relu(features @ method.expansion), F.one_hot(columns).double(), 0.1)
    torch.testing.assert_close(method.ridge.weight, expected, rtol=0, atol=1e-8)


def test_acil_expansion_is_drawn_once_like_a_linear_layer() -> None:
    method = ACIL(ACIL.Options(expansion=500))
    features, columns = clusters(3, 3)
    method.after_task(context(features.float(), columns, 2))
    drawn = method.expansion.clone()
    assert drawn.shape == (6, 500)
    assert 0.9 / math.sqrt(6) < drawn.abs().max() <= 1 / math.sqrt(6)
    assert abs(float(drawn.mean())) < 0.02
    features, columns = clusters(3, first=2)
    method.after_task(context(features.float(), columns, 1, known=2))
    assert torch.equal(method.expansion, drawn)
    assert method.ridge.weight.shape == (500, 3)


def test_ds_al_streams_and_score_are_the_published_formulas() -> None:
    method = DSAL(DSAL.Options(gamma=0.2, gamma_compensation=0.3, compensation=0.7))
    method.expansion = expansion()
    method.main = RecursiveRidge.start(40, 0.2, torch.device("cpu"))
    method.compensation = RecursiveRidge.start(40, 0.3, torch.device("cpu"))
    residuals: list[Tensor] = []
    for task, (features, columns) in enumerate(TASKS):
        known, classes = (0, 3) if task == 0 else (3, 5)
        method.learn(features, columns, known, classes)
        seen, labels = (torch.cat(part) for part in zip(*TASKS[: task + 1], strict=True))
        main = ridge_by_hand(torch.relu(seen @ method.expansion), F.one_hot(labels, classes).double(), 0.2)
        residual = F.one_hot(columns, classes) - torch.relu(features @ method.expansion) @ main
        residual[:, :known] = 0
        residuals = [*(F.pad(old, (0, classes - old.shape[1])) for old in residuals), residual]
    compensation = ridge_by_hand(torch.tanh(seen @ method.expansion), torch.cat(residuals), 0.3)
    torch.testing.assert_close(method.main.weight, main, rtol=0, atol=1e-8)
    torch.testing.assert_close(method.compensation.weight, compensation, rtol=0, atol=1e-8)
    projected = TEST @ method.expansion
    expected = torch.relu(projected) @ main + 0.7 * torch.tanh(projected) @ compensation
    torch.testing.assert_close(method.scores(MODEL, TEST), expected, rtol=0, atol=1e-8)


def test_ds_al_without_compensation_is_acil() -> None:
    dual = DSAL(DSAL.Options(expansion=30, compensation=0.0))
    single = ACIL(ACIL.Options(expansion=30))
    tasks = [(features.float(), columns) for features, columns in TASKS]
    scores = [learnt(method, *tasks).scores(MODEL, TEST.float()) for method in (dual, single)]
    assert torch.equal(*scores)


# SDC


@pytest.mark.parametrize("kernel", ["literal", "scaled"])
def test_sdc_moves_old_means_by_the_weighted_drift_of_near_images(kernel: Kernel) -> None:
    method = SDC(SDC.Options(kernel=kernel, sigma=0.4))
    (first, first_columns), (features, columns) = TASKS
    method.after_task(context(first, first_columns, 3))
    means = torch.stack([F.normalize(first[first_columns == c]).mean(0) for c in range(3)])
    torch.testing.assert_close(method.means, means)

    drift = 0.2 * features.flip(0).sin()
    method.after_task(context(features, columns, 2, known=3, drift=drift))
    after, before = F.normalize(features), F.normalize(features - drift)
    closeness = [[-float((y - mean).square().sum()) for y in before] for mean in means]
    if kernel == "scaled":
        low, high = min(map(min, closeness)), max(map(max, closeness))
        closeness = [[(c - low) / (high - low) for c in row] for row in closeness]
    for mean, moved, row in zip(means, method.means, closeness, strict=False):
        weights = [math.exp(c / (2 * 0.4**2)) for c in row]
        shift = sum(w * (a - b) for w, a, b in zip(weights, after, before, strict=True)) / sum(weights)
        torch.testing.assert_close(moved, mean + shift)
    new_means = torch.stack([after[columns == c].mean(0) for c in (3, 4)])
    torch.testing.assert_close(method.means[3:], new_means)


def test_sdc_predicts_the_nearest_mean() -> None:
    method = learnt(SDC(SDC.Options()), *TASKS)
    expected = [[-float((x / x.norm() - mean).square().sum()) for mean in method.means] for x in TEST]
    torch.testing.assert_close(method.scores(MODEL, TEST), torch.tensor(expected).double(), rtol=1e-5, atol=1e-6)


def test_sdc_loss_is_cross_entropy_of_new_classes_and_half_the_squared_drift() -> None:
    features, columns = clusters(3, 4, first=2)
    ctx = context(features, columns, 2, known=2)
    assert ctx.old is not None
    with torch.no_grad():
        for parameter in ctx.model.backbone.parameters():
            parameter.mul_(1.1).add_(0.05)
    x = torch.rand(7, 3, 8, 8, generator=ctx.rng)
    terms = SDC(SDC.Options(tradeoff=3.0)).loss(ctx, Batch(x, columns))
    new, old = ctx.model.features(x).detach(), ctx.old.features(x).detach()
    drift = sum(float((a / a.norm() - b / b.norm()).square().sum()) for a, b in zip(new, old, strict=True))
    assert drift > 0
    assert terms["distillation"].item() == pytest.approx(3.0 / 2 * drift, rel=1e-5)
    expected = F.cross_entropy(ctx.model.logits(new)[:, 2:], columns - 2)
    torch.testing.assert_close(terms["ce"], expected)


def test_a_missing_package_of_fetril_is_told_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UserError("scikit-learn is missing.")

    steps: list[Step] = []
    monkeypatch.setattr(fetril, "support_vector_machine", missing)
    classifier = make_learner("fetril")
    classifier.watcher = SimpleNamespace(stage=lambda *told: None, step=steps.append, epoch=lambda told: None)
    with pytest.raises(UserError, match=r"scikit-learn is missing\."):
        classifier.partial_fit(*make_blobs(["cat", "dog"]))
    assert steps == []
