"""The training recipe: optimisers, learning rates and schedules against versions written by hand, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from conftest import OneLayer, PartialContext, TinyNet, make_blobs, make_learner, random_model, rng_of
from efcil import IncrementalClassifier
from efcil.data.images import image_set
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.engine.progress import Silent, Step
from efcil.engine.trainer import TrainingError, check_network, shuffled_batches
from efcil.methods import METHODS

FIRST, SECOND = make_blobs(["ant", "bee", "cat"], 4, size=4), make_blobs(["dog", "elk"], 5, size=4)
Weights = list[Tensor]  # layer, its bias, head

RECIPES: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "lr": 0.05},
    "adam, weight decay": {"optimizer": "adam", "lr": 0.05, "weight_decay": 0.3},
    "adam, backbone_lr": {"optimizer": "adam", "lr": 0.05, "backbone_lr": 0.01, "weight_decay": 0.1},
    "adam, a backbone that stands still": {"optimizer": "adam", "lr": 0.05, "backbone_lr": 0.0},
    "adam, one-cycle": {"optimizer": "adam", "lr": 0.05, "schedule": "one-cycle"},
    "adam, milestones": {"optimizer": "adam", "lr": 0.05, "milestones": [0.4, 0.8], "gamma": 0.2},
    "sgd": {"optimizer": "sgd", "lr": 0.2, "momentum": 0.0, "weight_decay": 0.0},
    "sgd, momentum": {"optimizer": "sgd", "lr": 0.2, "momentum": 0.7, "weight_decay": 0.0},
    "sgd, weight decay": {"optimizer": "sgd", "lr": 0.2, "momentum": 0.0, "weight_decay": 0.2},
    "sgd, everything": {
        **{"optimizer": "sgd", "lr": 0.2, "backbone_lr": 0.05, "momentum": 0.7, "weight_decay": 0.2},
        **{"milestones": [0.4, 0.8], "gamma": 0.2},
    },
}
FALLING = [0.5 + 0.5 * math.cos(math.pi * (epoch / 5 - 0.25) / 0.75) for epoch in range(2, 5)]
FACTORS = {  # of five epochs of one step each
    "milestones": [1.0, 1.0, 0.2, 0.2, 0.04],
    "one-cycle": [0.04, 0.04 + 0.96 * 0.8, *FALLING],
    "constant": [1.0] * 5,
}
PLAIN = {"epochs": 5, "batch_size": 64, "weight_decay": 0.0, "milestones": [], "gamma": 0.2}


def learner(first: dict[str, Any], incremental: dict[str, Any]) -> IncrementalClassifier:
    torch.manual_seed(0)
    backbone = OneLayer(3 * 4 * 4, 5)
    return make_learner(backbone=backbone, first={**first, "rotation": False}, incremental=incremental)


def trained(task: int, recipe: dict[str, Any]) -> IncrementalClassifier:
    """A classifier that learnt this task by the recipe, and the one before it without an epoch."""
    still = {"epochs": 0}
    classifier = learner(still, recipe) if task else learner(recipe, still)
    classifier.partial_fit(*FIRST)
    return classifier.partial_fit(*SECOND) if task else classifier


def weights_of(classifier: IncrementalClassifier) -> Weights:
    model = classifier._model
    assert model is not None
    return [p.detach().double() for p in (*model.backbone.parameters(), model.newest)]


def gradients(classifier: IncrementalClassifier, task: int, weights: Weights) -> Weights:
    """Of the mean cross-entropy of all images of the task, among its own classes."""
    assert classifier._preprocessing is not None
    images, labels = SECOND if task else FIRST
    x = classifier._preprocessing.normalised(image_set(images, 4).batch(torch.arange(len(images))), torch.device("cpu"))
    y = torch.tensor([sorted(set(labels)).index(name) for name in labels])
    layer, bias, head = (weight.requires_grad_() for weight in weights)
    features = torch.tanh(x.double().flatten(1) @ layer.T + bias)
    return list(torch.autograd.grad(F.cross_entropy(features @ head.T, y), [layer, bias, head]))


def adam(weights: Weights, rates: list[list[float]], decay: float, gradient: Callable[[Weights], Weights]) -> Weights:
    """Adam with an L2 penalty, as published: β = 0.9 and 0.999, ε = 1e-8."""
    first, second = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
    for step, of_epoch in enumerate(rates, start=1):
        found = [g + decay * w.detach() for g, w in zip(gradient(weights), weights, strict=True)]
        first = [0.9 * m + 0.1 * g for m, g in zip(first, found, strict=True)]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, found, strict=True)]
        weights = [
            w.detach() - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            for w, rate, m, v in zip(weights, of_epoch, first, second, strict=True)
        ]
    return weights


def sgd(
    weights: Weights,
    rates: list[list[float]],
    decay: float,
    momentum: float,
    gradient: Callable[[Weights], Weights],
) -> Weights:
    """Stochastic gradient descent with an L2 penalty and momentum."""
    velocity = [torch.zeros_like(w) for w in weights]
    for of_epoch in rates:
        found = [g + decay * w.detach() for g, w in zip(gradient(weights), weights, strict=True)]
        velocity = [momentum * v + g for v, g in zip(velocity, found, strict=True)]
        weights = [w.detach() - rate * v for w, rate, v in zip(weights, of_epoch, velocity, strict=True)]
    return weights


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("name", RECIPES)
def test_five_epochs_are_those_of_the_optimiser_written_by_hand(name: str, task: int) -> None:
    recipe = {**PLAIN, **RECIPES[name]}
    start = weights_of(trained(task, {**recipe, "epochs": 0}))
    classifier = trained(task, recipe)
    backbone = recipe.get("backbone_lr", recipe["lr"])
    kind = recipe.get("schedule", "milestones" if recipe["milestones"] else "constant")
    rates = [[f * backbone, f * backbone, f * recipe["lr"]] for f in FACTORS[kind]]
    gradient = lambda weights: gradients(classifier, task, weights)  # noqa: E731
    decay = recipe["weight_decay"]
    if recipe["optimizer"] == "adam":
        expected = adam(start, rates, decay, gradient)
    else:
        expected = sgd(start, rates, decay, recipe["momentum"], gradient)
    for found, by_hand in zip(weights_of(classifier), expected, strict=True):
        torch.testing.assert_close(found, by_hand.detach(), rtol=1e-4, atol=2e-6)


def test_old_heads_are_left_alone_by_decay_and_momentum() -> None:
    recipe = {**PLAIN, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.3, "momentum": 0.9}
    classifier = learner({"epochs": 1}, recipe).partial_fit(*FIRST)
    assert classifier._model is not None
    head = classifier._model.newest.detach().clone()
    classifier.partial_fit(*SECOND)
    assert torch.equal(classifier._model.heads[0], head)


def test_the_rotation_head_is_trained_with_the_rate_of_the_heads_and_then_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[Tensor]] = []

    def after_step(self: Any, ctx: Any) -> None:
        assert ctx.model.rotation_head is not None
        seen.append([p.detach().clone() for p in ctx.model.rotation_head.parameters()])

    monkeypatch.setattr(METHODS["finetune"], "after_step", after_step)
    for backbone_lr in (0.01, 0.3):
        first = {"epochs": 2, "lr": 0.01, "backbone_lr": backbone_lr, "milestones": []}
        classifier = make_learner(backbone=TinyNet(), first=first).partial_fit(*FIRST)
        assert classifier._model is not None and classifier._model.rotation_head is None
    for before, after in zip(seen[0], seen[1], strict=True):
        assert 0 < (after - before).abs().max() < 0.011  # a step of Adam is at most its rate
    for one, other in zip(seen[0], seen[2], strict=True):
        assert torch.equal(one, other)  # the first step does not depend on the backbone's rate


class Notes(Silent):
    """Writes down everything it is told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.epochs: list[Step] = []
        self.stages: list[tuple[int, str]] = []

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def epoch(self, step: Step) -> None:
        self.epochs.append(step)

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        self.stages.append((task, name))


def test_whoever_watches_is_told_how_far_a_long_stage_is() -> None:
    class Long(Silent):
        heard: ClassVar[list[tuple[int, str, int, int]]] = []

        def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
            if total:
                self.heard.append((task, name, done, total))

    generator = {"iterations": 3, "batch_size": 2, "latent": 2, "width": 2}
    make_learner("abd", options={"inversion": generator}, watcher=Long()).partial_fit(*FIRST).partial_fit(*SECOND)
    assert Long.heard == [(1, "training the generator", done, 3) for done in (1, 2, 3)]
    Long.heard.clear()
    make_learner("fecam", watcher=Long()).partial_fit(*make_blobs(["ant", "bee"], 150, size=4))
    assert Long.heard == [(0, "extracting features", done, 300) for done in (256, 300)]
    Long.heard.clear()
    options = {"rebalancing": {"views": 1, "epochs": 3}}
    make_learner("efc++", options=options, watcher=Long()).partial_fit(*FIRST).partial_fit(*SECOND)
    assert [heard for heard in Long.heard if heard[1] == "re-balancing"] == [
        (1, "re-balancing", done, 3) for done in (1, 2, 3)
    ]


@pytest.mark.parametrize("rotation", [True, False])
def test_whoever_watches_is_told_every_step_epoch_and_stage(rotation: bool) -> None:
    notes = Notes()
    training = {"epochs": 2, "batch_size": 5}
    classifier = make_learner(
        "lwf", backbone=TinyNet(), watcher=notes, first={**training, "rotation": rotation}, incremental=training
    )
    classifier.partial_fit(*FIRST).partial_fit(*SECOND)
    turns = 4 if rotation else 1
    first = [(0, epoch, 2, turns * count) for epoch in range(2) for count in (5, 5, 2)]
    second = [(1, epoch, 2, count) for epoch in range(2) for count in (5, 5)]
    assert [(s.task, s.epoch, s.epochs, s.images) for s in notes.steps] == first + second
    assert [(e.task, e.epoch, e.epochs, e.images) for e in notes.epochs] == [
        (t, e, 2, 0) for t in (0, 1) for e in (0, 1)
    ]
    assert notes.stages == [(t, name) for t in (0, 1) for name in ("before the epochs", "after the epochs")]
    for epoch in notes.epochs:
        steps = [s for s in notes.steps if (s.task, s.epoch) == (epoch.task, epoch.epoch)]
        assert set(epoch.losses) == ({"ce", "kd"} if epoch.task else {"ce"})
        for name, value in epoch.losses.items():
            assert value == pytest.approx(sum(s.losses[name] for s in steps) / len(steps))


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        *((6, 3, [3, 3]), (8, 3, [3, 3, 2]), (10, 3, [3, 3, 4]), (4, 3, [4]), (1, 3, [1]), (3, 3, [3])),
        *((3, 1, [1, 2]), (13, 4, [4, 4, 5])),
    ],
)
def test_every_image_is_in_one_batch_and_none_is_alone_if_there_are_others(
    count: int, size: int, sizes: list[int]
) -> None:
    batches = shuffled_batches(count, size, rng_of(1))
    assert [len(batch) for batch in batches] == sizes
    assert sorted(torch.cat(batches).tolist()) == list(range(count))
    again = shuffled_batches(count, size, rng_of(1))
    assert all(torch.equal(one, other) for one, other in zip(batches, again, strict=True))


# Random numbers


def test_learning_leaves_the_random_numbers_of_the_user_alone() -> None:
    classifier = make_learner(backbone=TinyNet())
    before = torch.get_rng_state()
    classifier.partial_fit(*FIRST)
    assert torch.equal(torch.get_rng_state(), before)


class Dropping(TinyNet):
    """A backbone that draws from torch's own random numbers."""

    drawn: list[Tensor] = []  # noqa: RUF012 (copies of the network note in the same place)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.any():  # all zeros are what a backbone is tried with before training
            self.drawn.append(torch.rand(3))
        return super().forward(x)


def test_dropout_differs_from_epoch_to_epoch_and_is_decided_by_the_seed() -> None:
    found = []
    for user, seed in ((1, 0), (2, 0), (1, 7)):
        torch.manual_seed(user)
        Dropping.drawn = []
        make_learner(backbone=Dropping(), epochs=3, seed=seed).partial_fit(*FIRST)
        found.append(torch.stack(Dropping.drawn))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert len(found[0].unique(dim=0)) == 3


OPTIONS: dict[str, dict[str, Any]] = {
    "efc++": {"rebalancing": {"views": 2, "epochs": 3}},
    "acil": {"expansion": 8},
    "ds-al": {"expansion": 8},
    "ranpac": {"expansion": 8},
    "apr": {"pseudo_batch": 4, "attack_limit": 5, "map_epochs": 2},
}
DRAW_FROM_TORCH = {  # layers of PyTorch, which are made with torch's own random numbers
    "adagauss": "the distiller",
    "bicyc": "the maps of both directions",
    "gatf": "the map back to the old space",
    "abd": "the generator",
    "r-dfcil": "the generator",
    "pass": "the rotation head, before it is filled from the task's own",
}


@pytest.mark.parametrize("method", [name for name in METHODS if name not in DRAW_FROM_TORCH])
def test_a_method_draws_from_the_generator_of_its_place(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own random numbers belong to the backbone; whoever else drew them would change what dropout does."""
    reseed, expected = Context.reseed, {}

    def reseeding(self: Context, *place: int | str) -> None:
        if expected:
            assert torch.equal(torch.get_rng_state(), expected["state"])
        reseed(self, *place)
        expected["state"] = torch.get_rng_state()

    monkeypatch.setattr(Context, "reseed", reseeding)
    after_task = METHODS[method].after_task

    def after(self: Any, ctx: Any) -> None:
        after_task(self, ctx)
        assert torch.equal(torch.get_rng_state(), expected.pop("state"))

    monkeypatch.setattr(METHODS[method], "after_task", after)
    classifier = make_learner(
        method, backbone=TinyNet(), augmentation="crop_flip", first={"rotation": False}, options=OPTIONS.get(method, {})
    )
    classifier.partial_fit(*FIRST)
    classifier.partial_fit(*SECOND, **({"past": FIRST} if classifier.needs_past else {}))


@pytest.mark.parametrize("method", ["abd", "r-dfcil", "pass"])
def test_layers_that_torch_fills_are_filled_anew_from_the_generator_of_the_place(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reseed, found = Context.reseed, []
    options = {} if method == "pass" else {"inversion": {"iterations": 2, "batch_size": 4, "latent": 5, "width": 4}}
    for torchs_own in (1, 2):

        def reseeding(self: Context, *place: int | str, own: int = torchs_own) -> None:
            reseed(self, *place)
            torch.manual_seed(own)

        monkeypatch.setattr(Context, "reseed", reseeding)
        classifier = make_learner(method, width=2, options=options, incremental={"batch_size": 8, "epochs": 2})
        classifier.partial_fit(*make_blobs(["ant", "bee"], 4)).partial_fit(*make_blobs(["cat", "dog"], 4))
        found.append(torch.from_numpy(classifier.decision_function(make_blobs(["ant", "cat"], 2)[0])))
    assert torch.equal(*found)


PLACES = {  # of what methods do after the first task and after a later one
    "efc++": [["statistics"], ["drift", "re-balancing", "statistics"]],
    "ewc": [["importance"], ["importance"]],
    "cargo": [[], ["drift"]],
}


@pytest.mark.parametrize("method", PLACES)
def test_every_stage_has_random_numbers_of_its_own(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one stage draws changes nothing in the next."""
    reseed, places = Context.reseed, []

    def reseeding(self: Context, *place: int | str) -> None:
        places.append((self.task, *place))
        reseed(self, *place)

    monkeypatch.setattr(Context, "reseed", reseeding)
    classifier = make_learner(method, backbone=TinyNet(), epochs=2, options=OPTIONS.get(method, {}))
    classifier.partial_fit(*FIRST).partial_fit(*SECOND)
    expected: list[tuple[Any, ...]] = []
    for task, (before, after) in enumerate(zip([["before"], ["before", "prepare"]], PLACES[method], strict=True)):
        expected += [(task, name) for name in before]
        expected += [(task, "epoch", 0), (task, "epoch", 1), (task, "after")]
        expected += [(task, name) for name in after]
    assert places == expected


@pytest.mark.parametrize(
    ("method", "batchnorm", "frozen"),
    [
        *(("lwf", None, True), ("lwf", "frozen", True), ("lwf", "learning", False)),
        *(("pass", None, False), ("pass", "frozen", True), ("pass", "learning", False)),
    ],
)
def test_batchnorm_is_frozen_before_a_later_task_if_the_setting_or_else_the_method_says_so(
    method: str, batchnorm: str | None, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(IncrementalModel, "freeze_batchnorm", lambda model: calls.append(len(model.heads)))
    classifier = make_learner(method, backbone=TinyNet(), batchnorm=batchnorm)
    classifier.partial_fit(*FIRST).partial_fit(*SECOND)
    assert calls == ([2] if frozen else [])  # heads by then: only the second task


# After the last step


def test_the_network_is_looked_at_with_images_as_they_are() -> None:
    """64 of them say enough, and fewer if there are no more; of a frozen backbone the heads alone can be spoilt."""
    model = random_model(TinyNet(), 2, seed=0).float().train()
    seen: list[tuple[list[int], bool]] = []

    def views(images: Any, rows: list[Tensor], augmented: bool = True) -> Any:
        seen.append((rows[0].tolist(), augmented))
        return iter([torch.rand(len(rows[0]), 3, 4, 4)])

    for count in (100, 5):
        check_network(PartialContext(model=model, images=range(count), views=views, task=0))  # type: ignore[arg-type]
    assert seen == [(list(range(64)), False), (list(range(5)), False)]
    assert not model.training
    model.frozen_backbone = True
    check_network(PartialContext(model=model, views=None, task=0))  # type: ignore[arg-type]
    with torch.no_grad():
        model.newest[0, 0] = math.nan
    with pytest.raises(TrainingError, match="task 3"):
        check_network(PartialContext(model=model, views=None, task=2))  # type: ignore[arg-type]


def test_a_matrix_that_cannot_be_solved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_task(method: Any, ctx: Context) -> None:
        torch.linalg.solve(torch.zeros(2, 2), torch.ones(2))

    monkeypatch.setattr(METHODS["finetune"], "after_task", after_task)
    with pytest.raises(TrainingError, match=r"^finetune cannot finish task 1 \(.*singular\); nothing of this task was"):
        make_learner(backbone=TinyNet()).partial_fit(*FIRST)


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("after_epoch", "The network stopped giving numbers at the end of task 1"),
        ("after_task", "The network stopped giving numbers at the end of task 1"),
        ("state", "What finetune remembers stopped being numbers at the end of task 1"),
    ],
)
def test_what_is_spoilt_is_noticed_before_anybody_goes_on_with_it(
    hook: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def spoil(self: Any, ctx: Context) -> None:
        called.append("spoilt")
        with torch.no_grad():
            ctx.model.newest[0, 0] = math.inf

    monkeypatch.setattr(METHODS["finetune"], "after_task", lambda self, ctx: called.append("after_task"))
    spoilt = (lambda self: {"kept": torch.tensor([1.0, math.nan])}) if hook == "state" else spoil
    monkeypatch.setattr(METHODS["finetune"], hook, spoilt)
    classifier = make_learner(backbone=TinyNet())
    with pytest.raises(TrainingError, match=f"{message}; nothing of this task was kept"):
        classifier.partial_fit(*FIRST)
    assert called == (["after_task"] if hook == "state" else ["spoilt"])


def test_a_loss_that_is_no_number_stops_the_task_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([1.0, math.nan])
    steps: list[int] = []

    def loss(self: Any, ctx: Context, batch: Any) -> dict[str, Tensor]:
        return {"ce": next(losses) + 0 * ctx.model(batch.x).sum()}

    monkeypatch.setattr(METHODS["finetune"], "first_loss", loss)
    monkeypatch.setattr(METHODS["finetune"], "after_step", lambda self, ctx: steps.append(1))
    with pytest.raises(TrainingError, match=r"stopped being a number in task 1, epoch 2 \(ce = nan\)"):
        make_learner(backbone=TinyNet(), epochs=3).partial_fit(*FIRST)
    assert steps == [1]


def test_the_rate_changes_with_every_step_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten images in batches of four: three steps an epoch."""
    rates = []
    step = torch.optim.SGD.step

    def noting(self: torch.optim.SGD, closure: None = None) -> None:
        rates.append(self.param_groups[0]["lr"])
        step(self)

    monkeypatch.setattr(torch.optim.SGD, "step", noting)
    recipe = {**PLAIN, "epochs": 2, "batch_size": 4, "optimizer": "sgd", "lr": 0.6, "schedule": "linear"}
    learner({"epochs": 0}, recipe).partial_fit(*FIRST).partial_fit(*SECOND)
    assert rates == pytest.approx([0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
