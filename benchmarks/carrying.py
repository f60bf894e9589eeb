"""What each part of `cargo` brings, judged on one and the same backbone.

    OMP_NUM_THREADS=1 python benchmarks/carrying.py cifar100-cold10-fast --data-root DIR

The stream is learnt as `cargo` does it; its backbone hardly depends on Gaussians, which give the unit of its loss. Each
column moves Gaussians of its own and leaves out one part. Measured on held-out training images: the accuracy over all
classes seen, after each task. For the true Gaussians the old images are given again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch

from efcil import IncrementalClassifier, data
from efcil.bench.scenarios import resolve
from efcil.data.stream import Stream
from efcil.engine.context import Context
from efcil.methods import METHODS
from efcil.methods.cargo import Cargo
from efcil.paper.covariances import leading
from efcil.parts.affine import fitted
from efcil.parts.carried import CarriedGaussians, quadratic_discriminant
from efcil.parts.consolidation import oracle_prototypes

ALL, TRUE = "all of it", "true Gaussians"
WAYS = (ALL, "no directions of their own", "no error of the map", "no anchor", "not moved", TRUE)


class Compared(Cargo):
    """Cargo that tries every way after each task."""

    exemplar_free = False
    ways: ClassVar[dict[str, CarriedGaussians]] = {}

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            super().after_task(ctx)
            Compared.ways = {way: self.gaussians if way == "no anchor" else self.gaussians.twice() for way in WAYS}
            return
        assert ctx.old is not None
        ctx.reseed("drift")
        anchor, learning = ctx.model.networks()
        plain, seen = (ctx.extract(anchor, ctx.old.learner, learning, augmented=view) for view in (False, True))
        carrying = fitted(*(torch.cat([plain[k], seen[k]]) for k in (1, 2)), ctx.columns.repeat(2))
        for way, gaussians in self.ways.items():
            if way == TRUE:
                gaussians = self.true(ctx)
            elif way != "not moved":
                exact = replace(carrying, error=torch.zeros_like(carrying.error))
                gaussians = gaussians.carried(exact if way == "no error of the map" else carrying)
            features = seen[2] if way == "no anchor" else torch.cat([seen[0], seen[2]], 1)
            self.ways[way] = gaussians.extended(CarriedGaussians.of(features, ctx.columns, self.options.rank))
        self._change(self.ways[ALL])

    def true(self, ctx: Context) -> CarriedGaussians:
        """Those of the old images, which the method itself never sees again."""
        true = oracle_prototypes(ctx, augmented=True)
        rows = torch.zeros(len(true), self.options.rank, true.means.shape[1])
        for place, factor in enumerate(true.whole_factors()):
            own, _ = leading(factor, self.options.rank)
            rows[place, : len(own)] = own
        weights = (true.counts - 1) / (true.counts - 1).sum()
        covariance = sum(weight * true.covariance(place) for place, weight in enumerate(weights))
        return CarriedGaussians(true.means, rows, covariance, true.counts)


def main(preset: str, root: Path, seed: int, changes: list[str]) -> None:
    METHODS["cargo"] = Compared
    config = resolve(preset, "cargo", seed, ["data.held_out=50", *changes])
    stream = Stream(data.load(config.data, root, config.classifier.image_size), config.stream, seed)
    classifier = IncrementalClassifier.from_config(config.classifier)
    print("| classes seen | " + " | ".join(WAYS) + " |")
    print("|---:" * (1 + len(WAYS)) + "|", flush=True)
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
            right = told.scores(features[:, -gaussians.means.shape[1] :]).argmax(1) == columns
            cells.append(f"{100 * float(right.double().mean()):.1f}")
        print(f"| {len(places)} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", help="such as cifar100-cold10-fast")
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--set", dest="changes", action="append", default=[], help="any setting, options.damping=0.3")
    args = parser.parse_args()
    main(args.preset, args.data_root, args.seed, args.changes)
