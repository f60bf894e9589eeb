"""Your own images: a folder per class, or a folder per domain with a folder per class in each.

With parts named ``train`` and ``test`` (or ``val``) those are used; otherwise every fifth image of a class, in name
order, is a test image.
"""

from __future__ import annotations

from pathlib import Path

import torch

from efcil.data.dataset import DataSet, every_fifth, existing
from efcil.data.images import EXTENSIONS, FILE_SIZE, files
from efcil.errors import UserError


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/<class>/*`` or ``root/train/<class>/*`` with ``root/test/<class>/*``."""
    folder = existing(root)
    parts = [folder / name for name in ("train", "test", "val") if (folder / name).is_dir()]
    if len(parts) < 2 or parts[0].name != "train":
        paths, labels, names = class_folders(folder)
        return every_fifth(files(paths, size or FILE_SIZE), labels, names)
    paths, labels, names = class_folders(parts[0])
    test_paths, test_labels, test_names = class_folders(parts[1])
    if test_names != names:
        odd = sorted(set(names) ^ set(test_names))
        raise UserError(f"{parts[0]} and {parts[1]} have different classes ({', '.join(odd[:5])}); make them agree.")
    side = size or FILE_SIZE
    return DataSet(files(paths, side), torch.tensor(labels), files(test_paths, side), torch.tensor(test_labels), names)


def load_domains(root: Path | None, size: int | None) -> DataSet:
    """``root/<domain>/<class>/*``; a class of a domain is called ``domain/class``."""
    folder = existing(root)
    paths: list[Path] = []
    labels: list[int] = []
    names: list[str] = []
    domains: list[str] = []
    for domain in _subfolders(folder):
        more_paths, more_labels, more_names = class_folders(domain)
        paths += more_paths
        labels += [len(names) + label for label in more_labels]
        names += [f"{domain.name}/{name}" for name in more_names]
        domains += [domain.name] * len(more_names)
    return every_fifth(files(paths, size or FILE_SIZE), labels, names, domains)


def class_folders(folder: Path) -> tuple[list[Path], list[int], list[str]]:
    """Image paths in name order, the index of the class of each, and the class names."""
    paths: list[Path] = []
    labels: list[int] = []
    classes = _subfolders(folder)
    for label, class_folder in enumerate(classes):
        inside = sorted(path for path in class_folder.iterdir() if path.suffix.lower() in EXTENSIONS)
        if not inside:
            raise UserError(f"The class folder {class_folder} holds no images; fill it or remove it.")
        paths += inside
        labels += [label] * len(inside)
    return paths, labels, [class_folder.name for class_folder in classes]


def _subfolders(folder: Path) -> list[Path]:
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not inside:
        raise UserError(f"{folder} has no class folders; put the images of each class in a folder of its own.")
    return inside
