"""AdaGauss: Gaussians in a small, uncollapsed feature space, adapted task by task, and the Mahalanobis distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, parameter_groups, turned
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import JITTER, cholesky
from efcil.paper.prototypes import appended, gaussian_prototypes
from efcil.parts.compensators import mlp
from efcil.parts.mahalanobis import correlation, inverse_root, mahalanobis_scores, shrunk
from efcil.rng import uniform


class AdaGauss(Method):
    name = "adagauss"
    year = 2024
    idea = "projected feature distillation against collapse in a 64-d space, Gaussians adapted by a learned map"
    stores = "a bottleneck layer, class means and covariances behind it"
    shapes: ClassVar = {
        "bottleneck": "bottleneck n",
        "means": "m bottleneck",
        "covariance_factors": "m bottleneck bottleneck",
    }
    shares_first_task = False
    recipe: ClassVar = {"incremental": {"batch_size": 256}}  # the anti-collapse loss needs batches well above S

    @dataclass(frozen=True)
    class Options:
        """Settings of AdaGauss."""

        bottleneck: int = 64
        """Length S of the features behind the bottleneck, never more than the backbone has."""
        alpha: float = 1.0
        """Weight of the anti-collapse loss, α."""
        beta: float = 1.0
        """Spread from which on the anti-collapse loss is content, β."""
        lambda_distillation: float = 10.0
        """Weight of the projected distillation, λ."""
        gamma: float = 3.0
        """Shrinkage of covariances towards their mean variance, for predictions only."""

        def __post_init__(self) -> None:
            at_least(self, bottleneck=1, alpha=0.0, beta=0.0, lambda_distillation=0.0, gamma=0.0)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.bottleneck = torch.empty(0)  # B_t, (S, n)
        self.means = torch.empty(0)  # (m, S)
        self.covariance_factors = torch.empty(0)  # (m, S, S), lower triangular
        self.trained = nn.ParameterDict()  # bottleneck and head of the task that is being learnt
        self.distiller = nn.Sequential()  # φ

    def before_task(self, ctx: Context) -> None:
        n = ctx.model.feature_dim
        size = min(self.options.bottleneck, n)
        bottleneck = uniform(size, n, ctx.rng) if ctx.first else self.bottleneck
        rows = ctx.classes * (4 if ctx.first and ctx.config.first.rotation else 1)
        self.trained = nn.ParameterDict({"bottleneck": bottleneck.clone(), "head": uniform(rows, size, ctx.rng)})
        self.distiller = nn.Sequential(nn.Linear(size, 32 * size), nn.GELU(), nn.Linear(32 * size, size))
        self.trained.to(ctx.device)
        self.distiller.to(ctx.device)

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        heads = [*self.trained.parameters(), *self.distiller.parameters()]
        return parameter_groups(ctx, self.training(ctx), heads)

    def first_loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy, with self-rotation as in every first task, and the anti-collapse loss."""
        x, y = turned(ctx, batch)
        return self.shared_terms(self.projected(ctx.model.features(x)), y, ctx.config.first.label_smoothing)

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy among the new classes + α L_AC + λ MSE(φ(z_t), z_{t−1})."""
        z = self.projected(ctx.model.features(batch.x))
        old = ctx.old_features(batch.x) @ self.bottleneck.T
        distillation = self.options.lambda_distillation * F.mse_loss(self.distiller(z), old)
        return {**self.shared_terms(z, batch.y - ctx.known), "distillation": distillation}

    def projected(self, features: Tensor) -> Tensor:
        """z = f Bᵀ, the features that are trained, (B, S)."""
        return F.linear(features, self.trained["bottleneck"])

    def shared_terms(self, z: Tensor, labels: Tensor, smoothing: float = 0.0) -> Terms:
        cross_entropy = F.cross_entropy(z @ self.trained["head"].T, labels, label_smoothing=smoothing)
        return {"ce": cross_entropy, "anti_collapse": self.options.alpha * anti_collapse_loss(z, self.options.beta)}

    def passes_after(self, first: bool) -> int:
        return 1 if first else 3

    def after_task(self, ctx: Context) -> None:
        bottleneck = self.trained["bottleneck"].detach().clone()
        if ctx.old is not None:
            old, new = ctx.extract(ctx.old, ctx.model, augmented=True)
            pairs = old @ self.bottleneck.T, new @ bottleneck.T
            self.means, factors = mlp(*pairs, self.means, self.covariance_factors.mT.unbind(), ctx)
            self.covariance_factors = torch.stack(factors).mT.contiguous()
        (features,) = ctx.extract(ctx.model, augmented=False)
        added = gaussian_prototypes(features @ bottleneck.T, ctx.columns)
        self.means = appended(self.means, added.means)
        self.covariance_factors = appended(self.covariance_factors, added.full_factors())
        self.bottleneck, self.trained, self.distiller = bottleneck, nn.ParameterDict(), nn.Sequential()

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance of unit vectors to every class, (N, m)."""
        points, means = F.normalize(features @ self.bottleneck.T), F.normalize(self.means)
        return mahalanobis_scores(points, means, map(self.whitening, self.covariance_factors))

    def whitening(self, factor: Tensor) -> Tensor:
        """A with A Aᵀ the inverse of the shrunk and normalised covariance, (S, S)."""
        covariance = factor.double() @ factor.double().T
        return inverse_root(correlation(shrunk(covariance, self.options.gamma, 0.0))).to(factor.dtype)

    def progress(self) -> State:
        return {**self.trained.state_dict(), **self.distiller.state_dict(prefix="distiller.")}

    def load_progress(self, state: State) -> None:
        own = {name.removeprefix("distiller."): value for name, value in state.items() if name.startswith("distiller.")}
        self.trained.load_state_dict({name: state[name] for name in ("bottleneck", "head")})
        self.distiller.load_state_dict(own)


def anti_collapse_loss(z: Tensor, beta: float) -> Tensor:
    """L_AC = −mean_i min(chol(cov(z))_ii, β); zero for a batch too small to have a covariance of full rank."""
    if len(z) <= z.shape[1]:
        return z.new_zeros(())
    covariance = z.double().T.cov().reshape(z.shape[1], -1)
    covariance = covariance + JITTER * torch.eye(len(covariance), dtype=covariance.dtype, device=z.device)
    spread = cholesky(covariance).diagonal()
    return -spread.clamp_max(beta).mean().to(z.dtype)
