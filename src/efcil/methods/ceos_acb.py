"""CEOS + ACB: EFC whose rehearsal also sees draws near the new classes, with class weights that fade over the tasks.

CEOS adds samples of old classes at their boundary with the new ones, ACB is the adaptive class-balanced loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms
from efcil.parts.pr_ace import Rehearsing, RehearsingOptions, drawn_mix, pr_ace_loss


class CEOSACB(Rehearsing):
    name = "ceos-acb"
    year = 2026
    idea = "EFC with prototypes drawn towards the nearest new images, and class weights that fade with the tasks"

    @dataclass(frozen=True)
    class Options(RehearsingOptions):
        """Settings of CEOS + ACB; boundary samples come on top of prototype_batch."""

        neighbours: int = 1
        """Boundary samples of each prototype, one for each of so many nearest new images, k."""
        least_share: float = 0.7
        """Share of the prototype in a boundary sample, at least."""
        normalise: bool = True
        """Bring boundary samples to length one."""
        detach: bool = False
        """Keep boundary samples from moving the features of the new images that they lean on."""
        beta: float = 0.9999
        """How much less the next image of a class counts than the one before it, β of the effective number."""
        new_count: int = 500
        """Images that a new class is taken to have."""
        start_count: int = 100
        """Images that an old class is taken to have before the second task; it grows to that of the new ones, n₀."""
        tasks: int = 10
        """Number of tasks, the last of which weighs old and new classes alike, T."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, neighbours=1, new_count=1, start_count=1, tasks=2)
            part_of_one(self, "least_share")
            part_of_one(self, "beta")

    options: Options

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """L^EFM + CE(f(X); newest head) + CE_w([P̃; Q; f(X̂)]; all heads)."""
        o, mix = self.options, drawn_mix(ctx, batch, self.memory.prototypes)
        enemies = mix.features.detach() if o.detach else mix.features
        boundary = boundary_samples(mix.prototypes, enemies, o.neighbours, o.least_share, ctx.rng)  # (p, k, n)
        boundary = F.normalize(boundary, dim=2) if o.normalise else boundary
        mixed = torch.cat([mix.prototypes, boundary.flatten(0, 1), mix.second])
        repeated = mix.old_columns.repeat_interleave(boundary.shape[1])
        columns = torch.cat([mix.old_columns, repeated, mix.new_columns])
        old = old_count(ctx.task, o.tasks, o.start_count, o.new_count)
        weights = class_weights([old] * ctx.known + [o.new_count] * ctx.classes, o.beta).to(mixed)
        return {
            **pr_ace_loss(mix.features, batch.y, mixed, columns, ctx.model.weight, ctx.known, weights),
            "efm": self.memory.efm_loss(ctx, batch, mix.features),
        }


def boundary_samples(
    prototypes: Tensor, features: Tensor, neighbours: int, least_share: float, rng: torch.Generator
) -> Tensor:
    """q = α p̃ + (1 − α) f(x) for each draw and its nearest new images, α ~ U(least share, 1), (p, k, n).

    Every new image is an enemy of every draw, because draws are of old classes only.
    """
    distances = torch.cdist(prototypes, features.detach())  # (p, B)
    nearest = distances.topk(min(neighbours, len(features)), largest=False).indices  # (p, k)
    share = torch.empty(*nearest.shape, 1).uniform_(least_share, 1, generator=rng).to(prototypes)
    return share * prototypes[:, None] + (1 - share) * features[nearest]


def old_count(task: int, tasks: int, start: int, new: int) -> int:
    """⌊n₀ + t / (T − 1) (n − n₀)⌋, and n after the last of the tasks."""
    return start + min(task, tasks - 1) * (new - start) // (tasks - 1)


def class_weights(counts: Sequence[int], beta: float) -> Tensor:
    """(1 − β) / (1 − β^n) of each class, of mean one; the limit 1 / n where β is 1; float64, (m,)."""
    effective = [count if beta == 1 else (1 - beta**count) / (1 - beta) for count in counts]
    weights = 1 / torch.tensor(effective, dtype=torch.float64)
    return weights / weights.mean()
