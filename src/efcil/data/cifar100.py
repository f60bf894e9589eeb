"""CIFAR-100 in its binary layout: records of <coarse label><fine label><3072 bytes, channel first>."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from efcil.data.dataset import DataSet, existing
from efcil.data.images import ImageSet, image_set
from efcil.errors import UserError

RECORD = 2 + 3 * 32 * 32
COUNTS = {"train": 50_000, "test": 10_000}


def load(root: Path | None, size: int | None) -> DataSet:
    """Both splits of ``root/cifar-100-binary`` (or of ``root`` when it is that folder)."""
    folder = existing(root, "cifar-100-binary", needs="train.bin")
    names = _names(folder / "fine_label_names.txt")
    train, train_labels = _split(folder / "train.bin", COUNTS["train"], size)
    test, test_labels = _split(folder / "test.bin", COUNTS["test"], size)
    return DataSet(train, train_labels, test, test_labels, names)


def _split(path: Path, count: int, size: int | None) -> tuple[ImageSet, Tensor]:
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError:
        raise UserError(f"{path} is missing; unpack the CIFAR-100 binary archive again.") from None
    if raw.size != count * RECORD:
        raise UserError(f"{path} has {raw.size:,} bytes instead of {count * RECORD:,}; unpack it again.")
    records = torch.from_numpy(raw).view(count, RECORD)
    labels = records[:, 1].long()
    if labels.max() > 99 or records[:, 0].max() > 19:
        raise UserError(f"{path} holds labels above 99 and is not CIFAR-100; unpack the archive again.")
    return image_set(records[:, 2:].reshape(count, 3, 32, 32), size), labels


def _names(path: Path) -> list[str]:
    try:
        names = path.read_text().split()
    except OSError:
        raise UserError(f"{path} is missing; unpack the CIFAR-100 binary archive again.") from None
    if len(names) != 100:
        raise UserError(f"{path} lists {len(names)} names instead of 100; unpack the archive again.")
    return names
