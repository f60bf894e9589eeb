"""Fusion (a reconstruction): old class means follow a learned feature drift and their relation to the new classes.

Fusion is "Bring Evanescent Representations to Life", of which no code was published. What is here is built from its
published idea; the formulas are ours. The old means, brought up to date in every epoch, are rehearsed with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least, part_of_one
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, parameter_groups
from efcil.engine.numerics import TINY
from efcil.paper.prototypes import appended, class_means
from efcil.paper.recipes import COMPARED
from efcil.parts.compensators import apply_mlp, fresh_mlp
from efcil.parts.rehearsal import noise_radius, whole_batch_distance


class Fusion(Method):
    name = "fusion"
    year = 2022
    idea = "reconstruction: old means rehearsed, updated by a learned drift and by their relation to the new classes"
    stores = "class means, one radius"
    shapes: ClassVar[dict[str, str]] = {"means": "m n", "radius": ""}
    recipe = COMPARED

    @dataclass(frozen=True)
    class Options:
        """Settings of this reconstruction."""

        lambda_fd: float = 10.0
        """Weight of the feature distillation, λ_FD."""
        lambda_pr: float = 10.0
        """Weight of the prototypes, λ_pr."""
        gamma: float = 0.5
        """Part of the feature drift in the fused estimate, γ; the rest is that of the semantic relation."""
        tau: float = 0.1
        """Width of the relation to the new classes, as a part of the mean squared distance, τ."""

        def __post_init__(self) -> None:
            at_least(self, lambda_fd=0.0, lambda_pr=0.0, tau=1e-6)
            part_of_one(self, "gamma")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # μ_c, in the space of the last finished task (m, n)
        self.radius = torch.empty(())  # r
        # Only while a task is being learnt:
        self.estimates = torch.empty(0)  # μ̂_c (m, n)
        self.drift_map = nn.ParameterList()  # Γ
        self.new_means = torch.empty(0)  # m_j, the new classes in the old network (C, n)

    def passes_after(self, ctx: Context) -> int:
        """Through the old network once, through the new one after every epoch and at the end."""
        return 1 if ctx.first else 2 + self.training(ctx).epochs

    def before_task(self, ctx: Context) -> None:
        if ctx.old is None:
            return
        (old,) = ctx.extract(ctx.old, augmented=False)
        self.new_means = class_means(old, ctx.columns)
        self.drift_map = nn.ParameterList(fresh_mlp(ctx.model.feature_dim, old, ctx.rng))
        self.estimates = self.means  # nothing has moved yet

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """The backbone, ALL heads, which the prototypes train too, and Γ."""
        return parameter_groups(ctx, self.training(ctx), [*ctx.model.heads, *self.drift_map])

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """CE + λ_FD ‖F − F_old‖ + λ_pr CE(μ̂_c + r ε, c), and ‖Γ(F_old) − F‖² which trains Γ alone."""
        assert ctx.old is not None
        features = ctx.model.features(batch.x)  # F (B, n)
        old_features = ctx.old_features(batch.x)
        old_columns = torch.randint(ctx.known, (len(batch.x),), generator=ctx.rng).to(batch.y)
        noise = torch.randn(features.shape, generator=ctx.rng).to(features)  # ε
        prototypes = self.estimates[old_columns] + self.radius * noise  # (B, n)
        return {
            "ce": F.cross_entropy(ctx.model.logits(features), batch.y),
            "fd": self.options.lambda_fd * whole_batch_distance(features, old_features),
            "prototypes": self.options.lambda_pr * F.cross_entropy(ctx.model.logits(prototypes), old_columns),
            "drift_map": F.mse_loss(apply_mlp(list(self.drift_map), old_features), features.detach()),
        }

    def after_epoch(self, ctx: Context) -> None:
        if not ctx.first:
            (new,) = ctx.extract(ctx.model, augmented=False)
            self.estimates = self.fused(class_means(new, ctx.columns))

    @torch.no_grad()
    def fused(self, moved_means: Tensor) -> Tensor:
        """μ̂_c = γ Γ(μ_c) + (1 − γ) (μ_c + Σ_j a_cj (m'_j − m_j)) for the new classes' means m'_j now, (m, n)."""
        feature_drift = apply_mlp(list(self.drift_map), self.means)
        relation = semantic_relation(self.means, self.new_means, self.options.tau)  # a (m, C)
        semantic_drift = self.means + relation @ (moved_means - self.new_means)
        return torch.lerp(semantic_drift, feature_drift, self.options.gamma)

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=True)
        means = class_means(features, ctx.columns)
        if ctx.first:
            self.radius = noise_radius(features, ctx.columns)
        self.means = appended(self.estimates, means)
        self.estimates = self.new_means = torch.empty(0)
        self.drift_map = nn.ParameterList()

    def progress(self) -> State:
        return {"estimates": self.estimates, **self.drift_map.state_dict(prefix="drift_map.")}

    def load_progress(self, state: State) -> None:
        self.estimates = state["estimates"].to(self.means.device)
        self.drift_map.load_state_dict({str(i): state[f"drift_map.{i}"] for i in range(len(self.drift_map))})


def semantic_relation(means: Tensor, new_means: Tensor, tau: float) -> Tensor:
    """a_cj = softmax_j(−‖μ_c − m_j‖² / τ d), with d the mean of all these squared distances, (m, C)."""
    distances = torch.cdist(means, new_means).square()
    return torch.softmax(-distances / (tau * distances.mean().clamp_min(TINY)), dim=1)
