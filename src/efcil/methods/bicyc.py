"""BiCyc: maps from the old space to the new one and back, learnt with the backbone so that they undo each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms
from efcil.engine.plan import seconds_of
from efcil.engine.progress import Report, unreported
from efcil.parts.bottleneck import Bottlenecked, anti_collapse_loss, widened_map
from efcil.parts.compensators import Gaussians, pushed_forward, standard_draws
from efcil.parts.two_way import TwoWayOptions, two_way_terms

MILESTONES, FACTOR = (0.3, 0.6, 0.9), 0.1  # of the learning rate while the map is adapted
CLIPPED = 1.0  # norm of its gradient, at most


@dataclass(frozen=True)
class Adaptation:
    """Settings of the phase after the epochs, in which the map of the old Gaussians is trained on alone."""

    epochs: int = 100
    """Passes over the current images; 0 uses the map as it was learnt with the backbone."""
    lr: float = 0.01
    """Learning rate of SGD."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 5e-4
    """L2 weight decay."""
    batch_size: int = 256
    """Features per step."""
    views: int = 4
    """Augmented views of the current images whose features are kept and used in turn."""

    def __post_init__(self) -> None:
        at_least(self, epochs=0, lr=0.0, momentum=0.0, weight_decay=0.0, batch_size=1, views=1)

    def rate(self, epoch: int) -> float:
        """The learning rate of this epoch."""
        return float(self.lr * FACTOR ** sum(epoch / self.epochs >= milestone for milestone in MILESTONES))


class BiCyc(Bottlenecked):
    name = "bicyc"
    year = 2026
    idea = "as adagauss, with maps to the old space and back learnt with the backbone until they undo each other"
    freezes_batchnorm = False

    @dataclass(frozen=True)
    class Options(TwoWayOptions):
        """Settings of BiCyc."""

        adaptation: Adaptation = field(default_factory=Adaptation)
        """Settings of the phase in which the map is trained on alone."""
        draws: int = 10_000
        """Draws of each old Gaussian that the map is applied to; more than z has numbers, whatever is set."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, draws=2)

    def fresh_maps(self, size: int) -> dict[str, nn.Module]:
        return {"forth": widened_map(size), "back": widened_map(size)}  # A and D

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + α L_AC + λ_bi L_bi + λ_cyc L_cyc + λ_pair L_pair."""
        new, old = self.projected(ctx.model.features(batch.x)), self.old_projected(ctx, batch.x)
        two_way = two_way_terms(old, new, self.maps["forth"], self.maps["back"], self.options, ctx.rng)
        return {**self.shared_terms(new, batch.y - ctx.known), **two_way}

    def passes_after(self, ctx: Context) -> int:
        settings = self.options.adaptation
        return 1 if ctx.first else 1 + 2 * min(settings.views, settings.epochs)

    def moved(self, ctx: Context, bottleneck: Tensor) -> Gaussians:
        """By A, trained on for itself: each Gaussian becomes that of its draws after the map."""
        o = self.options
        views = [self.views(ctx, bottleneck) for _ in range(min(o.adaptation.views, o.adaptation.epochs))]
        psi = self.maps["forth"]  # its last use
        adapt(psi, views, o.adaptation, o.alpha, o.beta, ctx.rng, ctx.report("adapting the map"))
        noise = self.noise(ctx.rng)
        with torch.no_grad():
            return pushed_forward(self.means, self.covariance_factors.mT.unbind(), psi, noise)

    def noise(self, rng: torch.Generator) -> Tensor:
        """Standard draws, so many that their covariance has full rank."""
        return standard_draws(max(self.options.draws, self.means.shape[1] + 1), self.means, rng)

    def seconds_after(self, ctx: Context) -> float:
        """Steps of the adaptation, and the draws of each old class."""
        if ctx.first:
            return 0.0
        settings, rng, images = self.options.adaptation, torch.Generator(), len(ctx.images)
        one = replace(settings, epochs=1)
        rows = torch.rand(min(settings.batch_size, images), self.means.shape[1]).to(self.means)
        psi = widened_map(self.means.shape[1]).to(self.means)
        noise, factor = self.noise(rng), self.covariance_factors[0].mT

        def step() -> None:
            adapt(psi, [(rows, rows)], one, self.options.alpha, self.options.beta, rng)

        def push() -> None:
            with torch.no_grad():
                pushed_forward(self.means[:1], [factor], psi, noise)

        steps = settings.epochs * math.ceil(images / settings.batch_size)
        return float(steps * seconds_of(step) + len(self.means) * seconds_of(push))


def adapt(
    network: nn.Module,
    views: Sequence[tuple[Tensor, Tensor]],
    settings: Adaptation,
    alpha: float,
    beta: float,
    rng: torch.Generator,
    report: Report = unreported,
) -> None:
    """Train ψ for the least MSE(ψ(z_o), z_n) + α L_AC(ψ(z_o)), on each pair of views (N, S) in turn."""
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(
        parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    for epoch in range(settings.epochs):
        optimizer.param_groups[0]["lr"] = settings.rate(epoch)
        old, new = views[epoch % len(views)]
        for rows in torch.randperm(len(old), generator=rng).to(old.device).split(settings.batch_size):
            led = network(old[rows])
            loss = F.mse_loss(led, new[rows]) + alpha * anti_collapse_loss(led, beta)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIPPED)
            optimizer.step()
        report(epoch + 1, settings.epochs)
