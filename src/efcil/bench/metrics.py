"""The paper's numbers from the matrix of accuracies (Eqs. 21-23).

``matrix[k, i]`` is a_i^k, the accuracy on task i after training task k; entries above the diagonal (tasks not
seen yet) are ignored and may be NaN. Row 0 is the first task: step 1 of a cold start, step 0 of a warm start,
which the paper counts, so both are the same formula here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.errors import UserError

# What is printed beside each number, so that nobody has to guess which average it is.
NAMES = {
    "per_step_accuracy": (
        "A_step",
        "accuracy on all classes seen, tasks weighted by their number of classes (Eq. 21)",
    ),
    "average_incremental_accuracy": (
        "A_inc",
        "mean of A_step over the steps, each step weighted equally (Eq. 21)",
    ),
    "average_forgetting": ("F", "best past accuracy minus the last, mean over old tasks (Eqs. 22-23)"),
    "plasticity": ("PL", "accuracy on each task just after learning it, mean over tasks (Eq. 23)"),
}


def summarize(matrix: Any, classes_per_task: Sequence[int]) -> dict[str, float]:
    """A_step, A_inc, F and PL after the last row of the matrix (Eqs. 21-23), in the matrix's own unit."""
    a, classes = _checked(matrix, classes_per_task)
    steps = len(a)
    a_step = [per_step_accuracy(a, classes, k) for k in range(steps)]
    return {
        "per_step_accuracy": a_step[-1],
        "average_incremental_accuracy": float(np.mean(a_step)),
        "average_forgetting": average_forgetting(a),
        "plasticity": float(np.mean(np.diag(a))),
    }


def per_step_accuracy(a: npt.NDArray[np.float64], classes: npt.NDArray[np.float64], k: int) -> float:
    """A_step^k: the accuracies of the tasks seen by step k, weighted by their classes (Eq. 21, left)."""
    return float(np.average(a[k, : k + 1], weights=classes[: k + 1]))


def average_forgetting(a: npt.NDArray[np.float64]) -> float:
    """F^K: for each old task its best past accuracy minus its last, then the mean (Eqs. 22-23, left)."""
    last = len(a) - 1
    if last == 0:
        return 0.0  # nothing can be forgotten after one task
    return float(np.mean([a[j:last, j].max() - a[last, j] for j in range(last)]))


def _checked(matrix: Any, classes_per_task: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    try:
        a = np.asarray(matrix, dtype=np.float64)
        classes = np.asarray(classes_per_task, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError("the accuracy matrix must be square and, like classes_per_task, hold numbers only.") from None
    if a.ndim != 2 or a.shape[0] != a.shape[1] or len(a) == 0:
        raise UserError(f"the accuracy matrix must be square with a row per step, not of shape {a.shape}.")
    if classes.shape != (len(a),) or not ((classes > 0) & (classes < np.inf)).all():
        raise UserError(f"classes_per_task must hold {len(a)} positive numbers, not {classes_per_task}.")
    if not np.isfinite(np.tril(a, 0)[np.tril_indices(len(a))]).all():
        raise UserError("the accuracy matrix has missing numbers on or below its diagonal.")
    return a, classes
