"""Prototype re-balancing (§4.2): train all heads on old prototypes and new features, the backbone frozen (Eq. 13)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.progress import Report, unreported
from efcil.paper.prototypes import GaussianPrototypes

CHUNK = 1 << 15  # features in memory at a time: many of every class, so that a class is drawn in one product


@dataclass(frozen=True)
class Rebalancing:
    """Settings of the re-balancing phase."""

    epochs: int = 50
    """Passes over the balanced set."""
    lr: float = 1e-3
    """Learning rate of SGD."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 5e-4
    """L2 weight decay."""
    batch_size: int = 256
    """Features per step."""
    views: int = 4
    """Augmented views of the current images whose features are kept and used in turn."""

    def __post_init__(self) -> None:
        at_least(self, epochs=0, lr=0.0, momentum=0.0, weight_decay=0.0, batch_size=1, views=1)


def rebalancing_loss(features: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy over all classes of prototypes and current features together (Eq. 13)."""
    return F.cross_entropy(features @ weight.T, columns)


def balanced_rows(columns: Tensor, per_class: int, rng: torch.Generator) -> Tensor:
    """Row indices with ``per_class`` rows of every class: each row once before any row a second time."""
    chosen = []
    for column in columns.unique():
        rows = (columns == column).nonzero().squeeze(1).cpu()
        rounds = -(-per_class // len(rows))
        chosen.append(torch.cat([rows[torch.randperm(len(rows), generator=rng)] for _ in range(rounds)])[:per_class])
    return torch.cat(chosen)


def rebalance(
    weight: Tensor,
    prototypes: GaussianPrototypes,
    views: list[Tensor],
    columns: Tensor,
    settings: Rebalancing,
    rng: torch.Generator,
    report: Report = unreported,
) -> Tensor:
    """The classifier W_t (m, n) trained on P̃ ∪ f(X; θ*_t), every class equally often (Eq. 13).

    ``views`` are the features of the current task, (N, n) each, one per augmented pass; epoch e uses view e mod V.
    Prototypes are drawn when their turn comes, never all at once.
    """
    weight = weight.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD(
        [weight], lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    per_class = -(-len(columns) // len(columns.unique()))  # the average class of the current task
    old = torch.arange(len(prototypes)).repeat_interleave(per_class)  # the column of each draw
    for epoch in range(settings.epochs):
        view, rows = views[epoch % len(views)], balanced_rows(columns, per_class, rng)
        order = torch.randperm(len(old) + len(rows), generator=rng)
        for chunk in order.split(max(1, CHUNK // settings.batch_size) * settings.batch_size):
            is_old = chunk < len(old)
            drawn, current = old[chunk[is_old]], rows[chunk[~is_old] - len(old)]
            features = view.new_empty(len(chunk), view.shape[1])
            features[is_old], features[~is_old] = prototypes.sample_classes(drawn, rng), view[current]
            targets = columns.new_empty(len(chunk))
            targets[is_old], targets[~is_old] = drawn.to(columns), columns[current]
            for x, y in zip(features.split(settings.batch_size), targets.split(settings.batch_size), strict=True):
                optimizer.zero_grad()
                rebalancing_loss(x, y, weight).backward()
                optimizer.step()
        report(epoch + 1, settings.epochs)
    return weight.detach()
