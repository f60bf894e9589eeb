"""What decides the last digits of a result: tolerances, and the version that says which results compare.

Raise ``VERSION`` by hand when a change makes a run with the same seed end with other numbers; CHANGELOG.md says why.
Results, shared first tasks and checkpoints of another version then count as stale.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

VERSION = 2

JITTER = 1e-5  # added to the variances of a Gaussian, so that fewer images than features still have a factor
TINY = 1e-12  # keeps a division from one by zero


def above_rounding(eigenvalues: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Which eigenvalues are more than the rounding errors of the greatest, for a matrix that was computed in dtype."""
    part = 1e-7 if (dtype or eigenvalues.dtype) == torch.float32 else 1e-10
    return eigenvalues > eigenvalues.max() * part


def cholesky(matrix: Tensor) -> Tensor:
    """The lower triangular factor of a symmetric matrix that is positive definite but for rounding, (n, n).

    Rounding grows with the numbers: where they are so large that it swallows a fixed jitter, the diagonal is raised by
    the smallest part of its mean that is enough. A matrix that has a factor as it is keeps it to the last digit.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    part = torch.finfo(matrix.dtype).eps
    while failed and part < 10:  # at ten times the mean nothing but NaN and infinity has no factor
        raised = matrix + part * matrix.diagonal().abs().mean() * torch.eye(len(matrix)).to(matrix)
        factor, failed = torch.linalg.cholesky_ex(raised)
        part *= 10
    return factor  # type: ignore[no-any-return]


def contrasts(centred: Tensor) -> Tensor:
    """One row fewer with the same Σ xᵀx, for N rows that sum to zero: reflected so that (1 … 1) is (√N, 0 … 0)."""
    return centred[1:] + centred[:1] / max(math.sqrt(len(centred)) - 1, TINY)


def triangular(rows: Tensor) -> Tensor:
    """C with CᵀC = Σ xᵀx over these rows, as few rows as that needs: never more than columns."""
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    return factor
