"""ImageNet-Subset: 100 of the classes of ImageNet-1K, named in a list that you bring.

Published results use different lists, and which one decides the numbers. So none is built in; the checksum of
yours is kept with the set, and compared with ``imagenet-subset.txt.sha256`` if you bring that too.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from efcil.data.dataset import DataSet, existing
from efcil.data.sets import imagenet
from efcil.data.sets.folder import train_and_test
from efcil.data.sets.lists import checksum, read_lines
from efcil.errors import UserError

LIST = "imagenet-subset.txt"
CLASSES = 100
REMEDY = f"it must have {CLASSES} WordNet numbers, one per line"


def load(root: Path | None, size: int | None) -> DataSet:
    """The classes of ``root/imagenet-subset.txt``, in its order, out of ``root/imagenet``."""
    folder = imagenet.find(root)
    file = existing(folder if (folder / LIST).exists() else root, "", LIST, REMEDY) / LIST
    names = read_lines(file, REMEDY)
    digest = _checked(file)
    if len(names) != CLASSES:
        raise UserError(f"{file} names {len(names)} classes instead of {CLASSES}; {REMEDY}.")
    if len(set(names)) != CLASSES:
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{file} names {twice} more than once; {REMEDY}.")
    for name in names:
        for part in (folder / "train", folder / "val"):
            if "/" in name or not (part / name).is_dir():
                raise UserError(f"{file} names {name!r}, which has no folder in {part}; correct the list or add it.")
    data = train_and_test(folder / "train", folder / "val", size or imagenet.SIZE, names)
    return dataclasses.replace(data, sources={LIST: digest})


def _checked(file: Path) -> str:
    """The checksum of the list, compared with the one beside it if there is one."""
    digest = checksum(file)
    beside = file.with_name(f"{file.name}.sha256")
    if beside.exists():
        wanted = read_lines(beside, "write the sha256 of the list in it, or remove it")[0].split()[0].lower()
        if wanted != digest:
            raise UserError(f"{file} has the sha256 {digest}, but {beside.name} says {wanted}; restore the right list.")
    return digest
