"""Image sets by name; each is one small file with a ``load(root, size)`` that finds images and opens few of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from efcil.config import CACHE_MB, WORKERS, DataConfig
from efcil.data.dataset import DataSet
from efcil.data.fetch.archives import ARCHIVES
from efcil.data.images import Files
from efcil.data.sets import cifar100, digits, dn4il, folder, imagenet, imagenet_subset, tiny_imagenet
from efcil.errors import Notice, UserError, unknown

LOADERS: dict[str, Callable[[Path | None, int | None], DataSet]] = {
    "digits": digits.load,
    "cifar100": cifar100.load,
    "tiny-imagenet": tiny_imagenet.load,
    "imagenet-subset": imagenet_subset.load,
    "imagenet-1k": imagenet.load,
    "dn4il": dn4il.load,
    "folder": folder.load,
    "domains": folder.load_domains,
}


@dataclass(frozen=True)
class Description:
    """What a user needs to know about an image set before using it."""

    what: str
    """One line on what it is."""
    layout: str
    """What must lie under --data-root."""
    download: bool = False
    """Whether `efcil data get` can fetch it."""


def _described(name: str, what: str, layout: str) -> tuple[str, Description]:
    return name, Description(what, layout, name in ARCHIVES)


DATA_SETS: dict[str, Description] = dict(
    [
        _described("digits", "1,797 handwritten digits of 8 pixels, 10 classes", "nothing: part of scikit-learn"),
        _described(
            "cifar100",
            "CIFAR-100: 60,000 images of 32 pixels, 100 classes",
            "cifar-100-binary/{train.bin,test.bin,fine_label_names.txt} or cifar-100-python/{train,test,meta}",
        ),
        _described(
            "tiny-imagenet",
            "Tiny-ImageNet: 110,000 images of 64 pixels, 200 classes",
            "tiny-imagenet-200/{wnids.txt,train/<class>/images/*.JPEG,val/images/*.JPEG,val/val_annotations.txt}",
        ),
        _described(
            "imagenet-subset",
            "ImageNet-Subset: 100 classes of ImageNet-1K, of a list that you bring",
            "imagenet/{train,val}/<class>/*.JPEG and imagenet-subset.txt with 100 class folders, one per line",
        ),
        _described(
            "imagenet-1k",
            "ImageNet-1K: 1.3 million images, 1,000 classes",
            "imagenet/{train,val}/<class>/*.JPEG",
        ),
        _described(
            "dn4il",
            "DN4IL: six domains of DomainNet with 100 classes each",
            "dn4il/<domain>/<class>/*.jpg and dn4il/<domain>_{train,test}.txt with lines 'domain/class/image label'",
        ),
        _described("folder", "your own images", "<class>/* or {train,test}/<class>/*"),
        _described("domains", "your own images from several domains, such as PACS", "<domain>/<class>/*"),
    ]
)


def load(
    config: DataConfig,
    root: Path | None,
    size: int | None = None,
    cache_mb: int = CACHE_MB,
    workers: int = WORKERS,
) -> DataSet:
    """The image set that ``config`` names, read from ``root`` and brought to this image size."""
    if config.name not in LOADERS:
        raise unknown("data set", config.name, LOADERS)
    data = LOADERS[config.name](root, size)
    if config.packed is not None:
        if not isinstance(data.train.source, Files):
            warnings.warn(f"data.packed has no effect: {config.name} is in memory.", Notice, stacklevel=2)
        data = data.packed(Path(config.packed), workers)
    for note in data.notes:
        warnings.warn(note, Notice, stacklevel=2)
    for part, counts in zip(("training", "test"), data.counts(), strict=True):
        if counts.min() == 0:
            name = data.names[int(counts.argmin())]
            raise UserError(f"Class {name} has no {part} images; add some, or see: efcil data check {config.name}.")
    return data.holding_out(config.held_out).limited(config.images_per_class).in_memory(cache_mb, workers)
