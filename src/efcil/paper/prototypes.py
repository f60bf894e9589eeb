"""Gaussian prototypes (§4.1): what is remembered of a class instead of its images.

Each class keeps the mean of its features, a factor C of their covariance (CᵀC = Σ) and its number of images. A class
of N images has a factor of N − 1 rows, never more than there are features: it says exactly what the matrix Σ says, and
30 images of 1,280 features need 0.15 MB where the matrix needs 6.5 MB. Drawing is one product per class. Less than all
of a covariance can be kept (covariances.py); everything here works with whatever is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from efcil.engine.numerics import JITTER, above_rounding, cholesky, contrasts, triangular
from efcil.errors import UserError
from efcil.paper.covariances import FULL, KeptCovariance, Pooled, halved, leading

FULL_FACTORS: dict[str, str | None] = {"covariance_factors": "m n n", "factor_rows": None}  # in files of version 1


@dataclass(frozen=True)
class GaussianPrototypes:
    """N(p_c, Σ_c + 1e-5 I) for every class seen, in the order of the classifier's columns."""

    means: Tensor  # (m, n)
    factors: tuple[Tensor, ...]  # C_c as it is kept: at most (n, n) each, or as ``kept`` says
    counts: Tensor  # (m,) images each class was learnt from
    kept: KeptCovariance = FULL
    rest: Tensor | None = None  # ρ_c, the variance beside CᵀC in every direction, if low-rank (m,)
    scales: Tensor | None = None  # what each of the factors has to be multiplied with, if in float16

    @classmethod
    def none(cls) -> GaussianPrototypes:
        """Before the first task."""
        return cls(torch.zeros(0, 0), (), torch.zeros(0, dtype=torch.int64))

    @classmethod
    def of(
        cls, means: Tensor, factors: Iterable[Tensor], counts: Tensor, kept: KeptCovariance = FULL
    ) -> GaussianPrototypes:
        """What is to be kept of Gaussians with these whole factors, of which one is looked at at a time."""
        keeping = Keeping(means, counts, kept)
        for index, factor in enumerate(factors):
            keeping.put(index, factor)
        return keeping.prototypes()

    def __len__(self) -> int:
        return len(self.means)

    def __deepcopy__(self, memo: dict[int, Any]) -> GaussianPrototypes:
        """The same: nothing of it is ever changed in its place, and for a thousand classes it is a gigabyte."""
        return self

    def extended(self, other: GaussianPrototypes) -> GaussianPrototypes:
        """P_{1:t} ← P_{1:t−1} ∪ P_t; a covariance that all share becomes the average over all images."""
        means, counts = (torch.cat([getattr(one, name) for one in (self, other)]) for name in ("means", "counts"))
        if self.kept.kind == "shared":
            both = Pooled(means)
            for one in (self, other):
                both.add(one.factor(0), float((one.counts - 1).sum()))
            factor = both.factor() if both.weight else self.factor(0)  # single images say nothing of a spread
            return stored(means, [factor], counts, self.kept)
        return GaussianPrototypes(
            means, self.factors + other.factors, counts, self.kept, *map(joined, self._numbers(), other._numbers())
        )

    def removed(self, column: int) -> GaussianPrototypes:
        """As if this class had never been learnt; what it gave to a covariance that all share stays in that."""
        kept = [index for index in range(len(self)) if index != column]
        if self.kept.kind == "shared":
            return replace(self, means=self.means[kept], counts=self.counts[kept])
        numbers = (None if own is None else own[kept] for own in self._numbers())
        factors = tuple(self.factors[index] for index in kept)
        return GaussianPrototypes(self.means[kept], factors, self.counts[kept], self.kept, *numbers)

    def _numbers(self) -> tuple[Tensor | None, Tensor | None]:
        return self.rest, self.scales

    def factor(self, index: int) -> Tensor:
        """The rows that are kept of one class, as numbers to calculate with."""
        place = 0 if self.kept.kind == "shared" else index
        stored = self.factors[place]
        return stored if self.scales is None else stored.to(self.means.dtype) * self.scales[place].to(self.means)

    def whole_factor(self, index: int) -> Tensor:
        """C with CᵀC = Σ_c, whatever is kept of it."""
        factor = self.factor(index)
        if self.kept.kind == "diagonal":
            return factor[0].diag()
        if self.rest is None or self.rest[index] == 0:
            return factor
        identity = torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)
        return triangular(torch.cat([factor, self.rest[index].sqrt() * identity]))

    def whole_factors(self) -> Iterator[Tensor]:
        """C with CᵀC = Σ_c of every class, one at a time."""
        return map(self.whole_factor, range(len(self)))

    def covariance(self, index: int) -> Tensor:
        """Σ_c of one class (n, n)."""
        factor = self.whole_factor(index)
        return factor.T @ factor

    def moved(self, means: Tensor, factors: Iterable[Tensor]) -> GaussianPrototypes:
        """The same classes with these means and whole factors, of which as much is kept as before."""
        return self.of(means, factors, self.counts, self.kept)

    def full_factors(self) -> Tensor:
        """Lower triangular F_c with F Fᵀ = Σ_c + 1e-5 I, for methods that need an invertible one, (m, n, n)."""
        jitter = JITTER * torch.eye(self.means.shape[1], dtype=torch.float64, device=self.means.device)
        factors = (factor.double() for factor in self.whole_factors())
        return torch.stack([cholesky(factor.T @ factor + jitter).to(self.means) for factor in factors])

    def sample_classes(self, columns: Tensor, rng: torch.Generator) -> Tensor:
        """One draw p_c + z C_c + √(1e-5 + ρ_c) ε for each entry of ``columns`` (k,), so (k, n).

        It is one from N(p_c, Σ_c + 1e-5 I); a diagonal covariance needs no z.
        """
        noise = torch.randn(len(columns), self.means.shape[1], generator=rng).to(self.means)  # ε
        drawn = noise.mul_(self._deviations(columns)).add_(self.means[columns])
        if self.kept.kind == "diagonal":
            return drawn
        if self.kept.kind == "shared":
            return self._spread(drawn, 0, rng)
        order = columns.argsort(stable=True)  # all draws of a class are one product
        classes, counts = columns.unique(return_counts=True)
        for column, rows in zip(classes.tolist(), order.split(counts.tolist()), strict=True):
            drawn[rows] = self._spread(drawn[rows], column, rng)
        return drawn

    def _deviations(self, columns: Tensor) -> Tensor | float:
        """What noise in every feature is multiplied with, (k, n), (k, 1) or the same for all draws."""
        if self.kept.kind == "diagonal":
            variances = torch.cat([self.factor(index) for index in range(len(self))]).square()
            return (variances + JITTER).sqrt()[columns]
        return math.sqrt(JITTER) if self.rest is None else (self.rest + JITTER).sqrt()[columns, None]

    def _spread(self, centres: Tensor, index: int, rng: torch.Generator) -> Tensor:
        """centres + z C_c, (k, n)."""
        factor = self.factor(index)
        z = torch.randn(len(centres), len(factor), generator=rng).to(factor)
        return torch.addmm(centres, z, factor)

    def state(self) -> dict[str, Tensor]:
        """As named tensors, in the shapes that ``kept`` declares; the factors one under the other."""
        nothing = self.means[:0].half() if self.kept.half else self.means[:0]
        state = {"means": self.means, "covariance_factors": torch.cat([nothing, *self.factors])}
        if self.kept.kind in ("full", "low-rank"):
            lengths = [len(factor) for factor in self.factors]
            state["factor_rows"] = torch.tensor(lengths, dtype=torch.int64, device=self.counts.device)
        state["counts"] = self.counts
        more = zip(("remaining_variances", "factor_scales"), self._numbers(), strict=True)
        return state | {name: numbers for name, numbers in more if numbers is not None}

    @classmethod
    def from_state(cls, state: dict[str, Tensor], kept: KeptCovariance = FULL) -> GaussianPrototypes:
        """The inverse of state(); files of version 1 have a lower triangular F with F Fᵀ = Σ + 1e-5 I of each class."""
        means, factors, counts = (state[name] for name in ("means", "covariance_factors", "counts"))
        if factors.ndim == 3:
            return cls.of(means, (without_jitter(factor) for factor in factors), counts, kept)
        rows = {"shared": [len(factors)], "diagonal": [1] * len(factors)}.get(kept.kind)
        if rows is None:
            rows = state["factor_rows"].tolist()
            if min(rows, default=0) < 0 or sum(rows) != len(factors):
                raise UserError(f"factor_rows must share out {len(factors)} rows, not {rows!s:.60}; restore the file.")
        numbers = state.get("remaining_variances"), state.get("factor_scales")
        return cls(means, tuple(map(by_columns, factors.split(rows))), counts, kept, *numbers)


class Keeping:
    """Gaussians whose whole factors come one by one, of each of which no more stays than is to be kept."""

    def __init__(self, means: Tensor, counts: Tensor, kept: KeptCovariance) -> None:
        self.means, self.counts, self.kept = means, counts, kept
        self.rows: dict[int, Tensor] = {}
        self.rest = means.new_zeros(len(means)) if kept.kind == "low-rank" else None
        self.average = Pooled(means)

    def put(self, index: int, factor: Tensor) -> None:
        """The factor of one class."""
        if self.kept.kind == "shared":
            self.average.add(factor, float(self.counts[index] - 1))
        elif self.rest is not None:
            self.rows[index], self.rest[index] = leading(factor, self.kept.rank)
        elif self.kept.kind == "diagonal":
            self.rows[index] = factor.square().sum(0, keepdim=True).sqrt()
        else:
            self.rows[index] = factor

    def prototypes(self) -> GaussianPrototypes:
        """Once all have come, in whatever order."""
        rows = [self.rows[index] for index in sorted(self.rows)]
        if self.kept == FULL:
            return GaussianPrototypes(self.means, tuple(rows), self.counts)
        rows = [self.average.factor()] if self.kept.kind == "shared" else rows
        return stored(self.means, rows, self.counts, self.kept, self.rest)


def stored(
    means: Tensor, rows: Iterable[Tensor], counts: Tensor, kept: KeptCovariance, rest: Tensor | None = None
) -> GaussianPrototypes:
    """Gaussians of which these rows are kept, in as many bits as wanted."""
    laid = map(by_columns, rows)
    if not kept.half:
        return GaussianPrototypes(means, tuple(laid), counts, kept, rest)
    pairs = [halved(part) for part in laid]
    scales = torch.stack([scale for _, scale in pairs])
    return GaussianPrototypes(means, tuple(part for part, _ in pairs), counts, kept, rest, scales)


def by_columns(factor: Tensor) -> Tensor:
    """The same numbers, laid out in memory as decompositions leave them: products with them round alike then."""
    return factor.T.contiguous().T


def joined(old: Tensor | None, new: Tensor | None) -> Tensor | None:
    """One number for each class, of the old ones and the new, where there are any."""
    return None if old is None or new is None else torch.cat([old, new])


def without_jitter(full: Tensor) -> Tensor:
    """C with CᵀC = Σ, no more rows than Σ has directions, for F with F Fᵀ = Σ + 1e-5 I, (n, n)."""
    values, vectors = torch.linalg.eigh(full.double() @ full.double().T)
    values = values - JITTER
    kept = above_rounding(values, full.dtype)
    return triangular((vectors[:, kept] * values[kept].sqrt()).T).to(full.dtype)


def appended(old: Tensor, new: Tensor) -> Tensor:
    """What is kept of the old classes followed by that of the new ones; before the first task there is none."""
    return torch.cat([old, new]) if len(old) else new


def class_means(features: Tensor, columns: Tensor) -> Tensor:
    """Mean feature vector of each class, classes in the order of their columns, (m, n)."""
    return torch.stack([features[columns == column].mean(0) for column in columns.unique()])


def gaussian_prototypes(features: Tensor, columns: Tensor, kept: KeptCovariance = FULL) -> GaussianPrototypes:
    """Mean and unbiased covariance of each class, classes in the order of their columns.

    A class of one image has no covariance of its own and takes the average of the others in its task.
    """
    gathered = GatheredPrototypes(columns, features, kept)
    gathered.add(features, columns)
    return gathered.prototypes()


class GatheredPrototypes:
    """gaussian_prototypes() of features that come in chunks: what is kept of a class is made once it is complete.

    Chunks in the order of the classes leave one class open at a time; in any other order the result is the same, up to
    rounding, and takes more memory meanwhile.
    """

    def __init__(self, columns: Tensor, like: Tensor, kept: KeptCovariance) -> None:
        """Of so many images of each class as these columns (N,) have, with features like these."""
        self.classes, self.counts = columns.unique(return_counts=True)
        means = like.new_empty(len(self.classes), like.shape[1])
        self.keeping = Keeping(means, self.counts, kept)
        self.average = Pooled(means) if (self.counts == 1).any() else None
        self.single = (self.counts == 1).nonzero().flatten().tolist()
        self.open: dict[int, Moments] = {}

    def add(self, features: Tensor, columns: Tensor) -> None:
        """Further images."""
        for column in columns.unique():
            index = int((self.classes == column).nonzero())
            part = Moments.of(features[columns == column])
            if index in self.open:
                part = self.open.pop(index).merged(part)
            if part.images == self.counts[index]:
                self._finish(index, part)
            else:
                self.open[index] = part

    def _finish(self, index: int, part: Moments) -> None:
        means = self.keeping.means
        means[index] = part.mean
        if part.images > 1:
            factor = part.factor.to(means.dtype)
            self.keeping.put(index, factor)
            if self.average is not None:
                self.average.add(factor, 1.0)

    def prototypes(self) -> GaussianPrototypes:
        """Once all images have come."""
        if self.average is not None:
            average = self.average.factor()
            for index in self.single:
                self.keeping.put(index, average)
        return self.keeping.prototypes()


class Moments(NamedTuple):
    """Number, mean and a factor of the unbiased covariance of features of one class, in float64."""

    images: int
    mean: Tensor  # (n,)
    factor: Tensor  # at most (n, n)

    @classmethod
    def of(cls, features: Tensor) -> Moments:
        part = features.double()
        mean = part.mean(0)
        return cls(len(part), mean, triangular(contrasts(part - mean) / math.sqrt(max(1, len(part) - 1))))

    def merged(self, other: Moments) -> Moments:
        """(N − 1) Σ = (a − 1) Σ_a + (b − 1) Σ_b + ab/N (μ_b − μ_a)(μ_b − μ_a)ᵀ for N = a + b."""
        a, b = self.images, other.images
        gap = other.mean - self.mean
        parts = [
            math.sqrt(a - 1) * self.factor,
            math.sqrt(b - 1) * other.factor,
            math.sqrt(a * b / (a + b)) * gap[None],
        ]
        return Moments(a + b, self.mean + gap * (b / (a + b)), triangular(torch.cat(parts) / math.sqrt(a + b - 1)))
