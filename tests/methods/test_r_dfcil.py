"""R-DFCIL: its losses against literal versions in float64, the two phases, and what is frozen in the second."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import OneLayer, make_blobs, make_learner, normal, random_model, rng_of
from efcil import IncrementalClassifier
from efcil.bench.scenarios import resolve
from efcil.config import Training
from efcil.engine.context import Batch
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.methods.r_dfcil import RDFCIL, Refining, angles, class_weights, relational_distillation
from efcil.parts.inversion import Inversion, InversionOptions

KNOWN, NEW, DIM, SIZE = 3, 4, 4, 5  # so that neither α nor β is 1
QUICK = {"iterations": 2, "batch_size": 4, "latent": 5, "width": 4}


def model_of(*heads: int, seed: int) -> IncrementalModel:
    return random_model(OneLayer(48, DIM), *heads, seed=seed)


def context(epochs: int = 4) -> Any:
    return SimpleNamespace(
        model=model_of(KNOWN, NEW, seed=1),
        old=model_of(KNOWN, seed=2),
        known=KNOWN,
        classes=NEW,
        first=False,
        rng=rng_of(),
        config=SimpleNamespace(incremental=Training(epochs=epochs, lr=0.1)),
    )


def r_dfcil_of(**options: float) -> RDFCIL:
    method = build_method("r-dfcil", options)
    assert isinstance(method, RDFCIL)
    method.inversion = Inversion(InversionOptions(**QUICK), 4, torch.device("cpu"), rng_of(3))  # type: ignore[arg-type]
    for seed, name in enumerate(("student", "teacher")):
        method.projections[name] = nn.Parameter(normal(2 * DIM, DIM, seed=seed))
    method.counts = torch.zeros(KNOWN + NEW)
    return method


def batch_of() -> Batch:
    return Batch(normal(SIZE, 3, 4, 4, seed=4), KNOWN + torch.arange(SIZE) % NEW)


def literal_ce(outputs: list[float], label: int) -> float:
    return -outputs[label] + math.log(sum(math.exp(z) for z in outputs))


def literal_hkd(ctx: Any, method: RDFCIL) -> tuple[list[Tensor], float]:
    """The generated images and the mean distance of the old classes' outputs on them."""
    assert method.inversion is not None
    generated = [x[None].double() for x in method.inversion.sample(SIZE, rng_of())]
    pairs = [(ctx.model(x)[0, :KNOWN], ctx.old(x)[0]) for x in generated]
    distances = [abs(float(a - b)) for new, old in pairs for a, b in zip(new, old, strict=True)]
    return generated, sum(distances) / (SIZE * KNOWN)


ALPHA, BETA = math.log2(NEW / 2 + 1), math.sqrt(KNOWN / NEW)


@torch.no_grad()
def test_the_loss_of_the_first_phase() -> None:
    ctx, batch, method = context(), batch_of(), r_dfcil_of(lambda_ce=0.4, lambda_hkd=0.3, lambda_rkd=0.6)
    terms = method.loss(ctx, batch)
    _, hkd = literal_hkd(ctx, method)
    ce = 0.0
    for x, y in zip(batch.x, batch.y.tolist(), strict=True):
        features = ctx.model.features(x[None])[0]
        ce += literal_ce([float((row * features).sum()) for row in ctx.model.heads[1]], y - KNOWN) / SIZE
    student = [method.projections["student"] @ ctx.model.features(x[None])[0] for x in batch.x]
    teacher = [method.projections["teacher"] @ ctx.old.features(x[None])[0] for x in batch.x]
    expected = {
        "ce": 0.4 * (1 + 1 / ALPHA) / BETA * ce,
        "hkd": 0.3 * ALPHA * BETA * hkd,
        "rkd": 0.6 * ALPHA * BETA * literal_relations(student, teacher),
    }
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-9)


def literal_relations(student: list[Tensor], teacher: list[Tensor]) -> float:
    def cosine(points: list[Tensor], i: int, j: int, k: int) -> float:
        one, other = points[j] - points[i], points[k] - points[i]
        if not one.any() or not other.any():
            return 0.0
        return float(one @ other / (one.norm() * other.norm()))

    triplets = [(i, j, k) for i in range(len(student)) for j in range(len(student)) for k in range(len(student))]
    return sum(abs(cosine(student, *t) - cosine(teacher, *t)) for t in triplets) / len(triplets)


@torch.no_grad()
def test_the_loss_of_the_refinement() -> None:
    ctx, batch, method = context(epochs=4), batch_of(), r_dfcil_of(lambda_ce=0.4, lambda_hkd=0.3)
    method.epoch = 3  # the last of four
    shown = [2.0, 0.0, 9.0, 4.0, 1.0, 0.0, 3.0]
    method.counts = torch.tensor(shown)
    terms = method.loss(ctx, batch)
    generated, hkd = literal_hkd(ctx, method)
    images = [(x[None], y) for x, y in zip(batch.x, batch.y.tolist(), strict=True)]
    images += [(x, int(ctx.old(x).argmax())) for x in generated]
    for _, y in images:
        shown[y] += 1
    weights = {c: sum(shown) / shown[c] for c in range(KNOWN + NEW) if shown[c]}
    least = min(weights.values())
    ce = total = 0.0
    for x, y in images:
        outputs = [float(z) for z in ctx.model(x)[0]]
        ce += weights[y] / least * literal_ce(outputs, y)
        total += weights[y] / least
    expected = {"ce": 0.4 * ce / total, "hkd": 0.3 * ALPHA * BETA * hkd}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-9)
    assert method.counts.tolist() == shown


def test_class_weights_have_a_minimum_of_one() -> None:
    assert class_weights(torch.tensor([10.0, 5.0, 0.0, 2.0, 1.0])).tolist() == [1.0, 2.0, 10.0, 5.0, 10.0]


def test_angles_do_not_change_when_points_are_turned_moved_or_scaled() -> None:
    points, turn = normal(6, DIM), torch.linalg.qr(normal(DIM, DIM, seed=3)).Q
    assert relational_distillation(points, 3 * points @ turn + 5).item() == pytest.approx(0, abs=1e-12)
    assert relational_distillation(points, points + 1e6).item() == pytest.approx(0, abs=1e-8)  # far from the origin
    assert relational_distillation(points, normal(6, DIM, seed=7)) > 0.1


def test_points_have_an_angle_from_a_millionth_of_their_length_on() -> None:
    for squared, apart in ((1.5e-12, True), (0.5e-12, False)):
        points = 3 * normal(40, DIM)
        points[1] = points[0]
        mean = float((points - points.mean(0)).square().sum(1).mean())  # of the squared lengths
        points[1, 0] += math.sqrt(squared * mean)
        assert bool(angles(points)[0, 1].any()) == apart


def test_points_that_coincide_have_no_angle_and_no_gradient() -> None:
    points = normal(5, DIM).float()
    points[1] = points[0]
    points.requires_grad_()
    found = angles(points)
    assert not found[0, 1].any() and not found[1, :, 0].any() and torch.isfinite(found).all()
    relational_distillation(points, normal(5, DIM, seed=2).float()).backward()
    assert points.grad is not None and torch.isfinite(points.grad).all() and points.grad.abs().max() < 10
    same = torch.ones(3, DIM, requires_grad=True)
    relational_distillation(same, normal(3, DIM).float()).backward()
    assert not same.grad.any()  # type: ignore[union-attr]


def test_what_each_term_trains() -> None:
    ctx, method = context(), r_dfcil_of()
    parameters = [ctx.model.backbone.layer.weight, *ctx.model.heads, *method.projections.parameters()]
    reached = {}
    for epoch in (0, 3):
        method.epoch = epoch
        for name, term in method.loss(ctx, batch_of()).items():
            found = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
            reached[epoch, name] = [gradient is not None and bool(gradient.any()) for gradient in found]
    assert reached == {
        (0, "ce"): [True, False, True, False, False],
        (0, "hkd"): [True, True, False, False, False],
        (0, "rkd"): [True, False, False, True, True],
        (3, "ce"): [False, True, True, False, False],
        (3, "hkd"): [False, True, False, False, False],
    }


def test_projections_start_within_one_over_the_root_of_n() -> None:
    ctx, method = context(), build_method("r-dfcil", {"inversion": QUICK})
    assert isinstance(method, RDFCIL)
    ctx.preprocessing, ctx.device = SimpleNamespace(size=4), torch.device("cpu")
    method.before_task(ctx)
    student, teacher = method.projections["student"], method.projections["teacher"]
    assert student.shape == teacher.shape == (2 * DIM, DIM) and not torch.equal(student, teacher)
    for projection in (student, teacher):
        assert -0.5 <= projection.min() < -0.3 and 0.3 < projection.max() <= 0.5  # √n = 2
    assert method.counts.tolist() == [0.0] * (KNOWN + NEW)


def test_every_later_task_ends_with_its_own_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    phases: list[str] = []
    for name in ("representation", "refinement"):
        phase = getattr(RDFCIL, name)
        monkeypatch.setattr(RDFCIL, name, lambda *inputs, n=name, p=phase: (phases.append(n), p(*inputs))[1])
    options = {"inversion": QUICK, "refinement": 0.4}
    classifier = make_learner("r-dfcil", width=2, incremental={"epochs": 5}, options=options)
    for classes in (["ant", "bee"], ["cat", "dog"], ["elk", "fox"]):
        classifier.partial_fit(*make_blobs(classes, 3))
    assert phases == 2 * [*3 * ["representation"], *2 * ["refinement"]]


def learnt(epochs: int, **options: float) -> tuple[IncrementalClassifier, dict[str, Tensor]]:
    """A classifier after two tasks, and its state before the second."""
    options = {"inversion": QUICK, **options}  # type: ignore[dict-item]
    classifier = make_learner("r-dfcil", incremental={"epochs": epochs}, options=options)
    before = copy.deepcopy(classifier.partial_fit(*make_blobs(["cat", "dog"]))._model)
    assert before is not None
    return classifier.partial_fit(*make_blobs(["ant", "bee"])), before.state_dict()


def test_the_refinement_trains_nothing_but_the_heads() -> None:
    classifier, before = learnt(2, refinement=1.0)
    assert classifier._model is not None
    after = classifier._model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"heads.0"}  # and heads.1, which is new


def test_without_a_refinement_the_backbone_learns_to_the_end() -> None:
    classifier, before = learnt(2, refinement=0.0)
    assert classifier._model is not None
    after = classifier._model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"heads.0", "backbone.stem.conv.weight", "backbone.stem.norm.running_mean"} <= moved


def test_settings() -> None:
    config = resolve("cifar100-cold10", "r-dfcil", 0).classifier
    training = config.incremental
    assert (training.optimizer, training.lr, training.momentum, training.weight_decay) == ("sgd", 0.1, 0.9, 1e-4)
    assert (training.epochs, training.batch_size, training.backbone_lr) == (120, 128, None)
    method, ctx = build_method("r-dfcil", {"refinement_lr": 0.002}), context()
    ctx.config = config
    refined = method.training(ctx)
    assert isinstance(refined, Refining) and refined.refining_epochs == 30
    rates = [refined.lr * refined.lr_factor(epoch) for epoch in (0, 29, 30, 59, 60, 89, 90, 119)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.002, 0.002])
    assert Refining(epochs=4, lr=0.0, refining_epochs=2).lr_factor(3) == 1.0  # nothing is learnt anyway
    assert METHODS["r-dfcil"].shares_first_task and not METHODS["r-dfcil"].freezes_batchnorm
    ctx.first = True
    assert method.training(ctx) is config.first
    for option in ("lambda_ce", "lambda_hkd", "lambda_rkd", "refinement_lr"):
        with pytest.raises(UserError, match=option):
            build_method("r-dfcil", {option: -1.0})


def test_a_resumed_task_has_the_projections_it_had() -> None:
    first, again = (build_method("r-dfcil", {}) for _ in range(2))
    assert isinstance(first, RDFCIL) and isinstance(again, RDFCIL)
    first.projections = nn.ParameterDict({"teacher": torch.randn(2, 3), "student": torch.randn(2, 3)})
    first.counts, first.epoch = torch.tensor([1.0, 2.0]), 7
    again.projections = nn.ParameterDict({"teacher": torch.zeros(2, 3), "student": torch.zeros(2, 3)})
    again.load_progress({name: tensor.clone() for name, tensor in first.progress().items()})
    assert all(torch.equal(again.projections[name], first.projections[name]) for name in ("teacher", "student"))
    assert again.epoch == 7 and again.counts.tolist() == [1.0, 2.0]
