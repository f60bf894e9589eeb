"""What AdaGauss and its relatives share: a small space that must not collapse, and a Gaussian of each class in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.data.images import ImageSet
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State, Terms, parameter_groups, turned
from efcil.engine.model import IncrementalModel
from efcil.engine.numerics import JITTER, cholesky
from efcil.paper.prototypes import appended, gaussian_prototypes
from efcil.parts.compensators import Gaussians
from efcil.parts.mahalanobis import correlation, inverse_root, mahalanobis_scores, shrunk
from efcil.rng import uniform


@dataclass(frozen=True)
class BottleneckOptions:
    """Settings of the small space and of the classifier in it."""

    bottleneck: int = 64
    """Length S of the features behind the bottleneck, never more than the backbone has."""
    alpha: float = 1.0
    """Weight of the anti-collapse loss, α."""
    beta: float = 1.0
    """Spread from which on the anti-collapse loss is content, β."""
    gamma: float = 3.0
    """Shrinkage of covariances towards their mean variance, for predictions only."""

    def __post_init__(self) -> None:
        at_least(self, bottleneck=1, alpha=0.0, beta=0.0, gamma=0.0)


class Bottlenecked(Method):
    """A method that learns behind a bottleneck; its loss and how it moves old Gaussians are for the method to say."""

    stores = "a bottleneck layer, class means and covariances behind it"
    shapes: ClassVar = {
        "bottleneck": "bottleneck n",
        "means": "m bottleneck",
        "covariance_factors": "m bottleneck bottleneck",
    }
    shares_first_task = False
    recipe: ClassVar = {"incremental": {"batch_size": 256}}  # the anti-collapse loss needs batches well above S

    def __init__(self, options: Any) -> None:
        self.options = options
        self.bottleneck = torch.empty(0)  # B_t, (S, n)
        self.means = torch.empty(0)  # (m, S)
        self.covariance_factors = torch.empty(0)  # (m, S, S), lower triangular
        # Only while a task is being learnt:
        self.trained = nn.ParameterDict()  # bottleneck and head
        self.maps = nn.ModuleDict()  # networks between the old and the new space

    # While the task is learnt

    def before_task(self, ctx: Context) -> None:
        n = ctx.model.feature_dim
        size = min(self.options.bottleneck, n)
        bottleneck = uniform(size, n, ctx.rng) if ctx.first else self.bottleneck
        rows = ctx.classes * (4 if ctx.first and ctx.config.first.rotation else 1)
        self.trained = nn.ParameterDict({"bottleneck": bottleneck.clone(), "head": uniform(rows, size, ctx.rng)})
        self.maps = nn.ModuleDict(self.fresh_maps(size))
        self.trained.to(ctx.device)
        self.maps.to(ctx.device)

    def fresh_maps(self, size: int) -> dict[str, nn.Module]:
        """The networks that are begun anew in each task and trained with the rest, by name."""
        return {}

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        heads = [*self.trained.parameters(), *self.maps.parameters()]
        return parameter_groups(ctx, self.training(ctx), heads)

    def first_loss(self, ctx: Context, batch: Batch) -> Terms:
        """Cross-entropy, with self-rotation as in every first task, and the anti-collapse loss."""
        x, y = turned(ctx, batch)
        return self.shared_terms(self.projected(ctx.model.features(x)), y, ctx.config.first.label_smoothing)

    def projected(self, features: Tensor) -> Tensor:
        """z = f Bᵀ, the features that are trained, (B, S)."""
        return F.linear(features, self.trained["bottleneck"])

    def old_projected(self, ctx: Context, x: Tensor) -> Tensor:
        """z_{t−1}, the same of the old network behind the old bottleneck, (B, S)."""
        return ctx.old_features(x) @ self.bottleneck.T

    def shared_terms(self, z: Tensor, labels: Tensor, smoothing: float = 0.0) -> Terms:
        """Cross-entropy among the classes of the task + α L_AC."""
        cross_entropy = F.cross_entropy(z @ self.trained["head"].T, labels, label_smoothing=smoothing)
        return {"ce": cross_entropy, "anti_collapse": self.options.alpha * anti_collapse_loss(z, self.options.beta)}

    # After the epochs

    def passes_after(self, ctx: Context) -> int:
        return 1 if ctx.first else 3

    def after_task(self, ctx: Context) -> None:
        bottleneck = self.trained["bottleneck"].detach().clone()
        if ctx.old is not None:
            self.means, factors = self.moved(ctx, bottleneck)
            self.covariance_factors = torch.stack(factors).mT.contiguous()
        (features,) = ctx.extract(ctx.model, augmented=False)
        added = gaussian_prototypes(features @ bottleneck.T, ctx.columns)
        self.means = appended(self.means, added.means)
        self.covariance_factors = appended(self.covariance_factors, added.full_factors())
        self.bottleneck, self.trained, self.maps = bottleneck, nn.ParameterDict(), nn.ModuleDict()

    def moved(self, ctx: Context, bottleneck: Tensor) -> Gaussians:
        """Means and upper triangular factors of the old classes in the new space, behind this bottleneck."""
        raise NotImplementedError

    def views(self, ctx: Context, bottleneck: Tensor, images: ImageSet | None = None) -> tuple[Tensor, Tensor]:
        """A random view of every current image (or of these) in the old and in the new space, (N, S) each."""
        assert ctx.old is not None
        old, new = ctx.extract(ctx.old, ctx.model, augmented=True, images=images)
        return old @ self.bottleneck.T, new @ bottleneck.T

    # The classifier

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance of unit vectors to every class, (N, m)."""
        points, means = F.normalize(features @ self.bottleneck.T), F.normalize(self.means)
        return mahalanobis_scores(points, means, map(self.whitening, self.covariance_factors))

    def whitening(self, factor: Tensor) -> Tensor:
        """A with A Aᵀ the inverse of the shrunk and normalised covariance, (S, S)."""
        covariance = factor.double() @ factor.double().T
        return inverse_root(correlation(shrunk(covariance, self.options.gamma, 0.0))).to(factor.dtype)

    def progress(self) -> State:
        return {**self.trained.state_dict(), **self.maps.state_dict()}

    def load_progress(self, state: State) -> None:
        self.trained.load_state_dict({name: state[name] for name in self.trained})
        self.maps.load_state_dict({name: value for name, value in state.items() if name.split(".")[0] in self.maps})


def widened_map(size: int) -> nn.Sequential:
    """The map between two such spaces that all of them learn: S → 32 S → S with GELU."""
    return nn.Sequential(nn.Linear(size, 32 * size), nn.GELU(), nn.Linear(32 * size, size))


def anti_collapse_loss(z: Tensor, beta: float) -> Tensor:
    """L_AC = −mean_i min(chol(cov(z))_ii, β); zero for a batch too small to have a covariance of full rank."""
    if len(z) <= z.shape[1]:
        return z.new_zeros(())
    covariance = z.double().T.cov().reshape(z.shape[1], -1)
    covariance = covariance + JITTER * torch.eye(len(covariance), dtype=covariance.dtype, device=z.device)
    spread = cholesky(covariance).diagonal()
    return -spread.clamp_max(beta).mean().to(z.dtype)
