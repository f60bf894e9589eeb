"""Your own images: a folder per class, or a folder per domain with a folder per class in each.

With parts named ``train`` and ``test`` (or ``val``) those are used; otherwise every fifth image of a class, in name
order, is a test image. The readers of public image sets share the functions below.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from efcil.data.dataset import DataSet, every_fifth, existing
from efcil.data.images import EXTENSIONS, FILE_SIZE, on_disk
from efcil.errors import UserError


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/<class>/*`` or ``root/train/<class>/*`` with ``root/test/<class>/*``."""
    folder = existing(root)
    parts = [folder / name for name in ("train", "test", "val") if (folder / name).is_dir()]
    if len(parts) >= 2 and parts[0].name == "train":
        return train_and_test(parts[0], parts[1], size or FILE_SIZE)
    paths, labels, names = class_folders(folder)
    return every_fifth(on_disk(paths, size or FILE_SIZE), labels, names)


def load_domains(root: Path | None, size: int | None) -> DataSet:
    """``root/<domain>/<class>/*``; a class of a domain is called ``domain/class``."""
    folder = existing(root)
    paths: list[str] = []
    labels: list[int] = []
    names: list[str] = []
    domains: list[str] = []
    for domain in _subfolders(folder):
        more_paths, more_labels, more_names = class_folders(folder / domain)
        paths += more_paths
        labels += [len(names) + label for label in more_labels]
        names += [f"{domain}/{name}" for name in more_names]
        domains += [domain] * len(more_names)
    return every_fifth(on_disk(paths, size or FILE_SIZE), labels, names, domains)


def train_and_test(train: Path, test: Path, size: int, classes: Sequence[str] | None = None) -> DataSet:
    """Two folders of the same class folders as the two parts of a set."""
    paths, labels, names = class_folders(train, classes)
    test_paths, test_labels, test_names = class_folders(test, classes)
    if test_names != names:
        odd = _some(sorted(set(names) ^ set(test_names)))
        raise UserError(f"{train} and {test} have different classes ({odd}); make them agree.")
    return parts(paths, labels, test_paths, test_labels, names, size)


def parts(
    train_paths: list[str],
    train_labels: list[int],
    test_paths: list[str],
    test_labels: list[int],
    names: list[str],
    size: int,
    domains: list[str] | None = None,
) -> DataSet:
    """A set from the files of its two parts."""
    train, test = on_disk(train_paths, size), on_disk(test_paths, size)
    return DataSet(train, torch.tensor(train_labels), test, torch.tensor(test_labels), names, domains)


def class_folders(
    folder: Path, classes: Sequence[str] | None = None, inside: str = ""
) -> tuple[list[str], list[int], list[str]]:
    """Image paths in name order, the index of the class of each, and the class names.

    ``classes`` are the folders to use, in this order (all of them, sorted); the images lie in their folder ``inside``.
    """
    paths: list[str] = []
    labels: list[int] = []
    names = _subfolders(folder) if classes is None else list(classes)
    empty: list[str] = []
    for label, name in enumerate(names):
        found = image_names(folder / name / inside)
        if not found:
            empty.append(name)
        paths += [os.path.join(folder, name, inside, file) for file in found]  # text: a Path each would cost gigabytes
        labels += [label] * len(found)
    if empty:
        which = f"folder {folder / empty[0]} holds" if len(empty) == 1 else f"folders {_some(empty)} in {folder} hold"
        raise UserError(f"The class {which} no images; fill or remove what is empty.")
    return paths, labels, names


def image_names(folder: Path) -> list[str]:
    """Names of the image files in a folder, sorted; hidden files, as some systems leave behind, are no images."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"The folder {folder} cannot be read ({reason}); check that the images are complete.") from None
    return sorted(name for name in names if name[0] != "." and os.path.splitext(name)[1].lower() in EXTENSIONS)


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; check that the images are complete.")
    inside = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not inside:
        raise UserError(f"{folder} has no class folders; put the images of each class in a folder of its own.")
    return inside


def _some(names: list[str]) -> str:
    """At most five of the names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
