"""SSRE: 1×1 adapters that are merged into the network after each task, prototypes that weigh each image's losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, Terms, parameter_groups
from efcil.paper.prototypes import appended, class_means
from efcil.parts.rehearsal import RehearsalOptions


class SSRE(Method):
    name = "ssre"
    year = 2022
    idea = "only 1×1 adapters learn, merged after each task; cosines to old class means weigh each image's losses"
    stores = "class means"
    shapes: ClassVar = {"means": "m n"}
    recipe: ClassVar = {  # appendix D.2
        "incremental": {"lr": 2e-4, "backbone_lr": None, "weight_decay": 5e-4, "epochs": 60, "milestones": [0.75]}
    }

    @dataclass(frozen=True)
    class Options(RehearsalOptions):
        """Settings of SSRE: the names and the weights of PASS."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # μ_c (m, n)

    def before_task(self, ctx: Context) -> None:
        if not ctx.first:
            ctx.model.backbone.requires_grad_(False)
            add_adapters(ctx.model.backbone)

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The adapters (in the first task the backbone) and ALL heads: prototypes train the old ones too."""
        return parameter_groups(ctx, self.training(ctx), list(ctx.model.heads))

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """mean_x (1 − s) CE(x) + λ_FD Σ_x s ‖f(x) − f_old(x)‖ + λ_pr CE(μ_c, c)."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)
        old_features = ctx.old_features(batch.x)
        similarity = prototype_similarity(features, self.means)  # s (B,)
        old_columns = torch.randint(ctx.known, (len(batch.x),), generator=ctx.rng).to(batch.y)
        logits = ctx.model.logits(features) / self.options.temperature
        prototype_logits = ctx.model.logits(self.means[old_columns]) / self.options.temperature
        distances = torch.linalg.vector_norm(features - old_features, dim=1)  # (B,)
        return {
            "ce": ((1 - similarity) * F.cross_entropy(logits, batch.y, reduction="none")).mean(),
            "fd": self.options.lambda_fd * (similarity * distances).sum(),
            "prototypes": self.options.lambda_pr * F.cross_entropy(prototype_logits, old_columns),
        }

    def after_task(self, ctx: Context) -> None:
        merge_adapters(ctx.model.backbone)
        (features,) = ctx.extract(ctx.model, augmented=True)
        means = class_means(features, ctx.columns)
        self.means = appended(self.means, means)


def prototype_similarity(features: Tensor, means: Tensor) -> Tensor:
    """s(x) = max_c cos(f(x), μ_c), (B,)."""
    return (F.normalize(features) @ F.normalize(means).T).amax(1)


class Adapter(nn.Module):
    """A 1×1 convolution beside a 3×3 one, as what it adds to that kernel: its weight in the centre."""

    def __init__(self, kernel: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros_like(kernel[:, :, :1, :1]))  # (c, c_in, 1, 1)

    def forward(self, kernel: Tensor) -> Tensor:
        return kernel + F.pad(self.weight, (1, 1, 1, 1))


def add_adapters(backbone: nn.Module) -> None:
    """A 1×1 adapter of zeros for every 3×3 convolution but the stem, the first of all."""
    convolutions = [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    for conv in convolutions[1:]:
        if conv.kernel_size == (3, 3) and not parametrize.is_parametrized(conv):
            parametrize.register_parametrization(conv, "weight", Adapter(conv.weight))


@torch.no_grad()
def merge_adapters(backbone: nn.Module) -> None:
    """Each kernel takes its adapter in; the network says the same and has its old size."""
    for conv in [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]:
        if any(isinstance(module, Adapter) for module in conv.modules()):
            merged = conv.weight.clone()
            parametrize.remove_parametrizations(conv, "weight", leave_parametrized=False)
            conv.weight.copy_(merged)
