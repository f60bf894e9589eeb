"""A regulariser without weight is fine-tuning bit for bit, with weight it is not, and with more it holds more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import TinyNet, make_blobs, make_learner
from efcil.paper.regularizers import flat_weights

RECIPE = {"epochs": 2, "lr": 1e-3, "milestones": [0.45, 0.9]}
TASKS = [make_blobs(["cat", "dog"]), make_blobs(["ant", "bee", "elk"], 5), make_blobs(["cow"], 4)]
REBALANCING = {"rebalancing": {"views": 1, "epochs": 1}}
NOTHING: dict[str, tuple[str, dict[str, Any]]] = {
    "lwf": ("lwf", {"lambda_lwf": 0.0}),
    "ewc": ("ewc", {"lambda_efim": 0.0}),
    "mas": ("mas", {"lambda_mas": 0.0}),
    "si": ("si", {"c": 0.0}),
    "rwalk": ("rwalk", {"lambda_rwalk": 0.0}),
    "lfl": ("lfl", {"lambda_e": 0.0}),
    "cargo": ("cargo", {"damping": 0.0, "anchor": "none"}),
    "efc++": ("efc++", {"lambda_efm": 0.0, "eta": 0.0, **REBALANCING}),
    **{
        f"efc++ {name}": ("efc++", {"regularizer": name, "lambda_regularizer": 0.0, **REBALANCING})
        for name in ("efim", "kd", "fd")
    },
}
SOMETHING = {
    "lwf": {},
    "ewc": {},
    "mas": {"lambda_mas": 100.0},
    "si": {"c": 1e4},
    "rwalk": {"lambda_rwalk": 1e4},
    "lfl": {"lambda_e": 1.0},
    "cargo": {"anchor": "none"},
    "efc++": {},
    **{f"efc++ {name}": {"regularizer": name} for name in ("efim", "kd", "fd")},
}


def learnt(method: str, options: dict[str, Any]) -> dict[str, Tensor]:
    """The network after three tasks, with one recipe for all methods."""
    classifier = make_learner(method, first={"epochs": 2}, incremental=RECIPE, options=options)
    for images, labels in TASKS:
        classifier.partial_fit(images, labels)
    return classifier._fitted()[0].state_dict()


@pytest.fixture(scope="module")
def fine_tuned() -> dict[str, Tensor]:
    return learnt("finetune", {})


@pytest.mark.parametrize("case", NOTHING)
def test_without_weight_a_method_is_fine_tuning_bit_for_bit(case: str, fine_tuned: dict[str, Tensor]) -> None:
    network = learnt(*NOTHING[case])
    assert network.keys() == fine_tuned.keys()
    compared = [name for name in network if name.startswith("backbone.") or not case.startswith("efc++")]
    assert all(torch.equal(network[name], fine_tuned[name]) for name in compared)  # re-balancing changes heads alone


@pytest.mark.parametrize("case", NOTHING)
def test_with_weight_a_method_is_not_fine_tuning(case: str, fine_tuned: dict[str, Tensor]) -> None:
    quick = REBALANCING if case.startswith("efc++") else {}
    network = learnt(NOTHING[case][0], {**SOMETHING[case], **quick})
    assert any(not torch.equal(network[n], fine_tuned[n]) for n in network if n.startswith("backbone."))


@pytest.mark.parametrize(("name", "option"), [("ewc", "lambda_efim"), ("mas", "lambda_mas"), ("si", "c")])
def test_a_greater_weight_holds_the_weights_nearer(name: str, option: str) -> None:
    """After the second task; plain SGD, because Adam rescales."""
    ways = []
    for weight in (0.0, 1.0):
        recipe = {"epochs": 20, "optimizer": "sgd", "lr": 0.02}
        classifier = make_learner(name, backbone=TinyNet(), first=recipe, incremental=recipe, options={option: weight})
        classifier.partial_fit(*TASKS[0])
        before = flat_weights(classifier._fitted()[0]).detach()
        classifier.partial_fit(*TASKS[1])
        method: Any = classifier._method
        moved = (flat_weights(classifier._fitted()[0]).detach() - before).square()
        assert torch.isfinite(moved).all() and all(torch.isfinite(t).all() for t in method.state().values())
        ways.append(moved.sum().item())
    assert ways[1] < ways[0]
