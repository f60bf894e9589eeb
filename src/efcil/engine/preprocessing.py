"""What happens to an image between uint8 pixels and the network; measured on the first task and kept for ever."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from efcil.data.augment import augmented_size
from efcil.data.images import ImageSet


@dataclass(frozen=True)
class Preprocessing:
    """Image sizes and the per-channel mean and spread of the first task's pixels."""

    stored: int  # side of the images as they are read
    size: int  # side of what the network sees; smaller than stored where training cuts random boxes (256 and 224)
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def measure(cls, images: ImageSet, augmentation: str) -> Preprocessing:
        """From the images of the first task."""
        total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
        for pixels in images.batches(list(torch.arange(len(images)).split(128))):
            x = pixels.double().div_(255)
            total += x.sum((0, 2, 3))
            squares += x.square().sum((0, 2, 3))
            count += x.numel() // 3
        mean = total / count
        std = (squares / count - mean.square()).clamp_min(0).sqrt().clamp_min(1e-3)  # images of one colour have none
        size = augmented_size(augmentation, images.size)
        return cls(images.size, size, tuple(mean.tolist()), tuple(std.tolist()))

    def centred(self, pixels: Tensor) -> Tensor:
        """The middle of each image, of the size the network sees."""
        start = (self.stored - self.size) // 2
        return pixels[:, :, start : start + self.size, start : start + self.size]

    def normalised(self, pixels: Tensor, device: torch.device) -> Tensor:
        """uint8 (B, 3, S, S) as floats of zero mean and unit variance."""
        mean, std = (torch.tensor(value, device=device)[:, None, None] for value in (self.mean, self.std))
        x = pixels.to(device, torch.float32, memory_format=torch.channels_last)
        return x.div_(255).sub_(mean).div_(std)
