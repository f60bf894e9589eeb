"""Re-balancing with a few cached augmented views against fresh ones in all 50 epochs: accuracy and cost.

    OMP_NUM_THREADS=1 python benchmarks/rebalancing_views.py --data-root DIR --first-tasks runs/first-tasks

The stream of the preset cifar100-cold10-cpu is learnt as usual. After each task the heads are re-balanced again from
the same trained backbone and the same prototypes with 1, 2, 4 and 50 views, and each result is measured on all test
images seen so far. The cost at width 64 is that of the last task of CIFAR-100: 5,000 images, prototypes of 90 classes.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar

import torch

from efcil import IncrementalClassifier, data
from efcil.backbones.resnet18 import ResNet18
from efcil.bench.evaluate import evaluate
from efcil.bench.scenarios import resolve
from efcil.data.stream import Stream
from efcil.engine.context import Context
from efcil.engine.model import IncrementalModel
from efcil.methods import METHODS
from efcil.methods.efc_plus_plus import EFCPlusPlus
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes
from efcil.paper.rebalancing import Rebalancing, rebalance

VIEWS = (1, 2, 4, 50)


class Remembering(EFCPlusPlus):
    """EFC++ that tells what its last re-balancing started from."""

    start: ClassVar[dict[str, Any]] = {}

    def rebalance(self, ctx: Context) -> None:
        weight = ctx.model.weight.detach().clone()
        Remembering.start = {"ctx": ctx, "weight": weight, "prototypes": self.memory.prototypes}
        super().rebalance(ctx)


def measured(classifier: IncrementalClassifier, stream: Stream, tasks: int, views: int) -> tuple[float, float]:
    """A_step with so many views, and the seconds that extracting and training took."""
    start = Remembering.start
    ctx: Context = start["ctx"]
    prototypes: GaussianPrototypes = start["prototypes"]
    settings = replace(classifier._method.options.rebalancing, views=views)
    begun = time.perf_counter()
    ctx.reseed("re-balancing", views)
    features = [ctx.extract(ctx.model, augmented=True)[0] for _ in range(views)]
    weight = rebalance(start["weight"], prototypes, features, ctx.columns, settings, ctx.rng)
    taken = time.perf_counter() - begun
    kept = ctx.model.weight.detach().clone()
    ctx.model.set_weight(weight)
    accuracy = mean(evaluate(classifier, stream, tasks).accuracy_per_task)
    ctx.model.set_weight(kept)
    return accuracy, taken


def seconds_at_width_64() -> tuple[float, float]:
    """What one view of 5,000 images and what the 50 epochs of the last task of CIFAR-100 cost."""
    rng = torch.Generator().manual_seed(0)
    model = IncrementalModel(ResNet18(64, "small", 1)).eval()
    x = torch.randn(100, 3, 32, 32, generator=rng).contiguous(memory_format=torch.channels_last)
    model.freeze_batchnorm()
    with torch.no_grad():
        model.features(x)  # the first call prepares the convolutions
        begun = time.perf_counter()
        for _ in range(5):
            model.features(x)
    view = (time.perf_counter() - begun) * 5000 / 500
    features, columns = torch.randn(5000, 512, generator=rng), torch.arange(5000) % 10 + 90
    old = gaussian_prototypes(torch.randn(90 * 600, 512, generator=rng), torch.arange(90 * 600) % 90)
    begun = time.perf_counter()
    rebalance(torch.zeros(100, 512), old, [features], columns, Rebalancing(), rng)
    return view, time.perf_counter() - begun


def main(root: Path, seeds: int, tasks: int, first_tasks: Path) -> None:
    METHODS["efc++"] = Remembering
    found: dict[int, list[tuple[float, float]]] = {views: [] for views in VIEWS}
    for seed in range(seeds):
        config = resolve("cifar100-cold10-cpu", "efc++", seed)
        stream = Stream(data.load(config.data, root, config.classifier.image_size), config.stream, seed)
        classifier = IncrementalClassifier.from_config(config.classifier)
        for index in range(tasks):
            task = stream.task(index)
            trained = first_tasks / f"{classifier.fingerprint(task.train, task.train_labels)}.efcil"
            classifier.partial_fit(task.train, task.train_labels, checkpoint=None if index else trained)
            if index:
                for views in VIEWS:
                    found[views].append(measured(classifier, stream, index + 1, views))
                    print(
                        f"seed {seed} task {index + 1} views {views}: {found[views][-1]}", file=sys.stderr, flush=True
                    )
    view, epochs = seconds_at_width_64()
    print("| views | A_step − A_step with 50 views | seconds per task | seconds at width 64 | times cheaper |")
    print("|---:|---:|---:|---:|---:|")
    for views in VIEWS:
        gaps = [ours[0] - fresh[0] for ours, fresh in zip(found[views], found[50], strict=True)]
        spread = f"{mean(gaps):+.2f} ± {stdev(gaps):.2f}"
        here, there = mean(seconds for _, seconds in found[views]), views * view + epochs
        print(f"| {views} | {spread} | {here:.1f} | {there:.0f} | {(50 * view + epochs) / there:.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--first-tasks", type=Path, required=True, help="where trained first tasks are or will be left")
    args = parser.parse_args()
    main(args.data_root, args.seeds, args.tasks, args.first_tasks)
