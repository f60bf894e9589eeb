"""Gaussians that are carried from network to network, and the discriminant that follows from them.

Of each class its mean μ_c and its leading directions D_c are kept (D_cᵀD_c is the part of its covariance that stands
out), of all classes together one covariance Σ. When the network has moved, an affine map takes them along, and Σ grows
by the error that a carried mean is expected to have: what cannot be known any more weighs less. A class is told by

    log N(z; μ_c, Σ_c)   with   Σ_c = B + α(1 − s) D_cᵀD_c,   B = (1 − s)(1 − α)Σ + s τ I

where α is how much a class goes its own way, s the shrinkage and τ the mean variance of a feature in (1 − α)Σ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from efcil.engine.numerics import TINY, cholesky
from efcil.paper.covariances import leading
from efcil.paper.prototypes import Moments
from efcil.parts.affine import AffineMap

LEAST_VARIANCE = 1e-3  # of a squared length; 0.4 to 0.6 was measured for images of CIFAR-100
FEATURES_PER_DEGREE = 256  # scores of 1,792 features are too sure by about 7 (cargo.md); taken to be in proportion


@dataclass(frozen=True)
class CarriedGaussians:
    """What is remembered of all classes, in the order of the classifier's columns."""

    means: Tensor  # μ_c, (m, n)
    directions: Tensor  # D_c, (m, k, n); rows of zeros where a class has fewer than k + 1 images
    covariance: Tensor  # Σ, (n, n): over classes, each weighing as much as it has images but one
    counts: Tensor  # (m,)

    @classmethod
    def none(cls) -> CarriedGaussians:
        """Before the first task."""
        return cls(torch.zeros(0, 0), torch.zeros(0, 0, 0), torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64))

    @classmethod
    def of(cls, features: Tensor, columns: Tensor, rank: int) -> CarriedGaussians:
        """Of the classes with these columns (N,), in their order; features are (N, n)."""
        classes, counts = columns.unique(return_counts=True)
        size = features.shape[1]
        means, directions = features.new_zeros(len(classes), size), features.new_zeros(len(classes), rank, size)
        scatter = features.new_zeros(size, size, dtype=torch.float64)
        for place, column in enumerate(classes):
            moments = Moments.of(features[columns == column])
            own, _ = leading(moments.factor, rank)
            means[place], directions[place, : len(own)] = moments.mean, own
            scatter += (moments.images - 1) * moments.factor.T @ moments.factor
        return cls(means, directions, (scatter / max(1, freedom(counts))).to(features), counts)

    def __len__(self) -> int:
        return len(self.means)

    def carried(self, by: AffineMap) -> CarriedGaussians:
        """Taken along: μ P + b, D P and PᵀΣP + the error of the map; features before those of the map stay."""
        own = len(by.weight)
        covariance = by.turned(by.turned(self.covariance.double()).T)
        covariance[-own:, -own:] += by.error
        means, directions = by.moved(self.means), by.turned(self.directions)
        return CarriedGaussians(means, directions, covariance.to(means), self.counts)

    def extended(self, other: CarriedGaussians) -> CarriedGaussians:
        """With further classes; Σ becomes the average over all of them."""
        old, new = freedom(self.counts), freedom(other.counts)
        if old + new == 0:  # classes of one image each: what maps were wrong by stays
            old = 1
        covariance = (old * self.covariance + new * other.covariance) / (old + new)
        means, directions, counts = (
            torch.cat([getattr(one, name) for one in (self, other)]) for name in ("means", "directions", "counts")
        )
        return CarriedGaussians(means, directions, covariance, counts)

    def removed(self, column: int) -> CarriedGaussians:
        """Without a class; what it gave to Σ stays in that."""
        kept = [index for index in range(len(self)) if index != column]
        return CarriedGaussians(self.means[kept], self.directions[kept], self.covariance, self.counts[kept])

    def variance(self, last: int) -> float:
        """tr Σ over so many features, the last ones: the mean squared distance of an image from its class's mean.

        Classes of one image each, or of images that are all alike, have none: it is at least a part of the squared
        length of the means.
        """
        length = self.means[:, -last:].square().sum(1).mean()
        return float(self.covariance.diagonal()[-last:].sum().maximum(LEAST_VARIANCE * length))

    def apart(self, means: Tensor) -> float:
        """How far these means (k, n), of the last features, lie from those here: a multiple of what is to be expected.

        That is the F of an analysis of variance: the squared distance between the mean of all means here and that of
        the others, over the mean squared distance of a class from its own side's times (1/m + 1/k). Classes of one
        kind, on whichever side, have about 1, photos and drawings much more. Of one class on each side nothing is told.
        """
        own = self.means[:, -means.shape[1] :].to(means)
        if len(own) + len(means) < 3:
            return 0.0
        both = torch.cat([own - own.mean(0), means - means.mean(0)])
        between = both.square().sum() / (len(both) - 2)
        least = LEAST_VARIANCE * torch.cat([own, means]).square().sum(1).mean().clamp_min(TINY)
        distance = (own.mean(0) - means.mean(0)).square().sum()
        return float(distance / (between.maximum(least) * (1 / len(own) + 1 / len(means))))


def freedom(counts: Tensor) -> int:
    """How many images tell about a spread: all but one of each class."""
    return int((counts - 1).sum())


@dataclass(frozen=True)
class QuadraticDiscriminant:
    """log N(z; μ_c, Σ_c) up to a constant, in a form that is quick to evaluate."""

    centre: Tensor  # the mean of all means, (n,): numbers near to zero lose fewer digits
    means: Tensor  # μ_c − centre, (m, n)
    precision: Tensor  # B⁻¹, (n, n)
    bias: Tensor  # (m,)
    projections: Tensor  # V_c, (m, k, n)
    offsets: Tensor  # V_c(μ_c − centre), (m, k)

    def scores(self, features: Tensor) -> Tensor:
        """−½(z − μ_c)ᵀB⁻¹(z − μ_c) + ½‖V_c(z − μ_c)‖² and the bias, at a temperature, (N, m)."""
        points = features - self.centre
        whitened = points @ self.precision
        own = torch.einsum("bn,mkn->bmk", points, self.projections) - self.offsets
        linear = whitened @ self.means.T - (whitened * points).sum(1, keepdim=True) / 2
        scores: Tensor = linear + self.bias + own.square().sum(2) / 2
        return scores / max(1.0, features.shape[1] / FEATURES_PER_DEGREE)


def quadratic_discriminant(gaussians: CarriedGaussians, own_share: float, shrinkage: float) -> QuadraticDiscriminant:
    """From (B + βDᵀD)⁻¹ = B⁻¹ − VᵀV with V = K⁻¹DB⁻¹, where KKᵀ = I/β + DB⁻¹Dᵀ (Woodbury), β = α(1 − s)."""
    precision = torch.cholesky_inverse(cholesky(common(gaussians, own_share, shrinkage)))
    centre = gaussians.means.double().mean(0)
    means = gaussians.means.double() - centre
    bias = -(means @ precision * means).sum(1) / 2
    own = own_share * (1 - shrinkage)
    projections = torch.zeros_like(gaussians.directions, dtype=torch.float64)
    if own:
        directions = gaussians.directions.double()
        spread = directions @ precision  # D B⁻¹
        identity = torch.eye(directions.shape[1], dtype=torch.float64, device=directions.device)
        factors = torch.linalg.cholesky(identity / own + spread @ directions.mT)  # K
        projections = torch.linalg.solve_triangular(factors, spread, upper=False)
        bias = bias - factors.diagonal(dim1=1, dim2=2).log().sum(1)
    offsets = torch.einsum("mn,mkn->mk", means, projections)
    parts = (centre, means, precision, bias, projections, offsets)
    return QuadraticDiscriminant(*(part.to(gaussians.means.dtype) for part in parts))


def common(gaussians: CarriedGaussians, own_share: float, shrinkage: float) -> Tensor:
    """B, what the covariances of all classes have in common, (n, n) in float64."""
    covariance = (1 - own_share) * gaussians.covariance.double()
    base: Tensor = (1 - shrinkage) * covariance
    base.diagonal().add_((shrinkage * covariance.diagonal().mean()).clamp_min(TINY))
    return base
