"""Random changes to training images, on whole uint8 batches (B, 3, S, S); the generator decides everything.

All keep the size but ``resized_crop_flip``, which makes 224 pixels of 256, as is usual for large images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.data.trivial import trivial_augment

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


def none(x: Tensor, rng: torch.Generator) -> Tensor:
    """The images as they are."""
    return x


def crop(x: Tensor, rng: torch.Generator) -> Tensor:
    """Zero-pad by an eighth of the side (4 at 32 pixels, 8 at 64) and cut the old size at a random place."""
    count, _, size, _ = x.shape
    pad = max(1, size // 8)
    windows = F.pad(x, (pad,) * 4).unfold(2, size, 1).unfold(3, size, 1)  # (B, 3, 2·pad+1, 2·pad+1, S, S), a view
    top, left = torch.randint(2 * pad + 1, (2, count), generator=rng)
    return windows[torch.arange(count), :, top, left]


def flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Mirror every second image, at random."""
    mirrored = torch.rand(len(x), generator=rng) < 0.5
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


def resized_crop(x: Tensor, rng: torch.Generator, out: int, pad: int = 0) -> Tensor:
    """A random box of 8-100 % of the (zero-padded) area, sides 3:4 to 4:3, stretched to ``out`` pixels."""
    count, _, size, _ = x.shape
    if count == 0:
        return x.new_empty(0, 3, out, out)
    side = size + 2 * pad
    area = side * side * torch.empty(count).uniform_(0.08, 1.0, generator=rng)
    ratio = torch.exp(torch.empty(count).uniform_(math.log(3 / 4), math.log(4 / 3), generator=rng))
    wide = (area * ratio).sqrt().clamp(1, side)
    high = (area / ratio).sqrt().clamp(1, side)
    left = (side - wide) * torch.rand(count, generator=rng)
    top = (side - high) * torch.rand(count, generator=rng)
    # The box in the coordinates of grid_sample, where the unpadded image spans [−1, 1]; outside it is zero.
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = wide / size, high / size
    theta[:, 0, 2] = (2 * left + wide - 2 * pad) / size - 1
    theta[:, 1, 2] = (2 * top + high - 2 * pad) / size - 1
    grid = F.affine_grid(theta, [count, 3, out, out], align_corners=False)
    sampled = F.grid_sample(x.float(), grid, padding_mode="zeros" if pad else "border", align_corners=False)
    return sampled.round_().clamp_(0, 255).to(torch.uint8)


def crop_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Random crop with padding, then flip."""
    return flip(crop(x, rng), rng)


def cifar_reference(x: Tensor, rng: torch.Generator) -> Tensor:
    """What produced the paper's CIFAR-100 numbers: pad by 4, random resized crop, flip."""
    return flip(resized_crop(x, rng, out=x.shape[-1], pad=x.shape[-1] // 8), rng)


def resized_crop_flip(x: Tensor, rng: torch.Generator, out: int | None = None) -> Tensor:
    """Random resized crop and flip, the paper's augmentation at 224 pixels."""
    return flip(resized_crop(x, rng, out=out or augmented_size("resized_crop_flip", x.shape[-1])), rng)


def trivial(x: Tensor, rng: torch.Generator) -> Tensor:
    """Random crop with padding, flip, and then one change out of fourteen (TrivialAugment)."""
    return trivial_augment(crop_flip(x, rng), rng)


AUGMENTATIONS: dict[str, Augmentation] = {
    function.__name__: function for function in (none, crop, crop_flip, cifar_reference, resized_crop_flip, trivial)
}


def augmentation(name: str, size: int) -> Augmentation:
    """The augmentation of this name, so that images of any side come out with this one."""
    if name == "resized_crop_flip":
        return partial(resized_crop_flip, out=size)
    return lambda x, rng: centred(AUGMENTATIONS[name](x, rng), size)


def centred(x: Tensor, size: int) -> Tensor:
    """The square of this side in the middle of each image."""
    start = (x.shape[-1] - size) // 2
    return x[:, :, start : start + size, start : start + size]


def chosen(name: str, size: int | None) -> str:
    """The augmentation that ``auto`` means at this image size."""
    if name == "auto":
        return "crop_flip" if size is None or size <= 64 else "resized_crop_flip"
    return name


def augmented_size(name: str, stored: int) -> int:
    """Side of an image after the augmentation, from its side before."""
    return stored * 7 // 8 if name == "resized_crop_flip" else stored


def stored_size(name: str, size: int) -> int:
    """The inverse: the side that images must have to come out with this one."""
    return -(-size * 8 // 7) if name == "resized_crop_flip" else size
