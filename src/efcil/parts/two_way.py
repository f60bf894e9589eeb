"""What BiCyc and GATF share: maps between the old and the new space, learnt both ways while the backbone trains.

z_o are the features of the old network and z_n those of the new one; A leads from the old space to the new one, D back.
The backbone is held only by what D makes of z_n; nothing that A says reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.method import Terms
from efcil.parts.bottleneck import BottleneckOptions

PAIRED = 128  # rows of a batch whose cosines are compared, at most


@dataclass(frozen=True)
class TwoWayOptions(BottleneckOptions):
    """Weights of the two-way losses."""

    lambda_alignment: float = 5.0
    """Weight of the alignment in both directions, λ_bi."""
    lambda_cycle: float = 2.0
    """Weight of the way there and back again, λ_cyc."""
    lambda_pairs: float = 0.05
    """Weight of the cosines between images, λ_pair."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, lambda_alignment=0.0, lambda_cycle=0.0, lambda_pairs=0.0)


def two_way_terms(
    old: Tensor,
    new: Tensor,
    forth: Callable[[Tensor], Tensor],
    back: Callable[[Tensor], Tensor],
    options: TwoWayOptions,
    rng: torch.Generator,
) -> Terms:
    """λ_bi L_bi + λ_cyc L_cyc + λ_pair L_pair, for A = forth and D = back; z_o carries no gradient.

    L_bi = MSE(D(z_n), z_o) + MSE(A(z_o), sg z_n), L_cyc = MSE(A(sg D(z_n)), sg z_n) + MSE(D(sg A(z_o)), z_o) and
    L_pair = pair(sg z_n, A(z_o)) + pair(z_o, D(z_n)), where sg lets no gradient through.
    """
    target, led_back, led_forth = new.detach(), back(new), forth(old)
    alignment = F.mse_loss(led_back, old) + F.mse_loss(led_forth, target)
    cycle = F.mse_loss(forth(led_back.detach()), target) + F.mse_loss(back(led_forth.detach()), old)
    rows = torch.randperm(len(old), generator=rng)[:PAIRED].to(old.device)
    pairs = pair_loss(target[rows], led_forth[rows]) + pair_loss(old[rows], led_back[rows])
    return {
        "alignment": options.lambda_alignment * alignment,
        "cycle": options.lambda_cycle * cycle,
        "pairs": options.lambda_pairs * pairs,
    }


def pair_loss(one: Tensor, other: Tensor) -> Tensor:
    """The mean squared difference of the cosines between the rows of one and between those of the other."""
    one, other = F.normalize(one), F.normalize(other)
    return F.mse_loss(one @ one.T, other @ other.T)
