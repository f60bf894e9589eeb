"""ImageNet-1K: a folder per class in ``train`` and in ``val``, classes in the order of their WordNet numbers."""

from __future__ import annotations

from pathlib import Path

from efcil.data.dataset import DataSet, existing
from efcil.data.sets.folder import train_and_test
from efcil.errors import UserError

SIZE = 256  # shorter side as read; training cuts a random box out of it, testing the centre
CLASSES = 1000


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/imagenet`` (or ``root`` when it is that folder) with ``train/<class>`` and ``val/<class>``."""
    folder = find(root)
    data = train_and_test(folder / "train", folder / "val", size or SIZE)
    if len(data.names) != CLASSES:
        raise UserError(
            f"{folder / 'train'} has {len(data.names)} class folders instead of {CLASSES}; complete it, "
            "or use --set data.name=folder for a set of your own."
        )
    return data


def find(root: Path | None) -> Path:
    """The folder with ``train`` and ``val``."""
    return existing(root, "imagenet", "train", "unpack ImageNet there, a folder per class, or check --data-root")
