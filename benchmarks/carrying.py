"""What each part of `cargo` brings, judged on one and the same backbone.

    OMP_NUM_THREADS=1 python benchmarks/carrying.py cifar100-cold10-fast --data-root DIR

The stream is learnt as `cargo` does it; its backbone hardly depends on Gaussians, which give the unit of its loss. Each
column moves Gaussians of its own and leaves out one part. Measured on held-out training images: the accuracy over all
classes seen, after each task. For the true Gaussians the old images are given again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from efcil import IncrementalClassifier, data
from efcil.bench.scenarios import resolve
from efcil.data.stream import Stream
from efcil.engine.context import Context
from efcil.methods import METHODS
from efcil.methods.cargo import Cargo
from efcil.paper.covariances import leading
from efcil.parts.carried import CarriedGaussians, quadratic_discriminant
from efcil.parts.consolidation import oracle_prototypes

ALL, TRUE = "all of it", "true Gaussians"
WAYS = (
    *(ALL, "anchor alone", "no earlier layers", "no anchor", "no directions of their own", "no error of the map"),
    *("augmented view", "not moved", TRUE),
)


class Compared(Cargo):
    """Cargo that tries every way after each task."""

    exemplar_free = False
    ways: ClassVar[dict[str, CarriedGaussians]] = {}
    times = 1.0  # what d was multiplied with, max(1, (Φ − 1)²)

    def before_task(self, ctx: Context) -> None:
        super().before_task(ctx)
        if not ctx.first:
            unit = self.options.damping / self.gaussians.variance(ctx.model.learner.feature_dim)
            Compared.times = self.weight / unit if unit else 1.0

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            ctx.model.add_anchor("layers")
        (plain,), (seen,) = (ctx.extract(ctx.model, augmented=view) for view in (False, True))
        fresh = {way: self.of(ctx, way, seen if way == "augmented view" else plain) for way in WAYS}
        Compared.ways = fresh if ctx.first else self.moved(ctx, plain, fresh)
        self._change(self.ways[ALL])

    def of(self, ctx: Context, way: str, features: Tensor) -> CarriedGaussians:
        own = ctx.model.learner.feature_dim
        return CarriedGaussians.of(features[:, looked_at(way, features.shape[1], own)], ctx.columns, self.options.rank)

    def moved(self, ctx: Context, plain: Tensor, fresh: dict[str, CarriedGaussians]) -> dict[str, CarriedGaussians]:
        found = self.drift(ctx, plain)
        certain = replace(found, error=torch.zeros_like(found.error))

        def kept(way: str) -> CarriedGaussians:
            if way == TRUE:
                return self.true(ctx)
            if way in ("anchor alone", "not moved"):
                return self.ways[way]
            return self.ways[way].carried(certain if way == "no error of the map" else found)

        return {way: kept(way).extended(fresh[way]) for way in WAYS}

    def true(self, ctx: Context) -> CarriedGaussians:
        """Those of the old images, which the method itself never sees again."""
        true = oracle_prototypes(ctx, augmented=False)
        rows = torch.zeros(len(true), self.options.rank, true.means.shape[1])
        for place, factor in enumerate(true.whole_factors()):
            own, _ = leading(factor, self.options.rank)
            rows[place, : len(own)] = own
        weights = (true.counts - 1) / (true.counts - 1).sum()
        covariance = sum(weight * true.covariance(place) for place, weight in enumerate(weights))
        return CarriedGaussians(true.means, rows, covariance, true.counts)


def looked_at(way: str, whole: int, own: int) -> list[int]:
    """The places of the features that a class is told by: of the anchor, of its earlier layers, of the network."""
    anchor, layers, network = ([*range(a, b)] for a, b in pairwise((0, own, whole - own, whole)))
    fewer = {"anchor alone": anchor + layers, "no earlier layers": anchor + network, "no anchor": network}
    return fewer.get(way, anchor + layers + network)


def main(preset: str, root: Path, seed: int, changes: list[str]) -> None:
    METHODS["cargo"] = Compared
    config = resolve(preset, "cargo", seed, ["data.held_out=50", *changes])
    stream = Stream(data.load(config.data, root, config.classifier.image_size), config.stream, seed)
    classifier = IncrementalClassifier.from_config(config.classifier)
    print("| classes seen | times d | " + " | ".join(WAYS) + " |")
    print("|---:" * (2 + len(WAYS)) + "|", flush=True)
    for index in range(len(stream)):
        task, past = stream.task(index), stream.past(index)
        given = {"past": (past.train, past.train_labels)} if index else {}
        classifier.partial_fit(task.train, task.train_labels, **given)
        if not index:
            continue
        seen, cells = stream.past(index + 1), []
        with torch.no_grad():
            features = torch.cat(list(classifier._features(seen.test)))
        places = {name: place for place, name in enumerate(classifier.classes_.tolist())}
        columns = torch.tensor([places[name] for name in seen.test_labels])
        for way, gaussians in Compared.ways.items():
            options = classifier._method.options
            own_share = 0.0 if way.startswith("no directions") else options.own_share
            told = quadratic_discriminant(gaussians, own_share, options.shrinkage)
            own = classifier._model.learner.feature_dim
            right = told.scores(features[:, looked_at(way, features.shape[1], own)]).argmax(1) == columns
            cells.append(f"{100 * float(right.double().mean()):.1f}")
        print(f"| {len(places)} | {Compared.times:.1f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", help="such as cifar100-cold10-fast")
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], help="options.damping=0.3; not options.anchor"
    )
    args = parser.parse_args()
    main(args.preset, args.data_root, args.seed, args.changes)
