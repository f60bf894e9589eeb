"""The incremental model M_t(x) = softmax(W_t f(x; θ_t)) with a classifier that grows (Eqs. 1-2)."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from efcil.rng import uniform


class IncrementalModel(nn.Module):
    """A backbone and one bias-free linear head per task; W_t is the heads one under the other (m, n)."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = int(backbone.feature_dim)  # type: ignore[arg-type]
        self.heads = nn.ParameterList()
        self.rotation_head: nn.Linear | None = None  # only while a first task is trained
        self.frozen_batchnorm = False
        self.frozen_backbone = False

    def features(self, x: Tensor) -> Tensor:
        """f(x; θ_t), (B, n)."""
        return self.backbone(x)  # type: ignore[no-any-return]

    def logits(self, features: Tensor) -> Tensor:
        """W_t f over all classes seen, (B, m)."""
        return features @ self.weight.T

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.features(x))

    @property
    def weight(self) -> Tensor:
        """W_t, one row per class seen (m, n)."""
        return torch.cat(list(self.heads))

    @property
    def newest(self) -> nn.Parameter:
        """W_{t−1:t}, the head of the latest task."""
        return cast(nn.Parameter, self.heads[len(self.heads) - 1])

    @torch.no_grad()
    def set_weight(self, weight: Tensor) -> None:
        """Write a trained W_t back into the heads."""
        for head, rows in zip(self.heads, weight.split([len(head) for head in self.heads]), strict=True):
            head.copy_(rows)

    def grow(self, classes: int, rng: torch.Generator | None = None) -> None:
        """Add a head for new classes, with the default initialisation of a linear layer."""
        head = uniform(classes, self.feature_dim, rng)
        self.heads.append(nn.Parameter(head.to(next(self.backbone.parameters()).device)))

    def remove_class(self, column: int) -> int:
        """Take the row of a class out of its head, and the head away with its last row; returns the head's place."""
        for place, head in enumerate(self.heads):
            if column < len(head):
                rows = torch.cat([head[:column], head[column + 1 :]]).detach()
                heads = list(self.heads)
                heads[place : place + 1] = [nn.Parameter(rows)] if len(rows) else []
                self.heads = nn.ParameterList(heads)
                return place
            column -= len(head)
        raise IndexError(column)

    def add_rotation_head(self, classes: int, rng: torch.Generator) -> None:
        """A throw-away head (with bias) for the three rotations of each class."""
        self.rotation_head = nn.Linear(self.feature_dim, 3 * classes, device=self.newest.device)
        bound = 1 / math.sqrt(self.feature_dim)
        with torch.no_grad():
            for parameter in self.rotation_head.parameters():
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=rng))

    def freeze_batchnorm(self) -> None:
        """From now on statistics and affine parameters of BatchNorm stay as they are, in training too."""
        self.frozen_batchnorm = True
        for module in self._batchnorms():
            module.eval()
            module.requires_grad_(False)

    def freeze_backbone(self) -> None:
        """From now on the whole backbone stays as it is: weights, statistics of BatchNorm, and no dropout."""
        self.frozen_backbone = True
        self.backbone.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> IncrementalModel:
        super().train(mode)
        if self.frozen_backbone:
            self.backbone.eval()
        if self.frozen_batchnorm:
            for module in self._batchnorms():
                module.eval()
        return self

    def _batchnorms(self) -> list[nn.Module]:
        return [m for m in self.backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
