"""GATF: two-way maps as in BiCyc, the one for old Gaussians a ridge map that follows the backbone while it trains.

GATF is Geometry-Anchored Transport. It is here as its authors' program does it: the map is affine, see docs/methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from efcil.config import at_least, part_of_one
from efcil.data.images import ImageSet
from efcil.engine.context import Batch, Context
from efcil.engine.method import State, Terms
from efcil.engine.numerics import JITTER, triangular
from efcil.parts.bottleneck import Bottlenecked, widened_map
from efcil.parts.compensators import Gaussians, carried
from efcil.parts.two_way import TwoWayOptions, two_way_terms


class GATF(Bottlenecked):
    name = "gatf"
    year = 2026
    idea = "two-way maps as in bicyc, Gaussians carried by a ridge map that is averaged while the backbone trains"
    freezes_batchnorm = False

    @dataclass(frozen=True)
    class Options(TwoWayOptions):
        """Settings of GATF."""

        rho: float = 1e-2
        """Ridge penalty of the anchor, in the unit of the variances, ρ."""
        anchor: Literal["moving", "final"] = "moving"
        """Carry Gaussians by the average of the estimates during training, or by one estimate at its end."""
        anchor_interval: float = 0.05
        """Part of the epochs between two estimates, at least one epoch."""
        anchor_keep: float = 0.9
        """Share of the average that stays when an estimate joins it after such an interval."""
        anchor_images: int = 12_800
        """Current images of an estimate, at most."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, rho=1e-9, anchor_interval=1e-3, anchor_images=1)
            part_of_one(self, "anchor_keep")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        # Only while a task is being learnt:
        self.anchor = torch.empty(0)  # P̄, (S, S)
        self.shift = torch.empty(0)  # b̄, (S,)
        self.epoch = 0

    # While the task is learnt

    def fresh_maps(self, size: int) -> dict[str, nn.Module]:
        return {"back": widened_map(size)}  # D

    def before_task(self, ctx: Context) -> None:
        super().before_task(ctx)
        if not ctx.first:
            self.trained["offset"] = nn.Parameter(self.means.new_zeros(self.means.shape[1]))  # β

    def prepare(self, ctx: Context) -> bool:
        """The first estimate of the anchor, when the new network is still the old one."""
        if ctx.old is None:
            return False
        (features,) = ctx.extract(ctx.old, augmented=True, images=self.some_images(ctx))
        old = features @ self.bottleneck.T
        self.anchor, self.shift = ridge_map(old, old, self.options.rho)
        return True

    def forth(self, z: Tensor) -> Tensor:
        """A(z) = z P̄ + b̄ + β, (B, S)."""
        led: Tensor = z @ self.anchor + self.shift + self.trained["offset"]
        return led

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + α L_AC + λ_bi L_bi + λ_cyc L_cyc + λ_pair L_pair."""
        new, old = self.projected(ctx.model.features(batch.x)), self.old_projected(ctx, batch.x)
        two_way = two_way_terms(old, new, self.forth, self.maps["back"], self.options, ctx.rng)
        return {**self.shared_terms(new, batch.y - ctx.known), **two_way}

    def after_epoch(self, ctx: Context) -> None:
        """Let the anchor follow: P̄ ← κ P̄ + (1 − κ) P, and b̄ alike; not after the last epoch."""
        self.epoch += 1
        epochs, interval = self.training(ctx).epochs, self.interval(ctx)
        if ctx.first or self.epoch % interval or self.epoch >= epochs:
            return
        pace = interval / (self.options.anchor_interval * epochs)  # the same for any number of epochs
        keep = self.options.anchor_keep**pace
        anchor, shift = self.estimated(ctx, self.trained["bottleneck"].detach())
        self.anchor, self.shift = torch.lerp(anchor, self.anchor, keep), torch.lerp(shift, self.shift, keep)

    def interval(self, ctx: Context) -> int:
        """Epochs between two estimates."""
        interval: int = max(1, round(self.options.anchor_interval * self.training(ctx).epochs))
        return interval

    def some_images(self, ctx: Context) -> ImageSet:
        """All current images, or as many of them as an estimate may use."""
        if len(ctx.images) <= self.options.anchor_images:
            return ctx.images
        return ctx.images.subset(torch.randperm(len(ctx.images), generator=ctx.rng)[: self.options.anchor_images])

    def estimated(self, ctx: Context, bottleneck: Tensor) -> tuple[Tensor, Tensor]:
        """P and b as the current images show them, behind this bottleneck."""
        return ridge_map(*self.views(ctx, bottleneck, self.some_images(ctx)), self.options.rho)

    def progress(self) -> State:
        anchor = {"anchor": self.anchor, "shift": self.shift} if len(self.anchor) else {}
        return {**super().progress(), **anchor, "epoch": torch.tensor(self.epoch)}

    def load_progress(self, state: State) -> None:
        super().load_progress(state)
        self.epoch = int(state["epoch"])
        if "anchor" in state:
            self.anchor, self.shift = (state[name].to(self.means.device) for name in ("anchor", "shift"))

    def passes_after(self, ctx: Context) -> int:
        """The first estimate looks through the old network, each further one through both; the new classes once."""
        if ctx.first:
            return 1
        further: int = max(0, self.training(ctx).epochs - 1) // self.interval(ctx) + (self.options.anchor == "final")
        part: float = min(1.0, self.options.anchor_images / len(ctx.images))
        return 1 + math.ceil(part * (1 + 2 * further))

    # After the epochs

    def after_task(self, ctx: Context) -> None:
        super().after_task(ctx)
        self.anchor, self.shift, self.epoch = torch.empty(0), torch.empty(0), 0

    def moved(self, ctx: Context, bottleneck: Tensor) -> Gaussians:
        """μ ← μ P̄ + b̄ + β and Σ ← P̄ᵀ Σ P̄ + 1e-5 I, which the map makes of draws without number."""
        if self.options.anchor == "final":
            anchor, shift = self.estimated(ctx, bottleneck)
        else:
            anchor, shift = self.anchor, self.shift + self.trained["offset"].detach()
        means, factors = carried(self.means, self.covariance_factors.mT.unbind(), anchor.double())
        jitter = math.sqrt(JITTER) * torch.eye(len(anchor), dtype=means.dtype, device=means.device)
        return means + shift, tuple(triangular(torch.cat([factor, jitter])) for factor in factors)


def ridge_map(old: Tensor, new: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """P = (Σ_o + ρ I)⁻¹ C_on and b = μ_n − μ_o P with covariances divided by N, (S, S) and (S,)."""
    x, y = old.double(), new.double()
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    covariance.diagonal().add_(rho)
    anchor = torch.linalg.solve(covariance, centred.T @ (y - y.mean(0)) / len(x))
    return anchor.to(old.dtype), (y.mean(0) - x.mean(0) @ anchor).to(old.dtype)
