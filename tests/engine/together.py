"""What each of several processes does in test_distributed.py; not a test itself.

    together.py network|lessons|streams|silence FOLDER [METHOD …]

Every process leaves what it found in FOLDER/<rank>.json.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efcil.engine import distributed, shards, state

TORCHRUN_RANK = int(os.environ.get("RANK", "0"))


class Small(nn.Module):
    """Convolution, BatchNorm and a layer; no bias, whose gradient would be nothing but rounding before BatchNorm."""

    feature_dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.last = nn.Linear(4 * 16, self.feature_dim, bias=False)
        self.plain = nn.BatchNorm1d(self.feature_dim, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.last(torch.tanh(self.norm(self.first(x))).flatten(1)))  # type: ignore[no-any-return]


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The greatest relative distance of two tensors of one name; infinite where shapes differ."""
    distances = [0.0]
    for name, tensor in one.items():
        if tensor.shape != other[name].shape:
            return float("inf")
        size = tensor.double().norm().clamp_min(1e-12)
        distances.append(float((tensor.double() - other[name].double()).norm() / size) if tensor.numel() else 0.0)
    return max(distances)


def same_everywhere(tensors: dict[str, Tensor]) -> bool:
    """Whether this process has, bit for bit, what the first one has."""
    first = distributed.from_first(lambda: {name: tensor.cpu() for name, tensor in tensors.items()})
    return tensors.keys() == first.keys() and all(torch.equal(tensors[name].cpu(), first[name]) for name in tensors)


@contextmanager
def one_process() -> Iterator[None]:
    """As if no other process were there."""
    job, distributed._job = distributed._job, None
    try:
        yield
    finally:
        distributed._job = job


# A network and what is said between processes


def learnt_from(network: nn.Module, images: int, training: bool) -> dict[str, Tensor]:
    """Features, gradients and statistics of one batch; the loss compares every image with every other."""
    rng = torch.Generator().manual_seed(images)
    network = copy.deepcopy(network).train(training)
    x = torch.randn(images, 3, 6, 6, generator=rng, dtype=torch.float64).requires_grad_()
    features = shards.features_of(network, x)
    (torch.cdist(features, features).square().mean().sqrt() + features.square().sum()).backward()
    gradients = {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
    assert x.grad is not None and len(gradients) == len(list(network.parameters()))
    return {"features": features.detach(), "x": x.grad, **gradients, **dict(network.named_buffers())}


def network(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    torch.manual_seed(3)
    small = Small().double()
    for training in (True, False):
        for images in (1 + training, 3, 7, 8):
            with distributed.together():
                shared = learnt_from(small, images, training)
            found[f"{images} images, {training=}"] = difference(learnt_from(small, images, training), shared)
            found[f"{images} images, {training=} same"] = same_everywhere(shared)
    with distributed.together():
        place, count = distributed.rank(), distributed.world()
        rows = torch.arange(9.0)[:, None]
        start, end = distributed.share(9)
        found["gathered"] = torch.equal(distributed.gathered(rows[start:end], 9), rows)
        own = (torch.full((2,), float(job)) for job in distributed.dealt(range(5)))
        told = list(distributed.by_turns(own, [(2,)] * 5, torch.device("cpu")))
        found["by turns"] = [tensor.tolist() for tensor in told]
        own_number = torch.full((3,), float(place))
        distributed.align([own_number])
        found["aligned"] = own_number.tolist()
        with distributed.alone():
            found["alone"] = [distributed.rank(), distributed.world()]
        dropped = shards.features_of(nn.Dropout(0.5).train(), torch.ones(2 * count, 64))
        found["dropout"] = same_everywhere({"x": dropped})
        found["masks"] = len({tuple(row) for row in dropped.tolist()})
        found["after dropout"] = same_everywhere({"x": torch.rand(3)})
    found["outside"] = [distributed.rank(), distributed.world()]
    found["from first"] = distributed.from_first(lambda: {"rank": TORCHRUN_RANK})
    kept = folder / "kept.txt"
    state.write_text(kept, f"by {TORCHRUN_RANK}")
    mine = folder / f"nobody-has-{TORCHRUN_RANK}.txt"
    with distributed.copy_of_first(kept) as path, distributed.copy_of_first(mine) as missing:
        found["copy"] = [path.read_text(), path == kept, missing.exists()]
    found["copy stays"] = path.exists()
    return found


# Methods


def kept_by(classifier: Any) -> dict[str, Tensor]:
    """The network and what the method remembers, without what is free: the sign of eigenvectors."""
    kept = {f"method.{name}": tensor for name, tensor in classifier._method.state().items()}
    if "method.whitenings" in kept:
        roots = kept.pop("method.whitenings").double()
        kept["method.precisions"] = roots @ roots.mT
    return {**{f"model.{name}": tensor for name, tensor in classifier._model.state_dict().items()}, **kept}


def in_float64() -> None:
    """All numbers from now on.

    The first steps of a network make 1e7 of a difference of 1: in float32 another order of additions, be it that of
    another number of threads, is another network after an epoch, in float64 it is the same.
    """
    from efcil.engine.preprocessing import Preprocessing

    normalised = Preprocessing.normalised
    Preprocessing.normalised = lambda *given: normalised(*given).double()  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)


def lessons(folder: Path, names: list[str]) -> dict[str, Any]:
    """A first and a second lesson of every case, by one process and by all, each from the same start, in float64."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from test_contract import CASES, TASKS, fresh, teach

    in_float64()
    gentle = {"optimizer": "sgd", "lr": 1e-3, "momentum": 0.0, "backbone_lr": 1e-3}  # Adam makes steps of roundings
    found: dict[str, Any] = {}
    for case in names or CASES:
        settings: Any = {"first": {**gentle, "epochs": 2}, "incremental": {**gentle, "epochs": 2}}
        learner, told = fresh(case, augmentation="crop_flip", **settings), {}
        for lesson in range(2):
            one = copy.deepcopy(learner)
            with one_process():
                teach(one, TASKS[lesson], TASKS[:lesson])
            teach(learner, TASKS[lesson], TASKS[:lesson])
            shared = kept_by(learner)
            told[f"lesson {lesson}"] = difference(kept_by(one), shared)
            told[f"lesson {lesson} same"] = same_everywhere(shared)
            learner = one  # goes on from what one process has learnt
        found[case] = told
    return found


QUICK = (
    *("first.epochs=6", "incremental.epochs=2", "width=8", "first.optimizer=sgd", "first.lr=0.05"),
    *("first.weight_decay=5e-4", "first.rotation=false", "device=cpu", "data.images_per_class=40"),
)
LIGHT = {  # to save time only
    "efc++": ("options.rebalancing.epochs=10", "options.rebalancing.views=2"),
    "acil": ("options.expansion=256",),
    "ds-al": ("options.expansion=256",),
    "ranpac": ("options.expansion=256",),
    "apr": ("options.attacked=40", "options.map_epochs=4", "options.pseudo_batch=16", "options.attack_limit=18"),
    "abd": ("options.inversion.iterations=10",),
    "r-dfcil": ("options.inversion.iterations=10",),
}


def streams(folder: Path, names: list[str]) -> dict[str, Any]:
    """Final accuracies of every method on the digits, with all numbers in float64."""
    from efcil.bench.runs import Unwatched, run
    from efcil.bench.scenarios import resolve
    from efcil.methods import METHODS

    in_float64()
    found = {}
    for method in names or METHODS:
        config = resolve("digits-cold5", method, 0, [*QUICK, *LIGHT.get(method, ())])
        metrics = run(config, "digits-cold5", folder / method, Unwatched())
        found[method] = [metrics["per_step_accuracy"], metrics["average_incremental_accuracy"]]
        if distributed.is_first():
            print(method, found[method], metrics["seconds"], flush=True)
    return found


def silence() -> None:
    """The second process is busy with something else."""
    distributed.from_first(lambda: None)
    if TORCHRUN_RANK:
        time.sleep(1500)  # much longer than the other one's patience
    distributed.from_first(lambda: None)


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, where, *asked = sys.argv[1:]
    if what == "silence":
        Path(where, f"{TORCHRUN_RANK}.here").touch()
        while len(list(Path(where).glob("*.here"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.05)  # one that takes long to start is not silent
        with distributed.processes(silence=timedelta(seconds=20)):
            silence()
    with distributed.processes():
        if what == "network":
            result = network(Path(where))
        else:
            result = {"lessons": lessons, "streams": streams}[what](Path(where), asked)
    Path(where, f"{TORCHRUN_RANK}.json").write_text(json.dumps(result))
