"""Prototype re-balancing (§4.2): train all heads on old prototypes and new features, the backbone frozen (Eq. 13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.plan import seconds_of
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
    epochs = ((views[epoch % len(views)], columns) for epoch in range(settings.epochs))
    return trained_on(weight, prototypes, epochs, settings, rng, report, settings.epochs)


def trained_on(
    weight: Tensor,
    prototypes: GaussianPrototypes,
    epochs: Iterable[tuple[Tensor, Tensor]],
    settings: Rebalancing,
    rng: torch.Generator,
    report: Report,
    total: int,
) -> Tensor:
    """W_t (m, n) after these epochs, each over features (k, n) of current images and their columns (k,) (Eq. 13)."""
    weight = weight.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD(
        [weight], lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    for epoch, (view, columns) in enumerate(epochs):
        per_class = -(-len(columns) // len(columns.unique()))  # the average class of the current task
        old = torch.arange(len(prototypes)).repeat_interleave(per_class)  # the column of each draw
        rows = balanced_rows(columns, per_class, rng)
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
        report(epoch + 1, total)
    return weight.detach()


def rebalance_heads(
    ctx: Context, prototypes: GaussianPrototypes, settings: Rebalancing, seen: Sequence[Tensor] = ()
) -> None:
    """Train W_t on P̃ ∪ f(X; θ*_t), the backbone frozen (Eq. 13); views that were ``seen`` need no pass of their own."""
    ctx.reseed("re-balancing")
    report = ctx.report("re-balancing")
    if len(ctx.images) <= ctx.rows_at_once:
        passes = min(settings.views, settings.epochs) - len(seen)
        views = [*seen, *(ctx.extract(ctx.model, augmented=True)[0] for _ in range(passes))]
        weight = rebalance(ctx.model.weight, prototypes, views, ctx.columns, settings, ctx.rng, report)
    else:
        parts = dealt(ctx.columns, -(-len(ctx.columns) // ctx.rows_at_once), ctx.rng)
        epochs, total = parts_in_turn(ctx, parts, settings), settings.epochs * len(parts)
        weight = trained_on(ctx.model.weight, prototypes, epochs, settings, ctx.rng, report, total)
    ctx.model.set_weight(weight)


def parts_in_turn(ctx: Context, parts: list[Tensor], settings: Rebalancing) -> Iterator[tuple[Tensor, Tensor]]:
    """The epochs over a task that is too large for memory: part by part, and each view of a part as often as its share.

    It takes as many passes through the network and as many steps as if all views were held; epochs over one part follow
    each other.
    """
    count = min(settings.views, settings.epochs)
    for view in range(count):
        for rows in parts:
            (features,) = ctx.extract(ctx.model, augmented=True, images=ctx.images.subset(rows))
            for _ in range(view, settings.epochs, count):
                yield features, ctx.columns[rows]


def dealt(columns: Tensor, parts: int, rng: torch.Generator) -> list[Tensor]:
    """All rows at random in so many parts, with some of every class in each; a class of few images repeats them."""
    found: list[list[Tensor]] = [[] for _ in range(parts)]
    for column in columns.unique():
        rows = (columns == column).nonzero().squeeze(1).cpu()
        rows = rows[torch.randperm(len(rows), generator=rng)]
        for place in range(parts):
            found[place].append(rows[place::parts] if place < len(rows) else rows[[place % len(rows)]])
    return [torch.cat(part).sort().values for part in found]


def rebalancing_seconds(ctx: Context, prototypes: GaussianPrototypes, settings: Rebalancing) -> float:
    """How long re-balancing takes on this machine, without its passes through the network, from one of its epochs."""
    columns = ctx.columns[:: -(-len(ctx.columns) // ctx.rows_at_once)]  # some of every class
    views = [torch.zeros(len(columns), ctx.model.feature_dim, device=ctx.device)]
    once, rng = replace(settings, epochs=1), torch.Generator().manual_seed(0)
    epochs = settings.epochs * len(ctx.columns) / len(columns)
    return epochs * seconds_of(partial(rebalance, ctx.model.weight, prototypes, views, columns, once, rng))
