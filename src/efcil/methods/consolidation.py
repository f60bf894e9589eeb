"""What EFC and EFC++ share: the Empirical Feature Matrix, the Gaussian prototypes and their update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from efcil.config import at_least
from efcil.drift import Kernel, compensate
from efcil.efm import efm_loss, empirical_feature_matrix, normalised
from efcil.methods.base import Batch, Context, State
from efcil.prototypes import GaussianPrototypes, gaussian_prototypes


@dataclass(frozen=True)
class ConsolidationOptions:
    """Settings of both methods; the defaults are the paper's."""

    lambda_efm: float = 10.0
    """Weight of the Empirical Feature Matrix in the regulariser, λ of Eq. 10."""
    eta: float = 0.1
    """Weight of the identity (plain feature distillation), η of Eq. 10."""
    normalise_efm: bool = False
    """Divide E by its mean non-zero eigenvalue, so that λ transfers across widths and data sets."""
    drift: Literal["efm", "none", "oracle"] = "efm"
    """How old means follow the backbone: Eqs. 14-15, not at all, or recomputed from old images (analysis only)."""
    kernel: Kernel = "scaled"
    """Distances of Eq. 15 scaled to [0, 1] over all pairs, or literally as printed."""
    sigma: float = 0.2
    """Width of the kernel, σ of Eq. 15."""
    statistics_view: Literal["train", "eval"] = "train"
    """Means, covariances, drift and EFM from augmented images (as the paper's authors do) or plain ones."""

    def __post_init__(self) -> None:
        at_least(self, lambda_efm=0.0, eta=0.0, sigma=1e-6)


class Consolidation:
    """E_t and P_{1:t}: what is remembered after task t, and what is done with it."""

    def __init__(self, options: ConsolidationOptions) -> None:
        self.options = options
        self.prototypes = GaussianPrototypes.none()  # P_{1:t}
        self.efm = torch.empty(0)  # E_t, (n, n)

    @property
    def needs_past(self) -> bool:
        return self.options.drift == "oracle"

    @property
    def augmented(self) -> bool:
        return self.options.statistics_view == "train"

    def efm_loss(self, ctx: Context, batch: Batch, features: Tensor) -> Tensor:
        """L^EFM: the drift from the old network's features of the same images, weighed by E_{t−1} (Eq. 10)."""
        assert ctx.old is not None
        with torch.no_grad():
            old_features = ctx.old.features(batch.x)
        return efm_loss(features - old_features, self.efm, self.options.lambda_efm, self.options.eta)

    def update_prototypes(self, ctx: Context) -> None:
        """P_{1:t−1} ← P_{1:t−1} + Δ(E_{t−1}) (Eqs. 14-15)."""
        assert ctx.old is not None
        means = self.prototypes.means
        ctx.reseed("drift")
        if self.options.drift == "efm":
            old, new = ctx.extract(ctx.old, ctx.model, augmented=self.augmented)
            means = compensate(means, old, new, self.efm, self.options.sigma, self.options.kernel)
        elif self.options.drift == "oracle":
            means = oracle_means(ctx, self.augmented)
        self.prototypes = self.prototypes.with_means(means)

    def remember(self, ctx: Context) -> None:
        """P_{1:t} ← P_{1:t−1} ∪ P_t and E_t ← EFM(X_t, M_t) (Eq. 8)."""
        ctx.reseed("statistics")
        (features,) = ctx.extract(ctx.model, augmented=self.augmented)
        new = gaussian_prototypes(features, ctx.columns)
        self.prototypes = new if ctx.first else self.prototypes.extended(new)
        efm = empirical_feature_matrix(features, ctx.model.weight.detach())
        self.efm = normalised(efm) if self.options.normalise_efm else efm

    def state(self) -> State:
        p = self.prototypes
        return {"means": p.means, "covariance_factors": p.factors, "counts": p.counts, "efm": self.efm}

    def load_state(self, state: State) -> None:
        self.prototypes = GaussianPrototypes(state["means"], state["covariance_factors"], state["counts"])
        self.efm = state["efm"]


def oracle_means(ctx: Context, augmented: bool) -> Tensor:
    """True means of the old classes in the new feature space, from images no real run would have (Table 6)."""
    assert ctx.past is not None
    images, columns = ctx.past
    (features,) = ctx.extract(ctx.model, augmented=augmented, images=images)
    return torch.stack([features[columns == column].mean(0) for column in columns.unique()])
