"""Ways to carry the Gaussians of old classes along, with an anchor and without, judged on one and the same backbone.

    OMP_NUM_THREADS=1 python benchmarks/carrying.py --data-root DIR --first-tasks runs/first-tasks

Five tasks of ten classes are learnt as `cargo` does it, whose backbone hardly depends on Gaussians (they give the unit
of its loss) and not on heads. After each task every way moves Gaussians of its own. Measured on held-out training
images: the accuracy over all classes seen of heads that are re-balanced with the Gaussians as EFC++ does it, that of
the discriminant which follows from them, and how far the means of the network that learns are from the true ones in
units of a class's spread. With --keep 0.4 the network after a task is two fifths the one before it.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from efcil import IncrementalClassifier, data
from efcil.bench.scenarios import resolve
from efcil.data.stream import Stream
from efcil.engine.context import Context
from efcil.methods import METHODS
from efcil.methods.cargo import Cargo, seen_twice, within_class_variance
from efcil.paper.drift import compensate
from efcil.paper.efm import empirical_feature_matrix
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes
from efcil.paper.rebalancing import rebalance
from efcil.parts.affine import fitted
from efcil.parts.compensators import ridge
from efcil.parts.consolidation import oracle_prototypes

WITHOUT = ("not moved", "EFM kernel", "ridge", "validated map", "true means", "true Gaussians")
WITH = ("map and anchor", "true Gaussians and anchor")
WAYS = (*WITHOUT, *WITH)
SHRINKAGE = 0.03  # part of the identity in the covariance of the discriminant
STREAM = ("data.held_out=50", "stream.steps=5", "stream.skip_classes=50")


class Compared(Cargo):
    """Cargo that tries every way after each task; for the true means it is given the old images."""

    exemplar_free = False
    kept: ClassVar[float] = 0.0  # how much of the network of the last task stays in the one of this
    found: ClassVar[dict[str, Any]] = {}  # of each way its heads, its discriminant and the distance of its means

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            super().after_task(ctx)
            (features,) = ctx.extract(ctx.model, augmented=True)
            gaussians, weight = gaussian_prototypes(features, ctx.columns), ctx.model.weight.detach().clone()
            efm = empirical_feature_matrix(features, weight)
            self.ways = dict.fromkeys(WITHOUT, (gaussians, weight, efm))
            both = torch.cat([torch.zeros_like(weight), weight], 1)
            self.ways |= {way: (seen_twice(gaussians), both, efm) for way in WITH}
            return
        assert ctx.old is not None
        with torch.no_grad():
            pairs = zip(ctx.model.learner.parameters(), ctx.old.learner.parameters(), strict=False)  # heads come last
            for now, before in pairs:
                now.lerp_(before, self.kept)
        ctx.reseed("drift")
        anchor, learning = ctx.model.networks()
        networks = (anchor, ctx.old.learner, learning)
        plain, seen, second = (ctx.extract(*networks, augmented=augmented) for augmented in (False, True, True))
        old, new = (torch.cat([plain[place], seen[place]]) for place in (1, 2))
        true, own = oracle_prototypes(ctx, augmented=True), learning.feature_dim
        spread = math.sqrt(within_class_variance(self.prototypes, own))
        for way, (gaussians, weight, efm) in self.ways.items():
            views = [self.features(way, view) for view in (seen, second)]
            moved = self.moved(way, gaussians, (old, new, ctx.columns.repeat(2)), (seen[1], seen[2], efm), true, ctx)
            distance = float((moved.means[:, -own:] - true.means[:, -own:]).norm(dim=1).mean()) / spread
            weight = torch.cat([weight, ctx.model.newest.detach()[:, -weight.shape[1] :]])
            ctx.reseed("re-balancing")
            weight = rebalance(weight, moved, views, ctx.columns, self.options.rebalancing, ctx.rng)
            efm = empirical_feature_matrix(seen[2], weight[:, -own:])
            everything = moved.extended(gaussian_prototypes(views[0], ctx.columns))
            self.ways[way] = (everything, weight, efm)
            Compared.found[way] = (weight, discriminant(everything), distance)
        self.prototypes = self.ways["map and anchor"][0]

    @staticmethod
    def features(way: str, view: list[Tensor]) -> Tensor:
        """What a way looks at of the features of anchor, old and new network."""
        return torch.cat([view[0], view[2]], 1) if way in WITH else view[2]

    @staticmethod
    def moved(
        way: str, gaussians: GaussianPrototypes, pairs: Any, kernel: Any, true: GaussianPrototypes, ctx: Context
    ) -> GaussianPrototypes:
        old, new, columns = pairs
        means, factors, own = gaussians.means, gaussians.factors, old.shape[1]
        if way == "EFM kernel":
            means = compensate(means, *kernel, 0.2, "scaled")
        elif way == "ridge":
            means, factors = ridge(old, new, means, factors, ctx)
        elif "map" in way:
            return fitted(old, new, columns).carry(gaussians)
        elif way.startswith("true"):
            means = true.means if way in WITH else true.means[:, -own:]
            if way == "true Gaussians and anchor":
                return true
            if way == "true Gaussians":
                factors = tuple(factor[:, -own:] for factor in true.factors)
        return GaussianPrototypes(means, tuple(factors), gaussians.counts)


def main(root: Path, seed: int, first_tasks: Path, changes: list[str]) -> None:
    METHODS["cargo"] = Compared
    config = resolve("cifar100-cold10-fast", "cargo", seed, [*STREAM, *changes])
    stream = Stream(data.load(config.data, root, config.classifier.image_size), config.stream, seed)
    classifier = IncrementalClassifier.from_config(config.classifier)
    print("| classes seen | " + " | ".join(WAYS) + " |")
    print("|---:" * (1 + len(WAYS)) + "|", flush=True)
    for index in range(len(stream)):
        task, past = stream.task(index), stream.past(index)
        trained = first_tasks / f"{classifier.fingerprint(task.train, task.train_labels)}.efcil"
        given = {"past": (past.train, past.train_labels)} if index else {"checkpoint": trained}
        classifier.partial_fit(task.train, task.train_labels, **given)
        if not index:
            continue
        seen, cells = stream.past(index + 1), []
        with torch.no_grad():
            features = torch.cat(list(classifier._features(seen.test)))
        columns = torch.tensor([classifier.classes_.tolist().index(name) for name in seen.test_labels])
        for way in WAYS:
            weight, (rows, bias), distance = Compared.found[way]
            own = features[:, -weight.shape[1] :]
            balanced, told = (accuracy(scores, columns) for scores in (own @ weight.T, own.double() @ rows.T + bias))
            cells.append(f"{balanced:.1f} / {told:.1f} ({distance:.2f})")
        print(f"| {10 * (index + 1)} | " + " | ".join(cells) + " |", flush=True)


def discriminant(prototypes: GaussianPrototypes) -> tuple[Tensor, Tensor]:
    """W (m, n) and b (m,): W f + b = log N(f; p_c, Σ) + what all classes share, for Σ the shrunk mean of all Σ_c."""
    means = prototypes.means.double()
    within = sum(factor.double().T @ factor.double() for factor in prototypes.factors) / len(means)
    shrunk = (1 - SHRINKAGE) * within
    shrunk.diagonal().add_(SHRINKAGE * within.diagonal().mean())
    weight: Tensor = torch.linalg.solve(shrunk, means.T).T
    return weight, -(weight * means).sum(1) / 2


def accuracy(scores: Tensor, columns: Tensor) -> float:
    return 100 * float((scores.argmax(1) == columns).double().mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first-tasks", type=Path, required=True, help="where trained first tasks are or will be left")
    parser.add_argument("--set", dest="changes", action="append", default=[], help="any setting, options.damping=0.3")
    parser.add_argument("--keep", type=float, default=0.0, help="share of the old weights in those after a task")
    args = parser.parse_args()
    Compared.kept = args.keep
    main(args.data_root, args.seed, args.first_tasks, args.changes)
