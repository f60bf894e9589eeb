"""Image sets by name; each is one small file with a ``load(root, size)``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from efcil.config import DataConfig
from efcil.data import cifar100, digits, folder
from efcil.data.dataset import DataSet
from efcil.errors import unknown

LOADERS: dict[str, Callable[[Path | None, int | None], DataSet]] = {
    "digits": digits.load,
    "cifar100": cifar100.load,
    "folder": folder.load,
    "domains": folder.load_domains,
}


def load(config: DataConfig, root: Path | None, size: int | None = None) -> DataSet:
    """The image set that ``config`` names, read from ``root`` and brought to this image size."""
    if config.name not in LOADERS:
        raise unknown("data set", config.name, LOADERS)
    return LOADERS[config.name](root, size).limited(config.images_per_class)
