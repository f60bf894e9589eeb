"""What every method has unless it says otherwise: classes that go, what is trained, and how much work that is."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from conftest import PartialContext, TinyNet, normal, random_model
from efcil.config import ClassifierConfig, FirstTask, Training
from efcil.engine.method import Method, parameter_groups, words_and_type
from efcil.errors import UserError
from efcil.methods import METHODS, build_method

MODEL: Any = None  # the network is not looked at


class Keeping(Method):
    """Keeps something of every class, a number of all of them, and a row of features."""

    name = "keeping"
    shapes: ClassVar = {"means": "m n", "counts": "m int64", "radius": "", "direction": "n"}

    def __init__(self) -> None:
        super().__init__(None)
        self.means, self.counts = torch.arange(8.0).view(4, 2), torch.tensor([5, 6, 7, 8])
        self.radius, self.direction = torch.tensor(3.0), torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("column", range(4))
def test_a_class_that_goes_takes_its_row_of_everything_with_it(column: int) -> None:
    method = Keeping()
    method.remove_class(column)
    kept = [index for index in range(4) if index != column]
    assert method.means.tolist() == [[2.0 * index, 2.0 * index + 1] for index in kept]
    assert method.counts.tolist() == [5 + index for index in kept]
    assert method.radius == 3 and method.direction.tolist() == [1, 2, 3]


def test_a_class_that_is_in_every_row_cannot_go() -> None:
    class Mixing(Keeping):
        shapes: ClassVar = {"means": "m n", "weight": "n m"}

    method = Mixing()
    with pytest.raises(UserError, match="keeping cannot forget a single class"):
        method.remove_class(0)
    assert len(method.means) == 4


@pytest.mark.parametrize("name", ["efc++", "efc", "il2a"])
def test_the_prototype_of_a_class_can_go(name: str) -> None:
    method = build_method(name, {})
    state = {
        "means": normal(3, 2),
        "covariance_factors": normal(5, 2, seed=1),
        "factor_rows": torch.tensor([2, 1, 2]),
        "counts": torch.tensor([9, 2, 7]),
        **({} if name == "il2a" else {"efm": torch.eye(2)}),
    }
    method.load_state(state)
    method.remove_class(1)
    after = method.state()
    assert torch.equal(after["means"], state["means"][[0, 2]]) and after["counts"].tolist() == [9, 7]
    assert torch.equal(after["covariance_factors"], state["covariance_factors"][[0, 1, 3, 4]])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "lda"])
def test_only_lda_makes_one_class_of_two(name: str) -> None:
    with pytest.raises(UserError, match="cannot merge classes"):
        build_method(name, {}).merge_classes(0, 1)


def test_what_nobody_says_otherwise() -> None:
    method = Method(None)
    assert method.prepare(MODEL) is False and method.plan(MODEL, 3) == [] and method.progress() == {}
    assert method.familiarity(MODEL, torch.zeros(1, 2)) is None
    assert method.drawn(2, torch.Generator()) is None
    assert not method.needs_past
    assert method.passes_after(MODEL) == 1 and method.seconds_after(MODEL) == 0


def test_probabilities_are_the_softmax_of_the_scores() -> None:
    model, features = random_model(TinyNet(), 2, 1, seed=1), normal(4, 6)
    by_hand = [[float(torch.exp(row @ feature)) for row in model.weight.detach()] for feature in features]
    expected = [[entry / sum(row) for entry in row] for row in by_hand]
    found = Method(None).probabilities(model, features).detach()
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("shape", "words", "dtype"),
    [("", [], "float32"), ("m n", ["m", "n"], "float32"), ("m int64", ["m"], "int64"), ("float64", [], "float64")],
)
def test_a_shape_is_words_and_a_type(shape: str, words: list[str], dtype: str) -> None:
    assert words_and_type(shape) == (words, dtype)


@pytest.mark.parametrize(
    ("first", "work"),
    [
        ({"epochs": 3}, [3 * 4 * 10, 5 * 2 * 7, 5 * 2 * 8]),
        ({"epochs": 3, "rotations_shown": 2}, [3 * 2 * 10, 5 * 2 * 7, 5 * 2 * 8]),
        ({"epochs": 3, "rotation": False}, [3 * 10, 5 * 2 * 7, 5 * 2 * 8]),
    ],
)
def test_the_work_of_a_task_is_what_its_epochs_show(first: dict[str, Any], work: list[int]) -> None:
    class Showing(Method):
        shown_per_image = 2

    class Frozen(Showing):
        freezes_backbone = True

    config = ClassifierConfig(first=FirstTask(**first), incremental=Training(epochs=5))
    assert Showing(None).work(config, [10, 7, 8]) == work
    assert Frozen(None).work(config, [10, 7, 8]) == [work[0], 0, 0]
    assert build_method("joint", {}).work(config, [10, 7, 8]) == [work[0], work[0] // 10 * 17, work[0] // 10 * 25]


@pytest.mark.parametrize(("first", "frozen", "trained"), [(True, False, 2), (False, False, 0), (True, True, 0)])
def test_a_frozen_backbone_has_nothing_to_train(first: bool, frozen: bool, trained: int) -> None:
    model = random_model(TinyNet(), 2, seed=1)
    model.frozen_backbone = frozen
    ctx: Any = PartialContext(model=model, first=first, config=ClassifierConfig())
    assert len(build_method("freeze", {}).parameters(ctx)) == trained
    assert len(build_method("finetune", {}).parameters(ctx)) == 2


def test_backbone_and_heads_have_rates_of_their_own() -> None:
    model = random_model(TinyNet(), 2, seed=1)
    ctx: Any = PartialContext(model=model)
    for backbone_lr, rates in ((None, [0.3, 0.3]), (0.01, [0.01, 0.3])):
        groups = parameter_groups(ctx, Training(lr=0.3, backbone_lr=backbone_lr), [model.newest])
        assert [group["lr"] for group in groups] == rates
        assert [len(group["params"]) for group in groups] == [2, 1]
    model.add_rotation_head(2, torch.Generator())
    model.backbone.linear.bias.requires_grad_(False)  # type: ignore[union-attr]
    groups = parameter_groups(ctx, Training(), [model.newest])
    assert [len(group["params"]) for group in groups] == [1, 3]  # the weight; a head, and the rotations' with its bias
