"""TrivialAugment on whole batches: every image gets one change of fourteen, of random strength (Müller, Hutter 2021).

The changes and their ranges are those of the publication's wide space. Changes of the same kind are done together, all
in floating point, so a batch costs about as much as a few operations on it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

(
    KEPT,
    SHEAR_X,
    SHEAR_Y,
    MOVE_X,
    MOVE_Y,
    TURN,
    BRIGHT,
    COLOUR,
    CONTRAST,
    SHARP,
    POSTERIZE,
    SOLARIZE,
    STRETCH,
    EQUALIZE,
) = range(14)
CHANGES = 14
GREY = (0.299, 0.587, 0.114)  # of red, green and blue


def trivial_augment(x: Tensor, rng: torch.Generator) -> Tensor:
    """One random change for each image of a uint8 batch (B, 3, S, S)."""
    change = torch.randint(CHANGES, (len(x),), generator=rng)
    strength = torch.rand(len(x), generator=rng)  # 0: none, 1: the greatest
    signed = strength * (2 * torch.randint(2, (len(x),), generator=rng) - 1)
    y = x.float()
    for group, function, amount in (
        ((SHEAR_X, SHEAR_Y, MOVE_X, MOVE_Y, TURN), moved, signed),
        ((BRIGHT, COLOUR, CONTRAST, SHARP), blended, signed),
        ((POSTERIZE, SOLARIZE), coarsened, strength),
        ((STRETCH, EQUALIZE), evened, strength),
    ):
        rows = torch.isin(change, torch.tensor(group)).nonzero().squeeze(1)
        if len(rows):
            y[rows] = function(y[rows], change[rows], amount[rows])
    return y.round_().clamp_(0, 255).to(torch.uint8)


def moved(x: Tensor, change: Tensor, signed: Tensor) -> Tensor:
    """Sheared by up to 0.99, moved by up to 32 pixels or turned by up to 135 degrees; what comes in is black."""
    side = x.shape[-1]
    amount = signed * 0.99
    shift = signed * 2 * 32 / side  # the side is 2 in the coordinates of grid_sample
    angle = torch.where(change == TURN, signed * math.radians(135), 0.0)
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = angle.cos(), angle.cos()
    theta[:, 0, 1] = torch.where(change == SHEAR_X, amount, -angle.sin())
    theta[:, 1, 0] = torch.where(change == SHEAR_Y, amount, angle.sin())
    theta[:, 0, 2] = torch.where(change == MOVE_X, shift, 0.0)
    theta[:, 1, 2] = torch.where(change == MOVE_Y, shift, 0.0)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def blended(x: Tensor, change: Tensor, signed: Tensor) -> Tensor:
    """Mixed with, or pushed away from: black, its grey version, its mean grey, or its smoothed version."""
    each = change[:, None, None, None]
    grey = (x * torch.tensor(GREY)[:, None, None]).sum(1, keepdim=True)
    kernel = torch.full((3, 1, 3, 3), 1 / 13)
    kernel[:, :, 1, 1] = 5 / 13
    smooth = x.clone()  # the border stays
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(x, kernel, groups=3)
    other = torch.where(each == COLOUR, grey.expand_as(x), torch.zeros_like(x))
    other = torch.where(each == CONTRAST, grey.mean((1, 2, 3), keepdim=True).expand_as(x), other)
    other = torch.where(each == SHARP, smooth, other)
    factor = (1 + 0.99 * signed)[:, None, None, None]
    return (other + factor * (x - other)).clamp(0, 255)


def coarsened(x: Tensor, change: Tensor, strength: Tensor) -> Tensor:
    """Eight bits become as few as two, or what is brighter than a threshold is inverted."""
    step = 2.0 ** (6 * strength).round()[:, None, None, None]
    threshold = 255 * (1 - strength)[:, None, None, None]
    inverted = torch.where(x >= threshold, 255 - x, x)
    return torch.where(change[:, None, None, None] == SOLARIZE, inverted, (x / step).floor() * step)


def evened(x: Tensor, change: Tensor, strength: Tensor) -> Tensor:
    """Each colour stretched to the whole range, or so that all brightnesses are equally frequent."""
    darkest, brightest = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    range_ = brightest - darkest
    stretched = torch.where(range_ > 0, (x - darkest) * 255 / range_.clamp(min=1), x)
    flat = x.flatten(0, 1).flatten(1).long()  # (3B, S²)
    counts = torch.zeros(len(flat), 256, dtype=torch.int64).scatter_add_(1, flat, torch.ones_like(flat))
    brightest_count = counts.gather(1, flat.amax(1, keepdim=True))
    step = (flat.shape[1] - brightest_count) // 255  # pixels for each of the brightnesses
    darker = (counts.cumsum(1) - counts).gather(1, flat)
    even = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    equalized = torch.where(step > 0, even, flat).view_as(x).float()
    return torch.where(change[:, None, None, None] == EQUALIZE, equalized, stretched)
