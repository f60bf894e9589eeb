"""Classification from class sums alone: a discriminant with one covariance for all classes, its leave-one-out, how sure
it may be, and whether an image is like anything taught.

All features here have unit length. Everything but the temperature is a function of the sums, so it does not depend on
the order in which images came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.numerics import TINY, cholesky
from efcil.parts.sums import ClassSums

TEMPERATURES = torch.logspace(-1, 3, 41, dtype=torch.float64)  # T for which leave-one-out losses are kept
PRIOR_IMAGES = 2.0  # what is assumed before anything is known weighs as much as so many images
PRIOR_COSINE = 0.5  # of two images of one class; 0.51 and 0.56 were measured for photographs of things and of animals
PRIOR_DEVIATION = 0.1  # of the cosine between an image and the mean of its class
LEAST_SHRINKAGE = 0.6  # OAS takes images for normal draws and trusts many of them too much
CLASS_IMAGES = 10.0  # from so many images on, the tightness of a class is its own rather than that of the others


@dataclass(frozen=True)
class Discriminant:
    """Gaussians around the class means, all with the covariance Σ."""

    counts: Tensor  # (m,) float64
    means: Tensor  # μ_c, (m, n)
    precision: Tensor  # A = Σ⁻¹, (n, n)
    shares: Tensor  # how much of Σ the scatter of each class is: Σ = Σ_c share_c W_c + …, (m,)

    def distances(self, points: Tensor) -> Tensor:
        """(z−μ_c)ᵀ A (z−μ_c) of every point and class, (N, m)."""
        whitened = points @ self.precision
        means = self.means @ self.precision
        return (whitened * points).sum(1)[:, None] - 2 * whitened @ self.means.T + (means * self.means).sum(1)

    def scores(self, points: Tensor) -> Tensor:
        """−½ n_c/(n_c+1) times the distance: fair between means of few and of many images, (N, m)."""
        return predictive(self.distances(points), self.counts)

    def leave_one_out(self, points: Tensor, columns: Tensor) -> Tensor:
        """The scores of points that were taught, each as if it had not been; exact, without fitting anew, (N, m).

        Without z its class has the mean μ − δ/(n−1) for δ = z − μ, and its scatter is less by n/(n−1) δδᵀ. With
        a = n/(n−1) · share and q = δᵀAδ the inverse then is A + a/(1−aq) AδδᵀA (Sherman and Morrison).
        """
        rows = torch.arange(len(points), device=points.device)
        count = self.counts[columns]  # (N,), at least 2
        offsets = points - self.means[columns]  # δ
        whitened = offsets @ self.precision
        q = (whitened * offsets).sum(1)
        a = count / (count - 1) * self.shares[columns]
        towards = (whitened * points).sum(1)[:, None] - whitened @ self.means.T  # δᵀA(z − μ_c)
        distances = self.distances(points) + (a / (1 - a * q))[:, None] * towards.square()
        distances[rows, columns] = (count / (count - 1)).square() * q / (1 - a * q)
        counts = self.counts.repeat(len(points), 1)
        counts[rows, columns] -= 1
        return predictive(distances, counts)


def predictive(distances: Tensor, counts: Tensor) -> Tensor:
    """The mean of n images is itself off by Σ/n: a new image of the class lies (n+1)/n times as far from it."""
    return -0.5 * counts / (counts + 1) * distances


def discriminant(sums: ClassSums, shrinkage: float | None = None, heaviest: int = 10) -> Discriminant:
    """Σ = (1−ρ) S + ρ τ I with S the covariance within classes and τ its mean variance; ρ of OAS if empty.

    In S no class weighs more than ``heaviest`` images: the scatter of one class of 500 would pass for that of a class
    of 5. While no class has two images, Σ is a multiple of the identity.
    """
    n = sums.means.shape[1]
    freedom = (sums.counts - 1).double()
    weights = freedom.clamp(max=heaviest)
    shares = weights / (freedom.clamp_min(1) * weights.sum().clamp_min(1))
    rows = torch.cat([share.sqrt() * factor for share, factor in zip(shares, sums.factors, strict=True)])
    within = rows.T @ rows  # S
    squares = (weights.square() / freedom.clamp_min(1)).sum()
    observations = float(weights.sum().square() / squares.clamp_min(TINY))  # N − m, or what unequal weights leave of it
    rho = max(oas(within, observations), LEAST_SHRINKAGE) if shrinkage is None else shrinkage
    spread = (observations * within.trace() + PRIOR_IMAGES * (1 - PRIOR_COSINE)) / (observations + PRIOR_IMAGES)
    covariance = (1 - rho) * within
    covariance.diagonal().add_(rho * spread / n)
    precision = torch.cholesky_inverse(cholesky(covariance))
    return Discriminant(sums.counts.double(), sums.means, precision, (1 - rho) * shares)


def oas(covariance: Tensor, observations: float) -> float:
    """ρ, the part of the identity, by the oracle-approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010)."""
    n = len(covariance)
    trace, squares = float(covariance.trace()), float(covariance.square().sum())
    above = (1 - 2 / n) * squares + trace**2
    below = (observations + 1 - 2 / n) * (squares - trace**2 / n)
    return 1.0 if below <= TINY * above else min(1.0, above / below)


# How sure


def calibration_losses(scores: Tensor, columns: Tensor, classes: int) -> Tensor:
    """For every class and temperature the negative log-likelihood of its points, summed, (m, 41)."""
    likelihoods = torch.stack([torch.log_softmax(scores / t, 1).gather(1, columns[:, None]) for t in TEMPERATURES], 2)
    losses = scores.new_zeros(classes, len(TEMPERATURES))
    return losses.index_add_(0, columns, -likelihoods.squeeze(1))


def temperature(losses: Tensor, features: int) -> float:
    """T with the least loss (41,), between the temperatures by a parabola; without losses a thirtieth of the features.

    The covariance of a few images describes a class of real ones much too narrowly, along every feature: the scores
    are too sure by a factor that grows with their number. 28 to 52 was measured for 1,280 features.
    """
    logarithms = TEMPERATURES.log().to(losses.device)
    prior = (logarithms - math.log(max(features / 30, 1))).square()
    total = losses + PRIOR_IMAGES * prior / 2
    middle = int(total.argmin().clamp(1, len(total) - 2))
    left, here, right = total[middle - 1 : middle + 2].tolist()
    bend = left - 2 * here + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return math.exp(float(logarithms[middle]) + min(max(shift, -1.0), 1.0) * float(logarithms[1] - logarithms[0]))


# Like anything taught


@dataclass(frozen=True)
class Likeness:
    """The cosine between an image and the mean of its class, as it is for images that were not taught."""

    directions: Tensor  # means at unit length, (m, n)
    expected: Tensor  # (m,)
    deviation: Tensor  # (m,)

    def familiarity(self, points: Tensor, columns: Tensor) -> Tensor:
        """The share of images of the class that would be less like its mean than each point, taken as normal, (N,)."""
        cosines = (points * self.directions[columns]).sum(1)
        share: Tensor = torch.special.ndtr((cosines - self.expected[columns]) / self.deviation[columns])
        return share


def likeness(sums: ClassSums) -> Likeness:
    """From the sums alone, as leave-one-out would measure it.

    Two images of a class have the mean cosine b = (n|μ|² − 1)/(n−1), so a new one has the cosine b/√(b + (1−b)/n) with
    μ on average. It varies as it does among those that were taught, which have the sum of squares μ̂ᵀWμ̂. Classes of few
    images borrow from the others, and all from what is usual. Since b is the mean of cosines in which every image has
    two parts, it is itself uncertain by 2/n of that variance.
    """
    counts, freedom = sums.counts.double(), (sums.counts - 1).double()
    directions = F.normalize(sums.means)

    cosine = (counts * sums.means.square().sum(1) - 1) / freedom.clamp_min(1)  # b
    usual = pooled(cosine, freedom.clamp(max=CLASS_IMAGES), PRIOR_COSINE)
    cosine = ((freedom * cosine + CLASS_IMAGES * usual) / (freedom + CLASS_IMAGES)).clamp(TINY, 1)
    expected = cosine / (cosine + (1 - cosine) / counts).sqrt()

    pairs = zip(sums.factors, directions, strict=True)
    squares = torch.stack([(factor @ direction).square().sum() for factor, direction in pairs])
    left = (counts - 2).clamp_min(0)  # two images of a class have the same cosine with their mean, whatever they are
    variance = squares / freedom.clamp_min(1) * (counts / left.clamp_min(1)).square()
    common = pooled(variance, left.clamp(max=CLASS_IMAGES), PRIOR_DEVIATION**2)
    return Likeness(directions, expected, (common * (1 + 2 / counts)).sqrt())


def pooled(values: Tensor, weights: Tensor, prior: float) -> Tensor:
    """The weighted mean of the classes and of what is assumed beforehand."""
    return ((weights * values).sum() + PRIOR_IMAGES * prior) / (weights.sum() + PRIOR_IMAGES)
