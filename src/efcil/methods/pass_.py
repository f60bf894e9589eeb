"""PASS: rotated copies as extra classes in every task, prototypes with Gaussian noise, feature distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.methods.base import Batch, Context, Method, Terms, parameter_groups
from efcil.prototypes import JITTER, class_means, gaussian_prototypes
from efcil.regularizers import feature_distillation
from efcil.rotation import rotated


class PASS(Method):
    name = "pass"
    year = 2021
    idea = "rotations as extra classes in every task, class means with noise rehearsed, feature distillation"
    stores = "class means, one radius"
    shapes: ClassVar = {"means": "m n", "radius": ""}
    freezes_batchnorm = False
    shown_per_image = 4
    recipe: ClassVar = {"incremental": {"lr": 1e-3, "backbone_lr": None, "milestones": [0.45, 0.9]}}  # appendix D.2

    @dataclass(frozen=True)
    class Options:
        """Settings of PASS."""

        lambda_fd: float = 10.0
        """Weight of the feature distillation, λ_FD."""
        lambda_pr: float = 10.0
        """Weight of the prototypes, λ_pr."""
        temperature: float = 1.0
        """T, which divides all outputs in the cross-entropies."""

        def __post_init__(self) -> None:
            at_least(self, lambda_fd=0.0, lambda_pr=0.0, temperature=1e-3)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # μ_c (m, n)
        self.radius = torch.empty(())  # r

    def before_task(self, ctx: Context) -> None:
        if not ctx.first:
            ctx.model.add_rotation_head(ctx.classes, ctx.rng)  # the first task gets its own from the trainer

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone and ALL heads: prototypes train the old ones too."""
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """CE(images and rotations) + λ_FD ‖F − F_old‖ + λ_pr CE(μ_c + r ε, c)."""
        assert ctx.old is not None
        x, y = rotated(batch.x, batch.y - ctx.known, ctx.classes)
        features = ctx.model.features(x)  # F (4B, n)
        with torch.no_grad():
            old_features = ctx.old.features(x)
        old_columns = torch.randint(ctx.known, (len(batch.x),), generator=ctx.rng).to(y)
        noise = torch.randn(len(old_columns), features.shape[1], generator=ctx.rng).to(features)  # ε
        prototypes = self.means[old_columns] + self.radius * noise  # (B, n)
        whole_batch = feature_distillation(features.reshape(1, -1), old_features.reshape(1, -1))  # one norm for all
        return {
            "ce": F.cross_entropy(self.outputs(ctx, features), y + ctx.known),
            "fd": self.options.lambda_fd * whole_batch,
            "prototypes": self.options.lambda_pr * F.cross_entropy(self.outputs(ctx, prototypes), old_columns),
        }

    def outputs(self, ctx: Context, features: Tensor) -> Tensor:
        """z / T: all classes seen, then the three rotations of each new one, (B, m + 3C)."""
        assert ctx.model.rotation_head is not None
        logits = [ctx.model.logits(features), ctx.model.rotation_head(features)]
        outputs: Tensor = torch.cat(logits, dim=1) / self.options.temperature
        return outputs

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=True)
        means = class_means(features, ctx.columns)
        if ctx.first:
            self.means, self.radius = means, noise_radius(features, ctx.columns)
        else:
            self.means = torch.cat([self.means, means])


def noise_radius(features: Tensor, columns: Tensor) -> Tensor:
    """r of the classes that these features belong to."""
    return gaussian_radius(gaussian_prototypes(features.double(), columns).factors).to(features.dtype)


def gaussian_radius(factors: Tensor) -> Tensor:
    """r = √(mean_c trace(Σ_c) / n), with F Fᵀ = Σ + 1e-5 I."""
    variance = factors.double().square().sum((1, 2)).mean() / factors.shape[1] - JITTER
    return variance.clamp_min(0).sqrt().to(factors.dtype)
