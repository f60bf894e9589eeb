"""EFC: Elastic Feature Consolidation with the asymmetric prototype loss PR-ACE (§5.1, appendix C)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms
from efcil.parts.pr_ace import Rehearsing, RehearsingOptions, drawn_mix, pr_ace_loss


class EFC(Rehearsing):
    name = "efc"
    year = 2024
    idea = "Empirical Feature Matrix regulariser, prototypes rehearsed while the backbone trains (PR-ACE)"

    @dataclass(frozen=True)
    class Options(RehearsingOptions):
        """Settings of EFC."""

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """L^EFC = L^EFM + L^PR-ACE (Eqs. 16-17)."""
        mix = drawn_mix(ctx, batch, self.memory.prototypes)
        mixed = torch.cat([mix.prototypes, mix.second])
        mixed_columns = torch.cat([mix.old_columns, mix.new_columns])
        return {
            **pr_ace_loss(mix.features, batch.y, mixed, mixed_columns, ctx.model.weight, ctx.known),
            "efm": self.memory.efm_loss(ctx, batch, mix.features),
        }
