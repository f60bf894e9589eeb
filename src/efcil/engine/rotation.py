"""Self-rotation of the first task: rotated copies are extra classes, which makes the first features richer."""

from __future__ import annotations

import torch
from torch import Tensor

from efcil.engine.device import sent

ALL = 4  # 0, 90, 180 and 270 degrees


def rotated(x: Tensor, y: Tensor, classes: int, turns: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The batch in all four rotations, or in these (B, r); rotation k > 0 of class y has label C + 3y + k − 1."""
    if turns is None:
        turns = torch.arange(ALL, device=y.device).expand(len(y), ALL)
    copies = torch.stack([torch.rot90(x, k, (2, 3)) for k in range(ALL)])  # (4, B, 3, S, S)
    turns = sent(turns, y.device).T  # (r, B): all images in their first rotation, then in their second
    images = copies[turns, torch.arange(len(y), device=y.device)].flatten(0, 1)
    labels = torch.where(turns == 0, y, classes + 3 * y + turns - 1).flatten()
    return images.contiguous(memory_format=torch.channels_last), labels


def turns_drawn(count: int, shown: int, rng: torch.Generator) -> Tensor | None:
    """For each of so many images this number of different rotations (count, shown); all of them need no draw."""
    if shown == ALL:
        return None
    return torch.rand(count, ALL, generator=rng).argsort(1)[:, :shown]
