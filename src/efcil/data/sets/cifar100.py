"""CIFAR-100: 60,000 images of 32 pixels; in the binary layout or, if only that is there, the one of Python pickles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from efcil.data.dataset import DataSet, existing, found
from efcil.data.images import image_set
from efcil.data.sets import cifar100_python
from efcil.data.sets.lists import read_lines
from efcil.errors import UserError

RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, pixels channel by channel
COUNTS = {"train": 50_000, "test": 10_000}
FETCH = "efcil data get cifar100"
REMEDY = f"delete cifar-100-binary and run: {FETCH}"

Arrays = tuple[npt.NDArray[np.uint8], list[int]]  # (N, 3072) pixels and the fine labels


def load(root: Path | None, size: int | None) -> DataSet:
    """Both splits of ``root/cifar-100-binary`` or ``root/cifar-100-python`` (or of ``root`` when it is that folder)."""
    folder = found(root, "cifar-100-python", "meta") if root else None
    if root is None or folder is None or found(root, "cifar-100-binary", "train.bin"):
        folder = existing(root, "cifar-100-binary", "train.bin", f"check --data-root, or run: {FETCH}")
        names = read_lines(folder / "fine_label_names.txt", REMEDY)
        splits = {part: _read_split(folder / f"{part}.bin", count) for part, count in COUNTS.items()}
    else:
        names = cifar100_python.read_names(folder / "meta")
        splits = {part: cifar100_python.read_split(folder / part) for part in COUNTS}
    if len(names) != 100:
        raise UserError(f"{folder} names {len(names)} classes instead of 100; {REMEDY}.")
    images, labels = {}, {}
    for part, count in COUNTS.items():
        pixels, fine = splits[part]
        if pixels.shape != (count, RECORD - 2) or len(fine) != count:
            raise UserError(f"The {part} part in {folder} does not hold {count:,} images of 32 pixels; {REMEDY}.")
        if not all(0 <= label < 100 for label in fine):
            raise UserError(f"The {part} part in {folder} has labels above 99 and is not CIFAR-100; {REMEDY}.")
        images[part] = image_set(torch.from_numpy(pixels).view(count, 3, 32, 32), size)
        labels[part] = torch.tensor(fine)
    return DataSet(images["train"], labels["train"], images["test"], labels["test"], names)


def _read_split(path: Path, count: int) -> Arrays:
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError:
        raise UserError(f"{path} is missing; {REMEDY}.") from None
    if raw.size != count * RECORD:
        raise UserError(f"{path} has {raw.size:,} bytes instead of {count * RECORD:,}; {REMEDY}.")
    records = raw.reshape(count, RECORD)
    return records[:, 2:], records[:, 1].tolist()
