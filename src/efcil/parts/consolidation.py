"""What EFC and EFC++ share: the Empirical Feature Matrix, the Gaussian prototypes and their update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from efcil.config import added_later, at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Method, State
from efcil.paper.covariances import FULL, KeptCovariance
from efcil.paper.drift import Kernel, StreamedDrift, compensate
from efcil.paper.efm import efm_loss, matrix_of, normalised, softmax_covariance_sum
from efcil.paper.prototypes import FULL_FACTORS, GatheredPrototypes, GaussianPrototypes
from efcil.paper.regularizers import (
    feature_distillation,
    fisher_diagonal,
    flat_weights,
    old_head_distillation,
    quadratic_penalty,
    training_batches,
)
from efcil.parts.compensators import COMPENSATORS

Drift = Literal["efm", "kernel", "none", "linear", "ridge", "mlp", "adversarial", "dual-projection", "oracle"]
Regularizer = Literal["efm", "efim", "kd", "fd"]
BEST_WEIGHT: dict[Regularizer, float] = {"efim": 1e5, "kd": 50.0, "fd": 1.0}  # appendix H
TEMPERATURE = 2.0  # of knowledge distillation, as for LwF


@dataclass(frozen=True)
class ConsolidationOptions:
    """Settings of both methods; the defaults are the paper's."""

    lambda_efm: float = 10.0
    """Weight of the Empirical Feature Matrix in the regulariser, λ of Eq. 10."""
    eta: float = 0.1
    """Weight of the identity (plain feature distillation), η of Eq. 10."""
    normalise_efm: bool = False
    """Divide E by its mean non-zero eigenvalue, so that λ transfers across widths and data sets."""
    drift: Drift = "efm"
    """How old means follow the backbone: Eqs. 14-15, the same with plain distances, not at all, by a map fitted on the
    current images, which carries the covariances too, by attacked images, or from old images (analysis only)."""
    covariance: Literal["kept", "oracle"] = "kept"
    """Covariances of old classes: as learnt (or as the map carries them), or recomputed (analysis only, Table 6)."""
    kernel: Kernel = "scaled"
    """Distances of Eq. 15 scaled to [0, 1] over all pairs, or literally as printed."""
    sigma: float = 0.2
    """Width of the kernel, σ of Eq. 15."""
    statistics_view: Literal["train", "eval"] = "train"
    """Means, covariances, drift and EFM from augmented images (as the paper's authors do) or plain ones."""
    kept_covariance: KeptCovariance = added_later(FULL)
    """How much of each covariance is kept."""

    def __post_init__(self) -> None:
        at_least(self, lambda_efm=0.0, eta=0.0, sigma=1e-6)


class Consolidation:
    """E_t and P_{1:t}: what is remembered after task t, and what is done with it.

    ``regularizer`` with its ``weight`` may put another loss in the place of L^EFM; all else stays (Table 4).
    """

    shapes: ClassVar[dict[str, str]] = {**FULL.shapes(), "efm": "n n"}

    def __init__(
        self, options: ConsolidationOptions, regularizer: Regularizer = "efm", weight: float | None = None
    ) -> None:
        self.options = options
        self.regularizer = regularizer
        self.weight = BEST_WEIGHT.get(regularizer, 1.0) if weight is None else weight
        self.prototypes = GaussianPrototypes.none()  # P_{1:t}
        self.efm = torch.empty(0)  # E_t, (n, n)
        self.fisher = torch.empty(0)  # diagonal of F_t, for E-FIM only (P,)

    @property
    def needs_past(self) -> bool:
        return "oracle" in (self.options.drift, self.options.covariance)

    @property
    def augmented(self) -> bool:
        return self.options.statistics_view == "train"

    def efm_loss(self, ctx: Context, batch: Batch, features: Tensor) -> Tensor:
        """L^EFM: the drift from the old network's features of the same images, weighed by E_{t−1} (Eq. 10)."""
        assert ctx.old is not None
        old_features = ctx.old_features(batch.x)
        return efm_loss(features - old_features, self.efm, self.options.lambda_efm, self.options.eta)

    def regularization(self, ctx: Context, batch: Batch, features: Tensor) -> Tensor:
        """L^EFM, or what Table 4 puts in its place: E-FIM (Eq. 4), KD (as LwF) or FD (Eq. 5)."""
        assert ctx.old is not None
        if self.regularizer == "efm":
            return self.efm_loss(ctx, batch, features)
        if self.regularizer == "efim":
            loss = quadratic_penalty(self.fisher, flat_weights(ctx.model), flat_weights(ctx.old).detach())
        elif self.regularizer == "kd":
            loss = old_head_distillation(ctx.old, batch.x, features, TEMPERATURE)
        else:
            old_features = ctx.old_features(batch.x)
            loss = feature_distillation(features, old_features)
        return self.weight * loss

    def update_prototypes(self, ctx: Context) -> None:
        """P_{1:t−1} ← P_{1:t−1} + Δ(E_{t−1}) (Eqs. 14-15), or one of the alternatives."""
        assert ctx.old is not None
        drift, old_ones = self.options.drift, self.prototypes
        ctx.reseed("drift")
        if drift not in ("none", "oracle"):
            if drift in ("efm", "kernel"):
                self.prototypes = replace(old_ones, means=self.drifted_means(ctx))
            else:
                old, new = ctx.extract(ctx.old, ctx.model, augmented=self.augmented)
                means, factors = COMPENSATORS[drift](old, new, old_ones.means, tuple(old_ones.whole_factors()), ctx)
                self.prototypes = old_ones.moved(means, factors)
        if self.needs_past:
            true = oracle_prototypes(ctx, self.augmented, self.options.kept_covariance)
            means = true.means if drift == "oracle" else self.prototypes.means
            covariances = true if self.options.covariance == "oracle" else self.prototypes
            self.prototypes = replace(covariances, means=means, counts=old_ones.counts)

    def drifted_means(self, ctx: Context) -> Tensor:
        """Old means after the drift that the current images show (Eqs. 14-15); of many images only sums are held."""
        assert ctx.old is not None
        efm = self.efm if self.options.drift == "efm" else None
        means, settings = self.prototypes.means, (efm, self.options.sigma, self.options.kernel)
        if len(ctx.images) <= ctx.rows_at_once:
            old, new = ctx.extract(ctx.old, ctx.model, augmented=self.augmented)
            return compensate(means, old, new, *settings)
        sums = StreamedDrift(means, *settings)
        if self.options.kernel == "scaled":
            for _, (old,) in ctx.chunks(ctx.old, augmented=self.augmented):
                sums.look(old)
            ctx.reseed("drift")  # the same views again
        for _, (old, new) in ctx.chunks(ctx.old, ctx.model, augmented=self.augmented):
            sums.add(old, new)
        return sums.moved()

    def remember(self, ctx: Context) -> None:
        """P_{1:t} ← P_{1:t−1} ∪ P_t and E_t ← EFM(X_t, M_t) (Eq. 8)."""
        ctx.reseed("statistics")
        weight = ctx.model.weight.detach()
        gathered = GatheredPrototypes(ctx.columns, weight, self.options.kept_covariance)
        core = weight.new_zeros(len(weight), len(weight))
        for rows, (features,) in ctx.chunks(ctx.model, augmented=self.augmented):
            gathered.add(features, ctx.columns[rows])
            core = core + softmax_covariance_sum(features, weight)
        new = gathered.prototypes()
        self.prototypes = new if ctx.first else self.prototypes.extended(new)
        efm = matrix_of(core, len(ctx.columns), weight)
        self.efm = normalised(efm) if self.options.normalise_efm else efm
        if self.regularizer == "efim":
            self.fisher = fisher_diagonal(ctx.model, training_batches(ctx))

    def state(self) -> State:
        fisher = {"fisher": self.fisher} if self.regularizer == "efim" else {}
        return {**self.prototypes.state(), "efm": self.efm, **fisher}

    def load_state(self, state: State) -> None:
        self.prototypes = GaussianPrototypes.from_state(state, self.options.kept_covariance)
        self.efm = state["efm"]
        self.fisher = state.get("fisher", self.fisher)


class Consolidating(Method):
    """A method whose memory is E_t and P_{1:t}."""

    stores = "class means and covariances, the EFM"
    shapes = Consolidation.shapes
    earlier_shapes = FULL_FACTORS
    memory: Consolidation

    @property
    def needs_past(self) -> bool:
        return self.memory.needs_past

    def passes_after(self, ctx: Context) -> int:
        """For the statistics of the new classes, and through both networks for the drift of the old ones."""
        return 1 if ctx.first or self.options.drift in ("none", "oracle") else 3

    def drawn(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """From N(p_c, Σ_c + 1e-5 I) of every class."""
        columns = torch.arange(len(self.memory.prototypes)).repeat_interleave(per_class)
        return self.memory.prototypes.sample_classes(columns, rng), columns.to(self.memory.prototypes.means.device)

    def class_means(self) -> tuple[Tensor, bool]:
        return self.memory.prototypes.means, self.memory.augmented

    def kept_shapes(self) -> dict[str, str]:
        fisher = {"fisher": "P"} if self.memory.regularizer == "efim" else {}
        return {**self.options.kept_covariance.shapes(), "efm": "n n", **fisher}

    def remove_class(self, column: int) -> None:
        self.memory.prototypes = self.memory.prototypes.removed(column)

    def state(self) -> State:
        return self.memory.state()

    def load_state(self, state: State) -> None:
        self.memory.load_state(state)


def oracle_prototypes(ctx: Context, augmented: bool, kept: KeptCovariance = FULL) -> GaussianPrototypes:
    """The old classes as they really are in the new feature space, from images no real run would have (Table 6)."""
    assert ctx.past is not None
    images, columns = ctx.past
    gathered = GatheredPrototypes(columns, ctx.model.weight.detach(), kept)
    for rows, (features,) in ctx.chunks(ctx.model, augmented=augmented, images=images, columns=columns):
        gathered.add(features, columns[rows])
    return gathered.prototypes()
