"""What happens to an image between uint8 pixels and the network; decided at the first task and kept for ever.

A pretrained backbone brings what it was trained with, settings may say otherwise, and the rest is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from efcil.backbones.pretrained import ImageInput
from efcil.config import ClassifierConfig
from efcil.data.augment import augmented_size, centred, chosen, stored_size
from efcil.data.images import ImageSet, Interpolation
from efcil.engine.device import sent
from efcil.errors import UserError

BATCH, BATCH_PIXELS = 256, 256 * 80 * 80  # images that pass through a network at once: 32 at 224 pixels


@dataclass(frozen=True)
class Preprocessing:
    """Image sizes, the per-channel mean and spread of pixels, and how images are resized."""

    stored: int  # side of the images as they are read
    size: int  # side of what the network sees; smaller than stored where training cuts random boxes (256 and 224)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: Interpolation = "bilinear"

    @classmethod
    def of(cls, images: ImageSet, config: ClassifierConfig, brought: ImageInput | None) -> Preprocessing:
        """For these images of the first task, which have the side that stored_side() asks for."""
        colours = config.preprocessing
        if colours.mean is not None and colours.std is not None:
            mean, std = colours.mean, colours.std
        elif brought is not None:
            mean, std = brought.mean, brought.std
        else:
            mean, std = measured(images, config.workers)
        return cls(images.size, seen_side(images.size, config, brought), mean, std, interpolation(config, brought))

    @property
    def batch(self) -> int:
        """How many images pass through a network at once where nothing is trained; fewer of large ones."""
        return max(1, min(BATCH, BATCH_PIXELS // self.size**2))

    def centred(self, pixels: Tensor) -> Tensor:
        """The middle of each image, of the size the network sees."""
        return centred(pixels, self.size)

    def normalised(self, pixels: Tensor, device: torch.device) -> Tensor:
        """uint8 (B, 3, S, S) as floats of zero mean and unit variance."""
        mean, std = (colours(value, device) for value in (self.mean, self.std))
        x = sent(pixels, device).to(torch.float32, memory_format=torch.channels_last)  # bytes travel, not floats
        return x.div_(255).sub_(mean).div_(std)


def colours(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers of red, green and blue as a tensor (3, 1, 1); to a GPU they are sent once and not with every batch."""
    return torch.tensor(values)[:, None, None] if device.type == "cpu" else colours_there(values, device)


@cache
def colours_there(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)[:, None, None]


def measured(images: ImageSet, workers: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and spread of red, green and blue over all pixels."""
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for pixels in images.batches(torch.arange(len(images)).split(128), workers):
        x = pixels.double().div_(255)
        total += x.sum((0, 2, 3))
        squares += x.square().sum((0, 2, 3))
        count += x.numel() // 3
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt().clamp_min(1e-3)  # images of one colour have none
    return tuple(mean.tolist()), tuple(std.tolist())


def stored_side(config: ClassifierConfig, brought: ImageInput | None) -> int | None:
    """The side that images are read with before the first task; none: as they come."""
    size = config.image_size
    if brought is not None:
        if size not in (None, brought.size) and not brought.any_size:
            raise UserError(f"{config.backbone} takes images of {brought.size} pixels only; leave image_size empty.")
        size = size or brought.size
    if size is None:
        return None
    share = crop_share(config, brought)
    return stored_size(chosen(config.augmentation, size), size) if share is None else round(size / share)


def seen_side(stored: int, config: ClassifierConfig, brought: ImageInput | None) -> int:
    """The side that the network sees of images that were read with this one."""
    share = crop_share(config, brought)
    if share is None:
        return augmented_size(chosen(config.augmentation, stored), stored)
    return max(1, round(stored * share))


def crop_share(config: ClassifierConfig, brought: ImageInput | None) -> float | None:
    """The share of the stored side that the network sees; none: what the augmentation leaves."""
    if config.preprocessing.crop is not None:
        return config.preprocessing.crop
    return None if brought is None else brought.size / brought.stored


def interpolation(config: ClassifierConfig, brought: ImageInput | None) -> Interpolation:
    """How images are resized."""
    return config.preprocessing.interpolation or ("bilinear" if brought is None else brought.interpolation)
