"""CARGO: consolidated features, affinely carried Gaussians, and an anchor. A method of this project's own.

It goes the way of EFC++ (Algorithm 1) and changes three of its parts (docs/methods/cargo.md): the network is held back
by a squared feature distillation that is measured in units of the features, so that one weight serves everywhere; the
Gaussians of the old classes are carried, means and covariances, by an affine map whose strength is validated on the
current classes; and the network of the first task stays beside the one that goes on learning, for features that never
move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import added_later, at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms
from efcil.engine.numerics import TINY
from efcil.paper.covariances import FULL, KeptCovariance
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes
from efcil.paper.rebalancing import Rebalancing, rebalance_heads, rebalancing_seconds
from efcil.parts.affine import fitted


class Cargo(Method):
    name = "cargo"
    year = 2026
    idea = "squared distillation without a unit, Gaussians carried by a validated map, the first network as an anchor"
    stores = "class means and covariances, the first network"
    shapes: ClassVar[dict[str, str]] = FULL.shapes()

    @dataclass(frozen=True)
    class Options:
        """Settings of CARGO."""

        damping: float = 1.0
        """Weight of the squared drift of a feature vector, which is divided by the variance within a class."""
        anchor: bool = True
        """Keep the network of the first task beside the one that learns: twice the features, half of them for good."""
        rebalancing: Rebalancing = field(default_factory=Rebalancing)
        """Settings of the re-balancing phase."""
        kept_covariance: KeptCovariance = added_later(FULL)
        """How much of each covariance is kept."""

        def __post_init__(self) -> None:
            at_least(self, damping=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.prototypes = GaussianPrototypes.none()  # P_{1:t}
        self.weight = 0.0  # of ‖δ‖², from the prototypes at the start of a task

    def before_task(self, ctx: Context) -> None:
        if ctx.first:
            return
        if self.options.anchor and not ctx.model.frozen_backbone and len(ctx.model.networks()) == 1:
            ctx.model.add_anchor()
            self.prototypes = seen_twice(self.prototypes)
        own = ctx.model.learner.feature_dim
        self.weight = self.options.damping / max(within_class_variance(self.prototypes, own), TINY)
        with torch.no_grad():
            ctx.model.newest[:, :-own] = 0  # what the anchor says of the new classes is learnt when heads are balanced

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes, and the drift from the old features in units of a class's spread.

        The anchor takes no part: its features do not move, and a step costs what it costs without.
        """
        features, old_features = ctx.model.learner.features(batch.x), ctx.old_features(batch.x)
        newest = ctx.model.newest[:, -features.shape[1] :]
        return {
            "ce": F.cross_entropy(features @ newest.T, batch.y - ctx.known),
            "drift": self.weight * (features - old_features).square().sum(1).mean(),
        }

    def after_task(self, ctx: Context) -> None:
        if ctx.first:
            ctx.reseed("statistics")
            (features,) = ctx.extract(ctx.model, augmented=True)
        else:
            with ctx.phase("drift"):
                features = self.carry(ctx)
            with ctx.phase("re-balancing"):
                rebalance_heads(ctx, self.prototypes, self.options.rebalancing, [features])
        new = gaussian_prototypes(features, ctx.columns, self.options.kept_covariance)
        self.prototypes = new if ctx.first else self.prototypes.extended(new)

    def carry(self, ctx: Context) -> Tensor:
        """Take the Gaussians of all old classes along with the features of the current images, plain and augmented.

        Returns the features of the augmented view, which statistics and re-balancing need too.
        """
        assert ctx.old is not None
        ctx.reseed("drift")
        *anchor, learner = ctx.model.networks()
        networks = [*anchor, ctx.old.learner, learner]
        plain, seen = (ctx.extract(*networks, augmented=augmented) for augmented in (False, True))
        old, new = (torch.cat([plain[place], seen[place]]) for place in (-2, -1))
        self.prototypes = fitted(old, new, ctx.columns.repeat(2)).carry(self.prototypes)
        return torch.cat([*seen[:-2], seen[-1]], dim=1)

    def passes_after(self, first: bool) -> int:
        settings = self.options.rebalancing
        return 1 if first else 5 + min(settings.views, settings.epochs)

    def seconds_after(self, ctx: Context) -> float:
        return 0.0 if ctx.first else rebalancing_seconds(ctx, self.prototypes, self.options.rebalancing)

    def drawn(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """From N(p_c, Σ_c + 1e-5 I) of every class."""
        columns = torch.arange(len(self.prototypes)).repeat_interleave(per_class)
        return self.prototypes.sample_classes(columns, rng), columns.to(self.prototypes.means.device)

    def remove_class(self, column: int) -> None:
        self.prototypes = self.prototypes.removed(column)

    def kept_shapes(self) -> dict[str, str]:
        return self.options.kept_covariance.shapes()  # type: ignore[no-any-return]

    def state(self) -> State:
        return self.prototypes.state()

    def load_state(self, state: State) -> None:
        self.prototypes = GaussianPrototypes.from_state(state, self.options.kept_covariance)


def seen_twice(prototypes: GaussianPrototypes) -> GaussianPrototypes:
    """The Gaussians of features that stand twice in a row, as a network and its copy give them."""
    means = torch.cat([prototypes.means, prototypes.means], dim=1)
    return prototypes.mapped(means, lambda factor: torch.cat([factor, factor], dim=1))


def within_class_variance(prototypes: GaussianPrototypes, own: int) -> float:
    """Mean over the classes of tr(Σ_c), of the last features alone, which are those of the network that learns."""
    return sum(prototypes.variance(index, own) for index in range(len(prototypes))) / max(1, len(prototypes))
