"""Weight penalties, distillations and importances against literal versions in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import PartialContext, normal, random_model
from efcil import IncrementalClassifier
from efcil.bench.scenarios import resolve
from efcil.engine.context import Batch
from efcil.engine.method import newest_cross_entropy
from efcil.engine.model import IncrementalModel, trained_weights
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.methods.lfl import half_squared_distance
from efcil.methods.mas import output_sensitivity
from efcil.methods.rwalk import path_score
from efcil.methods.si import gain_per_way
from efcil.paper.regularizers import (
    PathIntegral,
    feature_distillation,
    fisher_diagonal,
    flat_gradient,
    flat_weights,
    fused,
    knowledge_distillation,
    quadratic_penalty,
    training_batches,
)

KNOWN, NEW, DIM = 3, 2, 4
EPS = 1e-5


class Small(nn.Module):
    """A backbone with a BatchNorm, a weight that is never used and one that its owner has frozen."""

    feature_dim = DIM

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, DIM)
        self.norm = nn.BatchNorm1d(DIM)
        self.unused = nn.Parameter(torch.ones(2))
        self.fixed = nn.Parameter(torch.ones(DIM), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.layer(x.flatten(1))) * self.fixed)


def model_of(*heads: int, seed: int) -> IncrementalModel:
    return random_model(Small(), *heads, seed=seed).eval()


def context() -> PartialContext:
    """What the losses look at, in the second task; the old heads are the same in both networks."""
    model, old = model_of(KNOWN, NEW, seed=1), model_of(KNOWN, seed=2)
    with torch.no_grad():
        model.heads[0].copy_(old.heads[0])
    return PartialContext(model=model, old=old, known=KNOWN, classes=NEW, first=False)


def batch_of(size: int = 6, seed: int = 3) -> Batch:
    return Batch(normal(size, 3, 2, 2, seed=seed), KNOWN + torch.arange(size) % NEW)


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


# The functions


def literal_distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Both softmax outputs to the power 1/T and renormalised, the student smoothed, one image at a time."""
    losses = []
    for z, z_old in zip(logits, old_logits, strict=True):
        q, q_old = (torch.exp(v) / torch.exp(v).sum() for v in (z, z_old))
        q, q_old = (v ** (1 / temperature) / (v ** (1 / temperature)).sum() for v in (q, q_old))
        q = q + EPS / len(q)
        losses.append(-sum(q_old[c] * torch.log(q[c] / q.sum()) for c in range(len(q))))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("classes", [1, 4])
def test_knowledge_distillation_is_the_cross_entropy_of_softened_outputs(classes: int, temperature: float) -> None:
    logits, old_logits = 3 * normal(2, 5, classes)
    expected = literal_distillation(logits, old_logits, temperature)
    assert_equal(knowledge_distillation(logits, old_logits, temperature), expected)


def test_knowledge_distillation_of_a_very_sure_student_is_finite() -> None:
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = knowledge_distillation(logits, torch.tensor([[-1e4, 1e4]]), 2.0)
    loss.backward()
    assert torch.isfinite(loss) and logits.grad is not None and torch.isfinite(logits.grad).all()


def test_feature_distillation_is_the_mean_distance() -> None:
    """Eq. 5, divided by the size of the batch."""
    new, old = normal(2, 5, DIM)
    expected = (
        sum(torch.sqrt(sum((a - b) ** 2 for a, b in zip(f, g, strict=True))) for f, g in zip(new, old, strict=True)) / 5
    )
    assert_equal(feature_distillation(new, old), expected)


def test_feature_distillation_has_a_gradient_where_nothing_has_moved() -> None:
    features = normal(5, DIM).requires_grad_()
    feature_distillation(features, features.detach()).backward()
    assert features.grad is not None and (features.grad == 0).all()


def test_half_squared_distance_is_half_the_squared_distance() -> None:
    new, old = normal(2, 5, DIM)
    assert_equal(half_squared_distance(new, old), sum((f - g) @ (f - g) / 2 for f, g in zip(new, old, strict=True)) / 5)


def test_quadratic_penalty_is_the_form_of_a_diagonal_matrix() -> None:
    """Eq. 4 with λ = 1."""
    importance, theta, old_theta = normal(3, 7)
    delta = theta - old_theta
    assert_equal(quadratic_penalty(importance, theta, old_theta), delta @ torch.diag(importance) @ delta)


def test_importances_are_measured_as_the_network_predicts() -> None:
    """In evaluation mode: no dropout, and BatchNorm learns nothing from the images that are looked at."""
    backbone = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 4))
    backbone.feature_dim = 4  # type: ignore[assignment]
    model = IncrementalModel(backbone)
    model.grow(3, torch.Generator().manual_seed(1))
    batches = torch.randn(6, 3, 2, 2, generator=torch.Generator().manual_seed(2)).split(2)
    expected = fisher_diagonal(model.eval(), batches)
    found = fisher_diagonal(model.train(), batches)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert int(backbone[1].num_batches_tracked) == 0  # type: ignore[arg-type]


def test_fusing_weighs_old_and_new_importances() -> None:
    old, new = normal(2, 7)
    assert_equal(fused(old, new, 0.3), torch.stack([0.3 * a + 0.7 * b for a, b in zip(old, new, strict=True)]))
    assert_equal(fused(torch.zeros(()), new, 0.5), new / 2)  # before the first task there is no importance


def test_path_importances() -> None:
    path, fisher, way = normal(3, 7)
    fisher, way = fisher.square(), way.square()
    assert_equal(gain_per_way(path, way, 0.1), torch.stack([w / (d + 0.1) for w, d in zip(path, way, strict=True)]))
    scores = [max(torch.zeros_like(w), w / (f * d + 0.1)) for w, f, d in zip(path, fisher, way, strict=True)]
    assert_equal(path_score(path, fisher, way, 0.1), torch.stack(scores))


# Weights and their importance


def trained(model: IncrementalModel) -> list[Tensor]:
    backbone = model.backbone
    return [backbone.unused, backbone.layer.weight, backbone.layer.bias]


def test_weights_are_those_that_every_task_trains() -> None:
    model = model_of(KNOWN, seed=1)
    assert [id(p) for p in trained_weights(model)] == [id(p) for p in trained(model)]
    before = flat_weights(model)
    model.freeze_batchnorm()
    assert torch.equal(flat_weights(model), before)  # the same in the first and in later tasks
    assert len(before) == sum(p.numel() for p in trained(model))


def literal_importance(model: IncrementalModel, batches: list[Tensor], kind: str) -> Tensor:
    """Σ over batches of the measured gradient, once for each image, by backward passes; divided by the images."""
    total, images = torch.zeros_like(flat_weights(model)), 0
    for x in batches:
        model.zero_grad()
        losses = []
        for image in x:
            z = torch.cat([head @ model.features(image[None])[0] for head in model.heads])
            if kind == "fisher":
                losses.append(-torch.log(torch.exp(z).max() / torch.exp(z).sum()))
            else:
                losses.append(torch.sqrt((z * z).sum()))
        (sum(losses) / len(x)).backward()
        gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained(model)])
        for _ in x:
            total += gradient * gradient if kind == "fisher" else gradient.abs()
            images += 1
    return total / images


def test_fisher_diagonal_squares_batch_gradients_of_the_predicted_class() -> None:
    """Eq. 3 with ŷ = argmax p(y | x) in place of the expectation, and the mean over a batch within the square."""
    model, batches = model_of(KNOWN, NEW, seed=1), list(normal(10, 3, 2, 2).split(4))  # the last batch is smaller
    assert_equal(fisher_diagonal(model, batches), literal_importance(model, batches, "fisher"))


def test_fisher_diagonal_of_single_images_is_that_of_the_empirical_fisher() -> None:
    """Eq. 3, one y per x: with batches of one image nothing is averaged within the square."""
    model, images = model_of(KNOWN, seed=1), normal(5, 3, 2, 2)
    total = torch.zeros_like(flat_weights(model))
    for image in images:
        log_p = torch.log_softmax(model(image[None])[0], dim=0).max()
        gradient = flat_gradient(log_p, model)
        total += torch.outer(gradient, gradient).diagonal()
    assert_equal(fisher_diagonal(model, images.split(1)), total / 5)


def test_output_sensitivity_is_the_size_of_the_gradient_of_the_output_norm() -> None:
    model, batches = model_of(KNOWN, NEW, seed=1), list(normal(10, 3, 2, 2).split(4))
    assert_equal(output_sensitivity(model, batches), literal_importance(model, batches, "mas"))


@pytest.mark.parametrize("first", [True, False])
def test_importances_see_every_image_once_in_batches_of_the_task(first: bool) -> None:
    config = IncrementalClassifier("ewc", first={"batch_size": 4}, incremental={"batch_size": 3}).config
    seen: list[Tensor] = []

    def views(images: range, rows: list[Tensor]) -> list[Tensor]:
        seen.extend(rows)
        return rows

    ctx = PartialContext(config=config, first=first, images=range(10), rng=torch.Generator(), views=views)
    ctx.reseed = lambda place: ctx.rng.manual_seed(len(place))
    training_batches(ctx)
    assert [len(rows) for rows in seen] == ([4, 4, 2] if first else [3, 3, 3, 1])
    assert torch.cat(seen).sort().values.tolist() == list(range(10))
    assert torch.cat(seen).tolist() != list(range(10))  # images of a class come together, batches should not


def test_path_integral_adds_up_gradient_times_way() -> None:
    model, x = model_of(KNOWN, seed=1), normal(6, 3, 2, 2)
    optimizer = torch.optim.SGD(trained_weights(model), lr=0.1, momentum=0.9)
    path, start = PathIntegral(), flat_weights(model).detach()
    nothing = dict.fromkeys(("omega", "start", "gradient", "before"), 0)
    assert {name: tensor.numel() for name, tensor in vars(path).items()} == nothing
    path.begin_task(model)
    expected = torch.zeros_like(start)
    for _ in range(3):
        before = [p.detach().clone() for p in trained(model)]
        model.zero_grad()
        model(x).square().mean().backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trained(model)]
        loss = model(x).square().mean()
        path.begin_step(model, loss)
        optimizer.zero_grad()
        (loss + flat_weights(model).square().sum()).backward()  # the step is regularised, the path is not
        optimizer.step()
        path.end_step(model)
        ways = [p.detach() - b for p, b in zip(trained(model), before, strict=True)]
        expected -= torch.cat([(g * w).flatten() for g, w in zip(gradients, ways, strict=True)])
    omega, way = path.end_task(model)
    assert {name: tensor.numel() for name, tensor in vars(path).items()} == nothing
    assert_equal(omega, expected)
    assert_equal(way, (flat_weights(model).detach() - start).square())


# The methods


def with_importance(name: str, **options: Any) -> Any:
    """A method that has learnt a first task, with known importances."""
    method = build_method(name, options)
    size = len(flat_weights(context().model))
    state = {field: normal(size, seed=seed).square() for seed, field in enumerate(method.state())}
    method.load_state(state)
    return method, state


LITERAL: dict[str, Any] = {
    "ewc": lambda s: 3.0 / 2 * s["fisher"],
    "mas": lambda s: 3.0 / 2 * s["omega"],
    "si": lambda s: 3.0 * s["omega"],
    "rwalk": lambda s: 3.0 * (s["fisher"] + s["path_scores"]),
}
WEIGHT = {"ewc": "lambda_efim", "mas": "lambda_mas", "si": "c", "rwalk": "lambda_rwalk"}


@pytest.mark.parametrize("name", LITERAL)
def test_weight_penalties_are_cross_entropy_plus_a_quadratic_form(name: str) -> None:
    ctx, batch = context(), batch_of()
    method, state = with_importance(name, **{WEIGHT[name]: 3.0})
    if hasattr(method, "path"):
        method.path.begin_task(ctx.old)  # θ* is where the task began
    delta = flat_weights(ctx.model) - flat_weights(ctx.old)
    expected = newest_cross_entropy(ctx, ctx.model.features(batch.x), batch.y)
    expected = expected + sum(o * d * d for o, d in zip(LITERAL[name](state), delta, strict=True))
    terms = method.loss(ctx, batch)
    assert_equal(sum(terms.values()), expected)
    sum(terms.values()).backward()
    assert ctx.model.heads[0].grad is None and ctx.model.heads[1].grad is not None
    assert all(parameter.grad is None for parameter in ctx.old.parameters())


@pytest.mark.parametrize("name", ["si", "rwalk"])
def test_the_path_follows_the_unregularised_loss(name: str) -> None:
    """SI: of the new classes; RWalk: of all classes."""
    ctx, batch = context(), batch_of()
    method, _ = with_importance(name)
    method.path.begin_task(ctx.old)
    method.loss(ctx, batch)
    lowest = KNOWN if name == "si" else 0
    logits = ctx.model(batch.x)[:, lowest:]
    loss = sum(
        -torch.log(torch.exp(z[y - lowest]) / torch.exp(z).sum()) for z, y in zip(logits, batch.y, strict=True)
    ) / len(logits)
    assert_equal(method.path.gradient, flat_gradient(loss, ctx.model))


# After a task, from the state s before it and what is measured in it: Fisher, MAS, the path ω and its squared way.
IMPORTANCES: dict[str, Any] = {
    "ewc": lambda s, fisher, mas, path, way: {"fisher": 0.3 * s["fisher"] + 0.7 * fisher},
    "mas": lambda s, fisher, mas, path, way: {"omega": 0.3 * s["omega"] + 0.7 * mas},
    "si": lambda s, fisher, mas, path, way: {"omega": s["omega"] + path / (way + 0.1)},
    "rwalk": lambda s, fisher, mas, path, way: {
        "fisher": (both := 0.3 * s["fisher"] + 0.7 * fisher),
        "path_scores": (s["path_scores"] + (path / (both * way + 0.1)).clamp_min(0)) / 2,
    },
}


@pytest.mark.parametrize("name", IMPORTANCES)
def test_after_a_task_old_and_new_importances_are_joined(name: str) -> None:
    images, model = normal(10, 3, 2, 2), model_of(KNOWN, NEW, seed=1)
    method, before = with_importance(name, **({} if name == "si" else {"alpha": 0.3}))
    path, way = normal(2, len(flat_weights(model)), seed=5)
    if hasattr(method, "path"):
        method.path.end_task = lambda _: (path, way.square())
    ctx: Any = PartialContext(
        **{"model": model, "first": False, "images": images, "rng": torch.Generator(), "reseed": lambda place: None},
        config=IncrementalClassifier("ewc", incremental={"batch_size": 10}).config,  # one batch: no order to follow
        views=lambda images, rows: [images[group] for group in rows],
    )
    method.after_task(ctx)
    measured = [literal_importance(model, [images], kind) for kind in ("fisher", "mas")]
    expected = IMPORTANCES[name](before, *measured, path, way.square())
    assert method.state().keys() == expected.keys()
    for field, importance in method.state().items():
        assert_equal(importance, expected[field])


def test_lwf_distils_what_the_old_heads_say_of_new_images() -> None:
    ctx, batch = context(), batch_of()
    method = build_method("lwf", {"lambda_lwf": 3.0, "temperature": 4.0})
    ce = newest_cross_entropy(ctx, ctx.model.features(batch.x), batch.y)
    distillation = literal_distillation(ctx.model(batch.x)[:, :KNOWN], ctx.old(batch.x), 4.0)
    total = sum(method.loss(ctx, batch).values())
    assert_equal(total, ce + 3.0 * distillation)
    total.backward()
    assert ctx.model.heads[0].grad is None and ctx.model.heads[1].grad is not None
    assert all(parameter.grad is None for parameter in ctx.old.parameters())


def test_lfl_holds_the_features() -> None:
    ctx, batch = context(), batch_of()
    method = build_method("lfl", {"lambda_e": 3.0})
    new, old = ctx.model.features(batch.x), ctx.old.features(batch.x)
    expected = (
        newest_cross_entropy(ctx, new, batch.y)
        + 3.0 * sum((f - g) @ (f - g) / 2 for f, g in zip(new, old, strict=True)) / 6
    )
    assert_equal(sum(method.loss(ctx, batch).values()), expected)


@pytest.mark.parametrize(("regularizer", "best"), [("efim", 1e5), ("kd", 50.0), ("fd", 1.0)])
@pytest.mark.parametrize("weight", [None, 3.0])
def test_efc_plus_plus_with_another_regularizer(regularizer: str, best: float, weight: float | None) -> None:
    """Table 4: E-FIM (Eq. 4), KD and FD (Eq. 5) in place of L^EFM, with the weights of appendix H."""
    ctx, batch = context(), batch_of()
    method: Any = build_method("efc++", {"regularizer": regularizer, "lambda_regularizer": weight})
    method.memory.fisher = normal(len(flat_weights(ctx.model))).square()
    delta = flat_weights(ctx.model) - flat_weights(ctx.old)
    new, old = ctx.model.features(batch.x), ctx.old.features(batch.x)
    literal = {
        "efim": delta @ torch.diag(method.memory.fisher) @ delta,
        "kd": literal_distillation(ctx.model(batch.x)[:, :KNOWN], ctx.old(batch.x), 2.0),
        "fd": sum(torch.sqrt((f - g) @ (f - g)) for f, g in zip(new, old, strict=True)) / 6,
    }[regularizer]
    terms = method.loss(ctx, batch)
    assert list(terms) == ["ce", regularizer]
    torch.testing.assert_close(terms[regularizer], (best if weight is None else weight) * literal)
    assert_equal(terms["ce"], newest_cross_entropy(ctx, new, batch.y))
    assert ("fisher" in method.state()) == (regularizer == "efim")


def test_the_weight_of_the_efm_has_its_own_names() -> None:
    with pytest.raises(UserError, match=r"lambda_efm and eta"):
        build_method("efc++", {"lambda_regularizer": 3.0})


@pytest.mark.parametrize("name", ["lwf", "ewc", "mas", "si", "rwalk", "lfl"])
def test_a_weight_cannot_be_negative(name: str) -> None:
    for option in ("lambda_lwf", "temperature", "lambda_efim", "lambda_mas", "c", "xi", "lambda_rwalk", "lambda_e"):
        if hasattr(METHODS[name].Options(), option):
            with pytest.raises(UserError, match=f"{option} must be at least"):
                build_method(name, {option: -1.0})


@pytest.mark.parametrize("name", ["lwf", "ewc"])
def test_recipes_are_those_of_appendix_d2(name: str) -> None:
    training = resolve("imagenet-subset-cold10", name, seed=0).classifier.incremental  # whatever the preset says
    assert (training.lr, training.backbone_lr, training.milestones) == (1e-3, None, (0.45, 0.9))
    assert (training.epochs, training.optimizer, training.weight_decay, training.gamma) == (100, "adam", 2e-4, 0.1)
