"""EFC++: Elastic Feature Consolidation with Prototype Re-balancing (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from efcil.config import at_least
from efcil.engine.context import Batch, Context
from efcil.engine.method import Terms, newest_cross_entropy
from efcil.errors import UserError
from efcil.paper.rebalancing import Rebalancing, rebalance_heads, rebalancing_seconds
from efcil.parts.consolidation import Consolidating, Consolidation, ConsolidationOptions, Regularizer


class EFCPlusPlus(Consolidating):
    name = "efc++"
    year = 2025
    idea = "Empirical Feature Matrix regulariser, Gaussian prototypes with drift update, prototype re-balancing"

    @dataclass(frozen=True)
    class Options(ConsolidationOptions):
        """Settings of EFC++."""

        regularizer: Regularizer = "efm"
        """L^EFM, or in its place E-FIM (Eq. 4), knowledge distillation or feature distillation (Eq. 5): Table 4."""
        lambda_regularizer: float | None = None
        """Weight of efim, kd or fd; empty: the paper's best, 100000, 50 or 1. L^EFM has lambda_efm and eta instead."""
        rebalancing: Rebalancing = field(default_factory=Rebalancing)
        """Settings of the re-balancing phase."""

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, lambda_regularizer=0.0)
            if self.regularizer == "efm" and self.lambda_regularizer is not None:
                raise UserError("lambda_regularizer weighs efim, kd or fd; for efm set lambda_efm and eta.")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.memory = Consolidation(options, options.regularizer, options.lambda_regularizer)  # E_t and P_{1:t}

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Backbone training: L^train = L^EFM + L^ce(f(X; θ_t); W_{t−1:t}) (Eq. 12)."""
        features = ctx.model.features(batch.x)
        return {
            "ce": newest_cross_entropy(ctx, features, batch.y),
            self.options.regularizer: self.memory.regularization(ctx, batch, features),
        }

    def after_task(self, ctx: Context) -> None:
        if not ctx.first:
            with ctx.phase("drift"):
                self.memory.update_prototypes(ctx)  # prototype update with E_{t−1} (Eqs. 14-15)
            with ctx.phase("re-balancing"):
                self.rebalance(ctx)  # prototype re-balancing of W_t (Eq. 13)
        self.memory.remember(ctx)  # P_{1:t} ← P_{1:t−1} ∪ P_t and E_t ← EFM(X_t, M_t)

    def passes_after(self, ctx: Context) -> int:
        settings = self.options.rebalancing
        return super().passes_after(ctx) + (0 if ctx.first else min(settings.views, settings.epochs))

    def seconds_after(self, ctx: Context) -> float:
        return 0.0 if ctx.first else rebalancing_seconds(ctx, self.memory.prototypes, self.options.rebalancing)

    def rebalance(self, ctx: Context) -> None:
        rebalance_heads(ctx, self.memory.prototypes, self.options.rebalancing)
