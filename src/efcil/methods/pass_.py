"""PASS: rotated copies as extra classes in every task, prototypes with Gaussian noise, feature distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, parameter_groups
from efcil.engine.rotation import rotated
from efcil.paper.prototypes import appended, class_means
from efcil.paper.recipes import COMPARED
from efcil.parts.rehearsal import RehearsalOptions, noise_radius, whole_batch_distance


class PASS(Method):
    name = "pass"
    year = 2021
    idea = "rotations as extra classes in every task, class means with noise rehearsed, feature distillation"
    stores = "class means, one radius"
    shapes: ClassVar = {"means": "m n", "radius": ""}
    freezes_batchnorm = False
    shown_per_image = 4
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options(RehearsalOptions):
        """Settings of PASS."""

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
        old_features = ctx.old_features(x)
        old_columns = torch.randint(ctx.known, (len(batch.x),), generator=ctx.rng).to(y)
        noise = torch.randn(len(old_columns), features.shape[1], generator=ctx.rng).to(features)  # ε
        prototypes = self.means[old_columns] + self.radius * noise  # (B, n)
        return {
            "ce": F.cross_entropy(self.outputs(ctx, features), y + ctx.known),
            "fd": self.options.lambda_fd * whole_batch_distance(features, old_features),
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
        if ctx.first:
            self.radius = noise_radius(features, ctx.columns)
        self.means = appended(self.means, class_means(features, ctx.columns))
