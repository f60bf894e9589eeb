"""Every random draw comes from a generator named by the seed and its place in the run.

Nothing depends on how many numbers were drawn before, so a run that was killed and resumed draws exactly
what the unbroken run would have drawn, and no random state has to be saved.
"""

from __future__ import annotations

import hashlib
import math

import torch


def generator(seed: int, *place: int | str) -> torch.Generator:
    """A fresh CPU generator for this seed and place, such as ``generator(0, "task", 3, "epoch", 7)``."""
    name = "/".join(str(part) for part in (seed, *place))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def uniform(rows: int, columns: int, rng: torch.Generator | None) -> torch.Tensor:
    """Weights as a fresh linear layer without bias has them, (rows, columns)."""
    bound = 1 / math.sqrt(columns)
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=rng)
