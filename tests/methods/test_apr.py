"""APR against literal versions in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import TinyNet, make_blobs, make_learner, normal
from efcil.config import ClassifierConfig
from efcil.data.augment import AUGMENTATIONS
from efcil.data.images import ImageSet, Pixels
from efcil.engine.context import Batch, Context
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import JITTER
from efcil.engine.preprocessing import Preprocessing
from efcil.methods.apr import APR, fit_affine, recorded_views, view_features, view_seeds
from efcil.parts.attacks import attack, pixel_limits

KNOWN, NEW, DIM = 2, 2, 6
MODEL: Any = None  # the classifier does not look at the heads


class Wide(TinyNet):
    """TinyNet for images in single precision, computed in double precision."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double())


def model_of(*heads: int, seed: int) -> IncrementalModel:
    model = IncrementalModel(Wide()).double()
    for classes in heads:
        model.grow(classes)
    model = model.double()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.2 * normal(*parameter.shape, seed=seed + index))
    return model.eval()


def context(seed: int = 5) -> Context:
    """The second task: twelve images of two new classes, crops and flips."""
    pixels, labels = make_blobs(["ant", "bee"])
    return Context(
        config=ClassifierConfig(),
        task=1,
        model=model_of(KNOWN, NEW, seed=1),
        old=model_of(KNOWN, seed=20),
        images=ImageSet(Pixels(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())),
        columns=KNOWN + torch.from_numpy((labels == "bee").astype(int)),
        classes=NEW,
        preprocessing=Preprocessing(stored=8, size=8, mean=(0.5,) * 3, std=(0.2,) * 3),
        augmentation=AUGMENTATIONS["crop_flip"],
        device=torch.device("cpu"),
        rng=torch.Generator().manual_seed(seed),
    )


def remembering(ctx: Context, **options: Any) -> APR:
    """APR after a first task: two means near the features of some images, and two covariances."""
    apr = APR(APR.Options(**options))
    assert ctx.old is not None
    (features,) = ctx.extract(ctx.old, augmented=False)
    apr.means = features[[0, 8]] + 0.3 * normal(2, DIM, seed=3)
    roots = 0.4 * normal(2, DIM, DIM, seed=4)
    apr.covariance_factors = torch.linalg.cholesky(roots @ roots.mT + JITTER * torch.eye(DIM, dtype=torch.float64))
    return apr


def literal_attack(model: IncrementalModel, x: Tensor, targets: Tensor, iterations: int, step: float) -> Tensor:
    """x ← x − a ∇/‖∇‖, image by image but for the common norm; nothing is clamped."""
    for _ in range(iterations):
        gradient = torch.zeros_like(x)
        for index in range(len(x)):
            image = x[index : index + 1].clone().requires_grad_()
            ((model.features(image)[0] - targets[index]) ** 2).sum().div(len(x) * DIM).backward()
            assert image.grad is not None
            gradient[index] = image.grad[0]
        x = x - step * gradient / math.sqrt(float((gradient.double() ** 2).sum()))
    return x


# Pseudo-replay


def recorded(ctx: Context, rows: Tensor, seeds: Tensor) -> Tensor:
    """The recorded views of one group of rows."""
    (views,) = recorded_views(ctx, [rows], seeds)
    return views


def test_a_recorded_view_can_be_had_again() -> None:
    ctx = context()
    seeds = view_seeds(ctx)
    rows = torch.tensor([3, 0, 7])
    views = recorded(ctx, rows, seeds)
    assert torch.equal(views, recorded(ctx, rows, seeds))
    assert torch.equal(views[1:2], recorded(ctx, rows[1:2], seeds))  # whatever other images are asked for
    assert not torch.equal(views, recorded(ctx, rows, view_seeds(ctx)))
    assert ctx.old is not None
    with torch.no_grad():
        torch.testing.assert_close(view_features(ctx, ctx.old, seeds)[rows], ctx.old.features(views))


def test_hardly_two_images_share_the_seed_of_their_view() -> None:
    seeds = view_seeds(context())
    assert len(seeds.unique()) == 12 and seeds.double().mean() > 2**58


def test_candidates_are_the_nearest_views() -> None:
    ctx = context()
    apr = remembering(ctx, candidates=4)
    apr.before_task(ctx)
    assert ctx.old is not None
    features = view_features(ctx, ctx.old, apr.seeds)
    for mean, rows in zip(apr.means, apr.candidates, strict=True):
        distances = [float(((feature - mean) ** 2).sum()) for feature in features]
        assert rows.tolist() == sorted(range(12), key=distances.__getitem__)[:4]


def test_pseudo_images_are_attacked_towards_noisy_means() -> None:
    ctx = context()
    apr = remembering(ctx, candidates=4, pseudo_batch=5, pseudo_iterations=2, pseudo_step=3.0)
    apr.before_task(ctx)
    real = Batch(torch.zeros(3, 3, 8, 8), torch.tensor([2, 3, 2]))
    ctx.rng = torch.Generator().manual_seed(6)
    plan = apr.plan(ctx, 2)
    views = ctx.prepared(ctx.images, [view for view, _ in plan])
    _, real.extra = (Batch(x, columns) for x, (_, columns) in zip(views, plan, strict=True))
    batch = apr.augment(ctx, real)
    rng = torch.Generator().manual_seed(6)
    columns = torch.randint(KNOWN, (2, 5), generator=rng)[1]
    places = torch.randint(4, (2, 5), generator=rng)[1]
    noise = torch.randn(5, DIM, generator=rng).double()
    traces = [sum(float(factor[i] @ factor[i]) - JITTER for i in range(DIM)) for factor in apr.covariance_factors]
    radius = math.sqrt(sum(traces) / len(traces) / DIM)
    targets = torch.stack([apr.means[c] + radius * e for c, e in zip(columns, noise, strict=True)])
    rows = torch.stack([apr.candidates[c, p] for c, p in zip(columns, places, strict=True)])
    assert ctx.old is not None
    expected = literal_attack(ctx.old, recorded(ctx, rows, apr.seeds), targets, 2, 3.0)
    assert batch.new == 3 and torch.equal(batch.x[:3], real.x) and batch.y.tolist() == [2, 3, 2, *columns.tolist()]
    torch.testing.assert_close(batch.x[3:], expected, rtol=1e-4, atol=1e-4)


def test_the_loss() -> None:
    ctx = context()
    assert ctx.old is not None
    apr = remembering(ctx, lambda_lwf=3.0, temperature=1.5)
    x, y = normal(5, 3, 4, 4, seed=7), torch.tensor([2, 3, 2, 0, 1])  # the last two are attacked ones
    terms = apr.loss(ctx, Batch(x, y, new=3))
    cross_entropies, distillations = [], []
    with torch.no_grad():
        for image, column in zip(x, y.tolist(), strict=True):
            feature, old = ctx.model.features(image[None])[0], ctx.old.features(image[None])[0]
            if column >= KNOWN:
                cross_entropies.append(-float((ctx.model.newest @ feature).log_softmax(0)[column - KNOWN]))
            teacher = (ctx.old.weight @ old / 1.5).softmax(0)
            student = ((ctx.old.weight @ feature / 1.5).softmax(0) + 1e-5 / KNOWN) / (1 + 1e-5)
            distillations.append(-float((teacher * student.log()).sum()))
    assert terms["ce"].item() == pytest.approx(sum(cross_entropies) / 3)
    assert terms["kd"].item() == pytest.approx(3 * sum(distillations) / 5)


def test_without_pseudo_images_the_network_is_that_of_lwf_bit_for_bit() -> None:
    models = []
    for method, options in (("apr", {"pseudo_batch": 0, "map_epochs": 0}), ("lwf", {})):
        classifier = make_learner(method, epochs=2, options=options)
        for task in (make_blobs(["cat", "dog"]), make_blobs(["ant", "bee"], 5)):
            classifier.partial_fit(*task)
        models.append(classifier._model)
    ours, lwf = models
    assert ours is not None and lwf is not None
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), lwf.parameters(), strict=True))


# After the task


@pytest.mark.parametrize("reachable", [True, False])
def test_the_attack_goes_on_until_an_image_succeeds_or_the_limit(
    reachable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = context()
    assert ctx.old is not None
    apr = remembering(ctx, attack_iterations=2, attack_limit=6, attack_step=25.0)
    if not reachable:
        apr.means = torch.stack([apr.means[0] - 1e3, apr.means[1]])  # features are never that negative
    rounds: list[tuple[int, float]] = []

    def noting(model: Any, x: Tensor, target: Tensor, iterations: int, alpha: float, limits: Any) -> Tensor:
        rounds.append((iterations, alpha))
        return attack(model, x, target, iterations, alpha, limits)

    monkeypatch.setattr("efcil.methods.apr.attack", noting)
    x = recorded(ctx, torch.arange(5), view_seeds(ctx))
    shown = apr.attacked_until_success(ctx.old, x, 0, pixel_limits(ctx))
    assert all(alpha == pytest.approx(25 * math.sqrt(5 / 1000)) and steps == 2 for steps, alpha in rounds)
    if reachable:
        with torch.no_grad():
            features = ctx.old.features(shown)
        assert len(shown) > 0
        assert all((f - apr.means[0]).norm() < (f - apr.means[1]).norm() for f in features)
    else:
        assert len(shown) == 0 and len(rounds) == 4  # 2, 4, 6 and 8 steps: the first number above 6


def test_means_and_covariances_are_carried_by_the_drift_of_attacked_images() -> None:
    ctx = context()
    apr = remembering(ctx, attacked=9, attack_batch=4, map_epochs=3, map_lr=1e-2)
    means, factors = apr.means, apr.covariance_factors
    shown: list[tuple[Tensor, Tensor]] = []
    original = apr.shown_drift

    def noting(*args: Any) -> tuple[Tensor, Tensor]:
        shown.append(original(*args))
        return shown[-1]

    apr.shown_drift = noting  # type: ignore[method-assign]
    same = context()
    view_seeds(same)  # what transported() draws before it fits the maps
    moved_means, moved_factors = apr.transported(ctx)
    assert len(shown) == KNOWN
    for column, (old, new) in enumerate(shown):
        drift = sum(((b - a) for a, b in zip(old, new, strict=True)), torch.zeros(DIM)) / len(old)
        torch.testing.assert_close(moved_means[column], means[column] + drift)
        weight, _ = fit_affine(old, new, 3, 1e-2, 16, same.rng)
        assert not torch.equal(weight, torch.eye(DIM, dtype=torch.float64))
        covariance = weight @ factors[column] @ factors[column].T @ weight.T
        torch.testing.assert_close(moved_factors[column] @ moved_factors[column].T, covariance)


def test_images_that_never_succeed_are_used_as_they_were() -> None:
    ctx = context()
    assert ctx.old is not None
    apr = remembering(ctx, attack_batch=4, attack_limit=0)
    apr.means = torch.stack([apr.means[0] - 1e3, apr.means[1]])
    seeds, rows = view_seeds(ctx), torch.arange(9)
    old, new = apr.shown_drift(ctx, 0, rows, seeds, pixel_limits(ctx))
    with torch.no_grad():
        views = recorded(ctx, rows, seeds)
        torch.testing.assert_close(old, ctx.old.features(views))
        torch.testing.assert_close(new, ctx.model.features(views))


def test_the_affine_map_starts_as_the_identity_and_finds_an_affine_drift() -> None:
    old, rng = normal(60, 4), torch.Generator().manual_seed(1)
    weight, bias = fit_affine(old, old, 2, 1e-2, 16, rng)
    assert torch.equal(weight, torch.eye(4, dtype=torch.float64)) and torch.equal(bias, torch.zeros_like(bias))
    true_weight, true_bias = torch.eye(4) + 0.2 * normal(4, 4, seed=1), 0.2 * normal(4, seed=2)
    new = old @ true_weight.T + true_bias
    weight, bias = fit_affine(old, new, 100, 3e-3, 16, rng)
    torch.testing.assert_close(weight, true_weight, rtol=0, atol=0.02)
    torch.testing.assert_close(bias, true_bias, rtol=0, atol=0.02)


def test_a_step_of_the_affine_map_follows_the_gradient_of_the_mean_distance() -> None:
    """The first step of Adam has length lr along the sign of the gradient."""
    old, new = normal(5, 3), normal(5, 3, seed=1)
    weight, bias = fit_affine(old, new, 1, 0.1, 8, torch.Generator().manual_seed(1))
    gradient, bias_gradient = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for y, target in zip(old, new, strict=True):
        direction = (y - target) / math.sqrt(float(((y - target) ** 2).sum())) / 5
        gradient += torch.outer(direction, y)
        bias_gradient += direction
    torch.testing.assert_close(weight, torch.eye(3, dtype=torch.float64) - 0.1 * gradient.sign(), rtol=0, atol=1e-6)
    torch.testing.assert_close(bias, -0.1 * bias_gradient.sign(), rtol=0, atol=1e-6)


# The classifier


def test_scores_are_mahalanobis_distances_of_unit_vectors() -> None:
    apr, points = APR(APR.Options(gamma=5.0)), normal(4, 3, seed=3)
    apr.load_state({"means": normal(2, 3, seed=1), "covariance_factors": 0.5 + normal(2, 3, 3, seed=2).tril()})
    expected = torch.zeros(4, 2, dtype=torch.float64)
    for column, (mean, factor) in enumerate(zip(apr.means, apr.covariance_factors, strict=True)):
        covariance = factor @ factor.T
        v1 = sum(float(covariance[i, i]) for i in range(3)) / 3
        v2 = sum(float(covariance[i, j]) for i in range(3) for j in range(3) if i != j) / 6
        shrunk = covariance.clone()
        for i in range(3):
            for j in range(3):
                shrunk[i, j] += 5 * (v1 if i == j else v2)
        inverse = torch.linalg.inv(shrunk / torch.outer(shrunk.diagonal(), shrunk.diagonal()).sqrt())
        for row, point in enumerate(points):
            difference = point / point.norm() - mean / mean.norm()
            expected[row, column] = -(difference @ inverse @ difference)
    torch.testing.assert_close(apr.scores(MODEL, points), expected)


def test_gaussians_of_a_network_that_stays_stay() -> None:
    tasks = [make_blobs(["cat", "dog"]), make_blobs(["ant", "bee", "elk"], 5)]
    classifier = make_learner("apr", backbone=TinyNet(), incremental={"epochs": 0}, options={"map_epochs": 2})
    classifier.partial_fit(*tasks[0])
    before = {name: tensor.clone() for name, tensor in classifier._method.state().items()}
    classifier.partial_fit(*tasks[1])
    after = classifier._method.state()
    torch.testing.assert_close(after["means"][:2], before["means"])
    covariances = [factors @ factors.mT for factors in (after["covariance_factors"][:2], before["covariance_factors"])]
    torch.testing.assert_close(*covariances, rtol=1e-4, atol=1e-6)
