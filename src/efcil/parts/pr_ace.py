"""What EFC and CEOS + ACB share: the asymmetric prototype rehearsal PR-ACE (Eq. 17) and the mix of classes it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context, View
from efcil.engine.device import sent
from efcil.engine.method import Terms, parameter_groups
from efcil.paper.prototypes import GaussianPrototypes
from efcil.parts.consolidation import Consolidating, Consolidation, ConsolidationOptions


@dataclass(frozen=True)
class RehearsingOptions(ConsolidationOptions):
    """Settings of both methods."""

    prototype_batch: int = 64
    """Prototypes and second-batch images together in the right term of Eq. 17."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, prototype_batch=1)


class Rehearsing(Consolidating):
    """Old classes are rehearsed while the backbone trains, and drawn from P_{1:t−1}."""

    options: RehearsingOptions

    def __init__(self, options: RehearsingOptions) -> None:
        self.options = options
        self.memory = Consolidation(options)  # E_t and P_{1:t}

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone and ALL heads: PR-ACE trains old classifiers too."""
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def plan(self, ctx: Context, steps: int) -> list[tuple[View, Tensor]]:
        return planned_mixes(ctx, steps, self.options.prototype_batch)

    def after_task(self, ctx: Context) -> None:
        if not ctx.first:
            with ctx.phase("drift"):
                self.memory.update_prototypes(ctx)
        self.memory.remember(ctx)


class Mix(NamedTuple):
    """The features of X, and of what the right term of Eq. 17 sees: P̃ and f(X̂) with their columns."""

    features: Tensor  # f(X), (B, n)
    prototypes: Tensor  # P̃, (p, n)
    second: Tensor  # f(X̂), (q, n)
    old_columns: Tensor  # (p,)
    new_columns: Tensor  # (q,)


def planned_mixes(ctx: Context, steps: int, size: int) -> list[tuple[View, Tensor]]:
    """Which classes the right term of Eq. 17 sees in each step, and for the new ones other images, X̂."""
    mixes = [class_uniform_mix(ctx.known + ctx.classes, size, ctx.rng) for _ in range(steps)]
    new = [mix[mix >= ctx.known] for mix in mixes]
    rows = ctx.draw(torch.cat(new)).split([len(columns) for columns in new])
    return [(ctx.view(group), mix) for group, mix in zip(rows, mixes, strict=True)]


def class_uniform_mix(classes: int, size: int, rng: torch.Generator) -> Tensor:
    """Which classes, old and new alike, the right term of Eq. 17 sees: each as often as any other, (size,)."""
    rounds = -(-size // classes)
    return torch.cat([torch.randperm(classes, generator=rng) for _ in range(rounds)])[:size]


def drawn_mix(ctx: Context, batch: Batch, prototypes: GaussianPrototypes) -> Mix:
    """Draw P̃ and pass X and X̂ through the network together, as planned for this step."""
    assert batch.extra is not None
    second, planned = batch.extra.x, batch.extra.planned
    mix = batch.extra.y.cpu() if planned is None else planned  # the classes of X̂ and P̃ together
    old, new = mix[mix < ctx.known], mix[mix >= ctx.known]
    drawn = prototypes.sample_classes(old, ctx.rng)
    features, second_features = ctx.model.features(torch.cat([batch.x, second])).tensor_split([len(batch.x)])
    return Mix(features, drawn, second_features, sent(old, second.device), sent(new, second.device))


def pr_ace_loss(
    features: Tensor,
    columns: Tensor,
    mixed: Tensor,
    mixed_columns: Tensor,
    weight: Tensor,
    known: int,
    class_weights: Tensor | None = None,
) -> Terms:
    """New images among the new classes, plus prototypes and second batch among all classes (Eq. 17).

    Class weights, if there are any, belong to the right term; its mean is then the weighted one.
    """
    return {
        "ce": F.cross_entropy(features @ weight[known:].T, columns - known),
        "rehearsal": F.cross_entropy(mixed @ weight.T, mixed_columns, class_weights),
    }
