"""IL2A: mixed images as extra classes, and prototypes augmented without end in closed form (Dual Augmentation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, parameter_groups
from efcil.paper.prototypes import FULL_FACTORS, GaussianPrototypes, gaussian_prototypes
from efcil.paper.recipes import COMPARED
from efcil.parts.rehearsal import whole_batch_distance
from efcil.rng import uniform


class IL2A(Method):
    name = "il2a"
    year = 2021
    idea = "mixes of two new classes as extra classes, class means with covariances rehearsed in closed form"
    stores = "class means and covariances"
    shapes: ClassVar = {"means": "m n", "covariance_factors": "r n", "factor_rows": "m int64", "counts": "m int64"}
    earlier_shapes = FULL_FACTORS
    freezes_batchnorm = False
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options:
        """Settings of IL2A."""

        lambda_fd: float = 10.0
        """Weight of the feature distillation."""
        lambda_pr: float = 10.0
        """Weight of the prototypes."""
        temperature: float = 0.1
        """T, which divides all outputs in the cross-entropies."""
        ratio: float = 2.5
        """Strength of the semantic augmentation; 0 rehearses the bare means."""
        mixes: int = 4
        """How often each image may be mixed with another; 0 turns class augmentation off."""
        beta: int = 20
        """Both parameters of the Beta distribution of the mixing weight."""

        def __post_init__(self) -> None:
            at_least(self, lambda_fd=0.0, lambda_pr=0.0, temperature=1e-3, ratio=0.0, mixes=0, beta=1)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.shown_per_image = 1 + options.mixes
        self.prototypes = GaussianPrototypes.none()
        self.pair_head: nn.Parameter | None = None  # rows of the mixed classes, only while a later task is trained

    def before_task(self, ctx: Context) -> None:
        if not ctx.first:
            pairs = ctx.classes * (ctx.classes - 1) // 2 if self.options.mixes else 0
            self.pair_head = nn.Parameter(uniform(pairs, ctx.model.feature_dim, ctx.rng).to(ctx.device))

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone and ALL heads: prototypes train the old ones too."""
        heads = [*ctx.model.heads, *([] if self.pair_head is None else [self.pair_head])]
        return parameter_groups(ctx, self.training(ctx), heads)

    def augment(self, ctx: Context, batch: Batch) -> Batch:
        """Class augmentation: the batch and its mixes, whose labels follow those of all classes seen."""
        if ctx.first:
            return batch
        parts = [batch]
        for _ in range(self.options.mixes):
            partner = torch.randperm(len(batch.x), generator=ctx.rng)
            weight = mixing_weights(len(batch.x), self.options.beta, ctx.rng).to(batch.x)[:, None, None, None]  # λ
            mixed = weight * batch.x + (1 - weight) * batch.x[partner]
            pairs = pair_index(batch.y - ctx.known, batch.y[partner] - ctx.known, ctx.classes)
            different = batch.y != batch.y[partner]
            parts.append(Batch(mixed[different], ctx.known + ctx.classes + pairs[different]))
        return Batch(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """CE(images and mixes) + λ_FD ‖F − F_old‖ + λ_pr CE(semantically augmented prototypes)."""
        assert ctx.old is not None and self.pair_head is not None
        features = ctx.model.features(batch.x)  # F
        old_features = ctx.old_features(batch.x)
        images = int((batch.y < ctx.known + ctx.classes).sum())
        old_columns = torch.randint(ctx.known, (images,), generator=ctx.rng).to(batch.y)
        logits = features @ torch.cat([ctx.model.weight, self.pair_head]).T
        prototype_logits = semantic_logits(ctx.model.weight, self.prototypes, old_columns, self.options.ratio)
        temperature = self.options.temperature
        return {
            "ce": F.cross_entropy(logits / temperature, batch.y),
            "fd": self.options.lambda_fd * whole_batch_distance(features, old_features),
            "prototypes": self.options.lambda_pr * F.cross_entropy(prototype_logits / temperature, old_columns),
        }

    def after_task(self, ctx: Context) -> None:
        self.pair_head = None
        (features,) = ctx.extract(ctx.model, augmented=True)
        new = gaussian_prototypes(features, ctx.columns)
        self.prototypes = new if ctx.first else self.prototypes.extended(new)

    def remove_class(self, column: int) -> None:
        self.prototypes = self.prototypes.removed(column)

    def state(self) -> State:
        return self.prototypes.state()

    def load_state(self, state: State) -> None:
        self.prototypes = GaussianPrototypes.from_state(state)

    def progress(self) -> State:
        return {} if self.pair_head is None else {"pair_head": self.pair_head.detach()}

    @torch.no_grad()
    def load_progress(self, state: State) -> None:
        if self.pair_head is not None:
            self.pair_head.copy_(state["pair_head"])


def mixing_weights(count: int, beta: int, rng: torch.Generator) -> Tensor:
    """λ ~ Beta(β, β), 0.5 where it is outside [0.4, 0.6]; the median of 2β − 1 uniform numbers is so distributed."""
    weights = torch.rand(count, 2 * beta - 1, generator=rng).median(1).values
    return torch.where((weights - 0.5).abs() <= 0.1, weights, 0.5)


def pair_index(a: Tensor, b: Tensor, classes: int) -> Tensor:
    """The number of the unordered pair {a, b} of different classes: 01, 02, …, 12, …"""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return low * (2 * classes - low - 1) // 2 + high - low - 1


def semantic_logits(weight: Tensor, prototypes: GaussianPrototypes, columns: Tensor, ratio: float) -> Tensor:
    """w_jᵀ μ_c + ratio/2 (w_j − w_c)ᵀ Σ_c (w_j − w_c) for each c of ``columns`` (k,), giving (k, m)."""
    classes, places = columns.unique(return_inverse=True)
    rows = []
    for c in classes.tolist():
        spread = (weight - weight[c]) @ prototypes.factors[c].T  # CᵀC = Σ, (m, rows)
        rows.append(weight @ prototypes.means[c] + ratio / 2 * spread.square().sum(1))
    return torch.stack(rows)[places]
