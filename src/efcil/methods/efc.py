"""EFC: Elastic Feature Consolidation with the asymmetric prototype loss PR-ACE (§5.1, appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context, View
from efcil.engine.method import Terms, parameter_groups
from efcil.parts.consolidation import Consolidating, Consolidation, ConsolidationOptions


class EFC(Consolidating):
    name = "efc"
    year = 2024
    idea = "Empirical Feature Matrix regulariser, prototypes rehearsed while the backbone trains (PR-ACE)"

    @dataclass(frozen=True)
    class Options(ConsolidationOptions):
        """Settings of EFC."""

        prototype_batch: int = 64
        """Prototypes and second-batch images together in the right term of Eq. 17."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, prototype_batch=1)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.memory = Consolidation(options)  # E_t and P_{1:t}

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone and ALL heads: PR-ACE trains old classifiers too."""
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def plan(self, ctx: Context, steps: int) -> list[tuple[View, Tensor]]:
        """Which classes the right term of Eq. 17 sees in each step, and for the new ones other images, X̂."""
        size = self.options.prototype_batch
        mixes = [class_uniform_mix(ctx.known + ctx.classes, size, ctx.rng) for _ in range(steps)]
        new = [mix[mix >= ctx.known] for mix in mixes]
        rows = ctx.draw(torch.cat(new)).split([len(columns) for columns in new])
        return [(ctx.view(group), mix) for group, mix in zip(rows, mixes, strict=True)]

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """L^EFC = L^EFM + L^PR-ACE (Eqs. 16-17)."""
        assert batch.extra is not None
        second, mix = batch.extra.x, batch.extra.y  # X̂, and the classes of X̂ and P̃ together
        prototypes = self.memory.prototypes.sample_classes(mix[mix < ctx.known].cpu(), ctx.rng)  # P̃
        features, second_features = ctx.model.features(torch.cat([batch.x, second])).tensor_split([len(batch.x)])
        mixed = torch.cat([prototypes, second_features])
        mixed_columns = torch.cat([mix[mix < ctx.known], mix[mix >= ctx.known]])
        return {
            **pr_ace_loss(features, batch.y, mixed, mixed_columns, ctx.model.weight, ctx.known),
            "efm": self.memory.efm_loss(ctx, batch, features),
        }

    def after_task(self, ctx: Context) -> None:
        if not ctx.first:
            with ctx.phase("drift"):
                self.memory.update_prototypes(ctx)
        self.memory.remember(ctx)


def class_uniform_mix(classes: int, size: int, rng: torch.Generator) -> Tensor:
    """Which classes, old and new alike, the right term of Eq. 17 sees: each as often as any other, (size,)."""
    rounds = -(-size // classes)
    return torch.cat([torch.randperm(classes, generator=rng) for _ in range(rounds)])[:size]


def pr_ace_loss(
    features: Tensor, columns: Tensor, mixed: Tensor, mixed_columns: Tensor, weight: Tensor, known: int
) -> Terms:
    """New images among the new classes, plus prototypes and second batch among all classes (Eq. 17)."""
    return {
        "ce": F.cross_entropy(features @ weight[known:].T, columns - known),
        "rehearsal": F.cross_entropy(mixed @ weight.T, mixed_columns),
    }
