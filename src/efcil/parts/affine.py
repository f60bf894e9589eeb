"""An affine map that carries Gaussians from the old feature space to the new, its strength chosen without old images.

The images of the current task, seen by both networks, are pairs of features (rows). The map is the regression of the
new ones on the old ones, pulled towards the identity:

    P = (Σ_o + ρ I)⁻¹ (C_on + ρ I),    b = μ_n − μ_o P,    ρ = r · tr(Σ_o) / n

so that r = 0 is least squares, and the larger r, the more a direction that the images hardly show is taken to have
moved as all images have in the mean. How large r should be is seen on the current classes themselves: a part of them in
turn plays the old classes. The map is fitted on the others, and the r wins that brings the old means of the classes
that were left out nearest to their new ones (leave-class-out validation). How far they still are from them is the error
that the means of old classes are expected to have, too; it is shared out over directions as what the map leaves of
single images is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from efcil.engine.numerics import TINY

STRENGTHS = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
FOLDS = 5
ALIKE = 1e-12  # of the squared length of the mean: variances below it are rounding


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs of old and new features, in float64; those of parts add up to those of all."""

    count: float
    old: Tensor  # Σ x, (n,)
    new: Tensor  # Σ y, (n,)
    gram: Tensor  # Σ x xᵀ, (n, n)
    cross: Tensor  # Σ x yᵀ, (n, n)

    @classmethod
    def of(cls, old: Tensor, new: Tensor) -> PairSums:
        x, y = old.double(), new.double()
        return cls(len(x), x.sum(0), y.sum(0), x.T @ x, x.T @ y)

    def without(self, part: PairSums) -> PairSums:
        return PairSums(
            self.count - part.count,
            self.old - part.old,
            self.new - part.new,
            self.gram - part.gram,
            self.cross - part.cross,
        )


@dataclass(frozen=True)
class Fold:
    """A part of the classes: the sums over their images, and the mean of each."""

    sums: PairSums
    old_means: Tensor  # (k, n)
    new_means: Tensor  # (k, n)

    @classmethod
    def of(cls, old: Tensor, new: Tensor, columns: Tensor, classes: Tensor) -> Fold:
        rows = torch.isin(columns, classes)
        return cls(PairSums.of(old[rows], new[rows]), *(means_of(x, columns, classes) for x in (old, new)))


def means_of(features: Tensor, columns: Tensor, classes: Tensor) -> Tensor:
    """The mean of each of these classes, (k, n) in float64."""
    return torch.stack([features[columns == column].double().mean(0) for column in classes])


@dataclass(frozen=True)
class Regression:
    """Everything that the maps of all strengths share: Σ_o = U diag(s) Uᵀ, C_on and both means."""

    values: Tensor  # s, (n,)
    vectors: Tensor  # U, (n, n)
    cross: Tensor  # C_on, (n, n)
    old_mean: Tensor  # (n,)
    new_mean: Tensor  # (n,)

    @classmethod
    def of(cls, sums: PairSums) -> Regression:
        old_mean, new_mean = sums.old / sums.count, sums.new / sums.count
        covariance = sums.gram / sums.count - torch.outer(old_mean, old_mean)
        cross = sums.cross / sums.count - torch.outer(old_mean, new_mean)
        values, vectors = torch.linalg.eigh(covariance)
        return cls(values.clamp_min(0), vectors, cross, old_mean, new_mean)

    def moved(self, features: Tensor, strength: float) -> Tensor:
        """f P + b for features (k, n)."""
        rho = self.rho(strength)
        turned = (features - self.old_mean) @ self.vectors / (self.values + rho)  # few rows, so P itself is not needed
        return turned @ self.vectors.T @ self.cross + rho * turned @ self.vectors.T + self.new_mean

    def rho(self, strength: float) -> Tensor:
        """ρ = r · tr(Σ_o) / n, and more than the rounding that is all that images leave which are alike."""
        return (strength * self.values.mean()).maximum(ALIKE * self.old_mean.square().mean()).clamp_min(TINY)

    def weight(self, strength: float) -> Tensor:
        """P, (n, n)."""
        rho = self.rho(strength)
        inverse = self.vectors / (self.values + rho)  # columns u_i / (s_i + ρ)
        return inverse @ (self.vectors.T @ self.cross + rho * self.vectors.T)


@dataclass(frozen=True)
class AffineMap:
    """f ← f P + b with b = μ_n − μ_o P, for the last features of a row; those that stand before them stay."""

    weight: Tensor  # P, (n, n) in float64
    old_mean: Tensor  # μ_o, (n,)
    new_mean: Tensor  # μ_n, (n,)
    strength: float  # that was chosen
    error: Tensor  # covariance of the error that a carried mean is expected to have, (n, n)

    def moved(self, rows: Tensor) -> Tensor:
        """f P + b of every row."""
        return self._changed(rows, lambda own: (own - self.old_mean) @ self.weight + self.new_mean)

    def turned(self, rows: Tensor) -> Tensor:
        """f P of every row, for directions."""
        return self._changed(rows, lambda own: own @ self.weight)

    def _changed(self, rows: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        own = len(self.weight)
        return torch.cat([rows[..., :-own], change(rows[..., -own:].double()).to(rows)], dim=-1)


def fitted(old: Tensor, new: Tensor, columns: Tensor, strengths: Sequence[float] = STRENGTHS) -> AffineMap:
    """The map of these pairs (N, n), with the strength that serves best for classes (columns, N) that it has not seen.

    A task of a single class has none to leave out: it takes the greatest strength, which is almost a translation, and
    a mean is expected to be off by as much as an image is.
    """
    classes = columns.unique()
    folds = [Fold.of(old, new, columns, classes[place::FOLDS]) for place in range(min(FOLDS, len(classes)))]
    sums = total([fold.sums for fold in folds])
    regression = Regression.of(sums)
    strength, error = (strengths[-1], None) if len(classes) == 1 else chosen(folds, sums, strengths)
    weight = regression.weight(strength)
    left = (old.double() - regression.old_mean) @ weight - (new.double() - regression.new_mean)
    spread = left.T @ left / len(left)
    if error is not None:
        spread *= error / spread.trace().clamp_min(TINY)
    return AffineMap(weight, regression.old_mean, regression.new_mean, strength, spread)


def chosen(folds: list[Fold], sums: PairSums, strengths: Sequence[float]) -> tuple[float, float]:
    """The strength with the least squared distance between carried and true means of left-out classes, and that."""
    errors = torch.zeros(len(strengths), dtype=torch.float64)
    for fold in folds:
        regression = Regression.of(sums.without(fold.sums))
        for place, strength in enumerate(strengths):
            errors[place] += (regression.moved(fold.old_means, strength) - fold.new_means).square().sum().cpu()
    best = int(errors.argmin())
    return strengths[best], float(errors[best]) / sum(len(fold.old_means) for fold in folds)


def total(parts: list[PairSums]) -> PairSums:
    """The sums over several parts together."""
    return PairSums(*(sum(getattr(part, f.name) for part in parts) for f in fields(PairSums)))
