"""Nearest class mean: an image belongs to the class whose mean its features are nearest to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """−‖f − μ_c‖² for every image and class, (N, m)."""
    return -torch.cdist(features, means).square()


def cosine_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """The same with features and means of unit length, so that only directions count, (N, m)."""
    return nearest_mean_scores(F.normalize(features), F.normalize(means))
