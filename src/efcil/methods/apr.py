"""APR: new images attacked towards old classes are distilled; attacked images then carry means and covariances.

APR is Adversarial Pseudo-Replay; the classifier is the Mahalanobis distance of FeCAM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context, View
from efcil.engine.method import State
from efcil.engine.model import IncrementalModel
from efcil.paper.prototypes import gaussian_prototypes
from efcil.parts.attacks import Limits, attack, nearest_rows, pixel_limits, taken_for
from efcil.parts.compensators import carried
from efcil.parts.distillation import DistillationOptions, Distilling
from efcil.parts.mahalanobis import correlation, inverse_root, mahalanobis_scores, shrunk
from efcil.parts.rehearsal import gaussian_radius

STEP_IMAGES = 1000  # the length of a step of the attack after a task is meant for so many images


class APR(Distilling):
    name = "apr"
    year = 2026
    idea = "new images attacked towards old classes are distilled too, then carry means and covariances; Mahalanobis"
    stores = "class means and covariances"
    shapes: ClassVar[dict[str, str]] = {"means": "m n", "covariance_factors": "m n n"}

    @dataclass(frozen=True)
    class Options(DistillationOptions):
        """Settings of APR."""

        candidates: int = 200
        """Images kept in mind for each old class while a task is learnt, those nearest to its mean."""
        pseudo_batch: int = 64
        """Attacked images in each training step."""
        pseudo_iterations: int = 4
        """Steps of the attack in training."""
        pseudo_step: float = 64.0
        """Length of such a step, over all attacked images together, a."""
        attacked: int = 1000
        """Images attacked for each old class after the task, those nearest to its mean."""
        attack_batch: int = 64
        """Images attacked together after the task."""
        attack_iterations: int = 9
        """Steps of that attack; as many again while no image of a batch succeeds."""
        attack_limit: int = 100
        """Steps after which a batch without success is given up."""
        attack_step: float = 25.0
        """Length of such a step for 1000 images together; b images have √(b / 1000) of it."""
        map_epochs: int = 64
        """Passes over the attacked images to fit the affine map of a class."""
        map_lr: float = 1e-4
        """Learning rate of Adam for that map."""
        map_batch: int = 16
        """Images per step for that map."""
        gamma: float = 24.0
        """Shrinkage of covariances, for predictions only, γ1 = γ2."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, candidates=1, pseudo_batch=0, pseudo_iterations=0, pseudo_step=0.0)
            at_least(self, attacked=1, attack_batch=1, attack_iterations=1, attack_limit=0, attack_step=0.0)
            at_least(self, map_epochs=0, map_lr=0.0, map_batch=1, gamma=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # μ_c (m, n)
        self.covariance_factors = torch.empty(0)  # F_c with F Fᵀ = Σ_c + 1e-5 I (m, n, n), lower triangular
        self.whitenings = torch.empty(0)  # from the factors, not stored (m, n, n)
        # Only while a task is being learnt:
        self.seeds = torch.empty(0)  # that of the recorded view of each image (N,)
        self.candidates = torch.empty(0)  # rows of the images nearest to each old mean (m, k)
        self.radius = torch.empty(())  # r, of the noise on the means that the attack aims at

    # While the task is learnt

    def before_task(self, ctx: Context) -> None:
        if ctx.old is not None:
            self.seeds, self.radius = view_seeds(ctx), gaussian_radius(self.covariance_factors)
            features, count = view_features(ctx, ctx.old, self.seeds), self.options.candidates
            self.candidates = torch.stack([nearest_rows(features, mean, count) for mean in self.means])

    def plan(self, ctx: Context, steps: int) -> list[tuple[View, Tensor]]:
        """Old classes and a candidate of each for every step, in its recorded view."""
        size = self.options.pseudo_batch
        if size == 0:
            return []
        columns = torch.randint(ctx.known, (steps, size), generator=ctx.rng)
        places = torch.randint(self.candidates.shape[1], (steps, size), generator=ctx.rng)
        rows = self.candidates[columns, places]
        return [(recorded(group, self.seeds), each) for group, each in zip(rows, columns, strict=True)]

    def augment(self, ctx: Context, batch: Batch) -> Batch:
        """Add recorded views of candidates, attacked towards μ_c + r ε; their column is that of the old class c."""
        if batch.extra is None or ctx.old is None:
            return batch
        x, columns = batch.extra.x, batch.extra.y
        noise = torch.randn(len(columns), self.means.shape[1], generator=ctx.rng).to(self.means)  # ε
        targets = self.means[columns] + self.radius * noise
        x = attack(ctx.old, x, targets, self.options.pseudo_iterations, self.options.pseudo_step, limits=None)
        return Batch(torch.cat([batch.x, x]), torch.cat([batch.y, columns]), new=len(batch.x))

    # After the epochs

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        new = gaussian_prototypes(features, ctx.columns)
        if ctx.first:
            self.means, self.covariance_factors = new.means, new.full_factors()
        else:
            means, factors = self.transported(ctx)
            self.means = torch.cat([means, new.means])
            self.covariance_factors = torch.cat([factors, new.full_factors()])
        self.whitenings = self.whitened()
        self.seeds = self.candidates = torch.empty(0)

    def transported(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """μ_c + mean(y' − y) and a factor of W_c Σ_c W_cᵀ, y and y' attacked images in the old and new network."""
        assert ctx.old is not None
        seeds, limits = view_seeds(ctx), pixel_limits(ctx)
        features = view_features(ctx, ctx.old, seeds)
        means, factors = [], []
        for column, (mean, factor) in enumerate(zip(self.means, self.covariance_factors, strict=True)):
            rows = nearest_rows(features, mean, self.options.attacked)
            old, new = self.shown_drift(ctx, column, rows, seeds, limits)  # y and y', (k, n) each
            o = self.options
            weight, _ = fit_affine(old, new, o.map_epochs, o.map_lr, o.map_batch, ctx.rng)
            means.append(mean + (new - old).mean(0))
            factors.append(carried(mean[None], [factor.T], weight.T.double())[1][0].T)
        return torch.stack(means), torch.stack(factors)

    def shown_drift(
        self, ctx: Context, column: int, rows: Tensor, seeds: Tensor, limits: Limits
    ) -> tuple[Tensor, Tensor]:
        """Old and new features of the attacked images that succeed, or, if none does, of the images as they were."""
        assert ctx.old is not None
        untouched, succeeded = [], []
        parts = rows.split(self.options.attack_batch)
        for x in recorded_views(ctx, parts, seeds):
            attacked = self.attacked_until_success(ctx.old, x, column, limits)
            if len(attacked):
                succeeded.append(paired_features(ctx, attacked))
            else:
                untouched.append(paired_features(ctx, x))
        old, new = (torch.cat(features) for features in zip(*(succeeded or untouched), strict=True))
        return old, new

    def attacked_until_success(self, old: IncrementalModel, x: Tensor, column: int, limits: Limits) -> Tensor:
        """The images that the old network takes for the class, after as many rounds as one of them needs."""
        step = self.options.attack_step * math.sqrt(len(x) / STEP_IMAGES)
        done = 0
        while True:
            x = attack(old, x, self.means[column], self.options.attack_iterations, step, limits)
            done += self.options.attack_iterations
            success = taken_for(old, x, self.means) == column
            if success.any() or done > self.options.attack_limit:
                return x[success]

    # The classifier

    def whitened(self) -> Tensor:
        """A_c with A_c A_cᵀ the inverse of the shrunk and normalised covariance of each class, (m, n, n)."""
        gamma = self.options.gamma
        covariances = (factor @ factor.T for factor in self.covariance_factors.double())
        roots = [inverse_root(correlation(shrunk(covariance, gamma, gamma))) for covariance in covariances]
        return torch.stack(roots).to(self.covariance_factors.dtype)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance of unit vectors to every class, (N, m)."""
        return mahalanobis_scores(F.normalize(features), F.normalize(self.means), self.whitenings)

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self.whitenings = self.whitened()


# Views that can be had again: each image has a seed of its own, so that nothing but the seeds is kept


def view_seeds(ctx: Context) -> Tensor:
    """A seed for the random view of each current image, (N,)."""
    return torch.randint(2**62, (len(ctx.images),), generator=ctx.rng)


def recorded(rows: Tensor, seeds: Tensor) -> View:
    """The augmented view of each of these images that its seed stands for."""
    return View(rows, seeds[rows])


def recorded_views(ctx: Context, groups: Sequence[Tensor], seeds: Tensor) -> Iterator[Tensor]:
    """The recorded views of these groups of rows in turn, ready for the network."""
    return ctx.prepared(ctx.images, [recorded(rows, seeds) for rows in groups])


@torch.no_grad()
def view_features(ctx: Context, model: IncrementalModel, seeds: Tensor) -> Tensor:
    """Features of the recorded view of every current image, (N, n)."""
    rows = torch.arange(len(ctx.images)).split(256)
    return torch.cat([model.features(x) for x in recorded_views(ctx, rows, seeds)])


@torch.no_grad()
def paired_features(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    """y = f_{t−1}(x) and y' = f_t(x), (B, n) each."""
    assert ctx.old is not None
    return ctx.old.features(x), ctx.model.features(x)


def fit_affine(
    old: Tensor, new: Tensor, epochs: int, lr: float, batch_size: int, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """W and b with the least mean of ‖W y + b − y'‖₂, by Adam from the identity, (n, n) and (n,)."""
    weight = torch.eye(old.shape[1], dtype=old.dtype, device=old.device).requires_grad_()
    bias = old.new_zeros(old.shape[1]).requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(old), generator=rng).to(old.device).split(batch_size):
            missed = F.linear(old[rows], weight, bias) - new[rows]
            optimizer.zero_grad()
            torch.linalg.vector_norm(missed, dim=1).mean().backward()
            optimizer.step()
    return weight.detach(), bias.detach()
