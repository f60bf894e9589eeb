"""What decides the last digits of a result: tolerances, and the version that says which results compare.

Raise ``VERSION`` by hand when a change makes a run with the same seed end with other numbers; CHANGELOG.md says why.
Results, shared first tasks and checkpoints of another version then count as stale.
"""

from __future__ import annotations

import torch
from torch import Tensor

VERSION = 2

JITTER = 1e-5  # added to the variances of a Gaussian, so that fewer images than features still have a factor
TINY = 1e-12  # keeps a division from one by zero


def above_rounding(eigenvalues: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Which eigenvalues are more than the rounding errors of the greatest, for a matrix that was computed in dtype."""
    part = 1e-7 if (dtype or eigenvalues.dtype) == torch.float32 else 1e-10
    return eigenvalues > eigenvalues.max() * part
