"""Your own images: a folder per class, or a folder per domain with a folder per class in each.

With parts named ``train`` and ``test`` (or ``val``) those are used; otherwise about a fifth of the images of a class,
chosen by their names, are test images. The readers of public image sets share the functions below.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from efcil.data.dataset import DataSet, existing, split_by_name
from efcil.data.images import FILE_SIZE, REMEDIES, extensions, on_disk
from efcil.errors import UserError


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/<class>/*`` or ``root/train/<class>/*`` with ``root/test/<class>/*``."""
    folder = existing(root)
    parts = [folder / name for name in ("train", "test", "val") if (folder / name).is_dir()]
    if len(parts) >= 2 and parts[0].name == "train":
        return train_and_test(parts[0], parts[1], size or FILE_SIZE)
    paths, labels, names, skipped = class_folders(folder)
    return _split(folder, paths, labels, names, skipped, size)


def load_domains(root: Path | None, size: int | None) -> DataSet:
    """``root/<domain>/<class>/*``; a class of a domain is called ``domain/class``."""
    folder = existing(root)
    paths: list[str] = []
    labels: list[int] = []
    names: list[str] = []
    domains: list[str] = []
    inside, skipped = _subfolders(folder)
    for domain in inside:
        more = class_folders(folder / domain)
        paths += more.paths
        labels += [len(names) + label for label in more.labels]
        names += [f"{domain}/{name}" for name in more.names]
        domains += [domain] * len(more.names)
        skipped += more.skipped
    return _split(folder, paths, labels, names, skipped, size, domains)


def _split(
    folder: Path,
    paths: list[str],
    labels: list[int],
    names: list[str],
    skipped: Counter[str],
    size: int | None,
    domains: list[str] | None = None,
) -> DataSet:
    """The file name alone decides, not its folder: pictures of one thing in several domains often share it."""
    files = [os.path.basename(path) for path in paths]
    data = split_by_name(on_disk(paths, size or FILE_SIZE), files, labels, names, domains)
    return dataclasses.replace(data, notes=notes(folder, skipped))


def train_and_test(train: Path, test: Path, size: int, classes: Sequence[str] | None = None) -> DataSet:
    """Two folders of the same class folders as the two parts of a set."""
    one, other = class_folders(train, classes), class_folders(test, classes)
    if one.names != other.names:
        odd = _some(sorted(set(one.names) ^ set(other.names)))
        raise UserError(f"{train} and {test} have different classes ({odd}); make them agree.")
    data = parts(one.paths, one.labels, other.paths, other.labels, one.names, size)
    return dataclasses.replace(data, notes=notes(train, one.skipped) + notes(test, other.skipped))


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


class ClassFolders(NamedTuple):
    """The images of a folder of class folders."""

    paths: list[str]
    """Image paths, class by class, in name order."""
    labels: list[int]
    """The index of the class of each."""
    names: list[str]
    """The class names."""
    skipped: Counter[str]
    """How many of what lies among them was left out: endings such as ".txt", and NESTED and LOOSE."""


NESTED, LOOSE = "nested", "loose"
SYSTEM = {"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "lost+found"}


def class_folders(folder: Path, classes: Sequence[str] | None = None, inside: str = "") -> ClassFolders:
    """The images of each class, which lie in the folder with its name.

    ``classes`` are the folders to use, in this order (all of them, sorted); the images lie in their folder ``inside``.
    """
    paths: list[str] = []
    labels: list[int] = []
    names, skipped = _subfolders(folder) if classes is None else (list(classes), Counter[str]())
    empty: list[str] = []
    for label, name in enumerate(names):
        found, others = _images(folder / name / inside)
        skipped += others
        if not found:
            empty.append(name)
        paths += [os.path.join(folder, name, inside, file) for file in found]  # text: a Path each would cost gigabytes
        labels += [label] * len(found)
    if empty:
        which = f"folder {folder / empty[0]} holds" if len(empty) == 1 else f"folders {_some(empty)} in {folder} hold"
        besides = f" (left out in {folder}: {_counted(skipped)})" if skipped else ""
        raise UserError(f"The class {which} no images; fill or remove what is empty{besides}.")
    return ClassFolders(paths, labels, names, skipped)


def image_names(folder: Path) -> list[str]:
    """Names of the image files in a folder, sorted."""
    return _images(folder)[0]


def notes(folder: Path, skipped: Counter[str]) -> list[str]:
    """One sentence on what was left out, or none; what systems leave behind in folders is not worth one."""
    if not skipped:
        return []
    return [f"In {folder} only images directly inside a class folder are read; left out: {_counted(skipped)}."]


def _images(folder: Path) -> tuple[list[str], Counter[str]]:
    """Names of the image files in a folder, sorted, and a count of what else is there."""
    found: list[str] = []
    skipped: Counter[str] = Counter()
    readable = extensions()
    for entry in _entries(folder):
        suffix = os.path.splitext(entry.name)[1].lower()
        if entry.is_dir():
            skipped[NESTED] += 1
        elif suffix in readable:
            found.append(entry.name)
        else:
            skipped[suffix] += 1
    return sorted(found), skipped


def _subfolders(folder: Path) -> tuple[list[str], Counter[str]]:
    """Names of the folders in a folder, sorted, and a count of the files beside them."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; check that the images are complete.")
    entries = _entries(folder)
    inside = sorted(entry.name for entry in entries if entry.is_dir())
    if not inside:
        raise UserError(f"{folder} has no class folders; put the images of each class in a folder of its own.")
    loose = len(entries) - len(inside)
    return inside, Counter({LOOSE: loose} if loose else {})


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, without what is hidden and what systems and archivers leave behind."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name[0] != "." and entry.name.lower() not in SYSTEM]
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"The folder {folder} cannot be read ({reason}); check that the images are complete.") from None


def _counted(skipped: Counter[str]) -> str:
    """Such as "3 .txt files, 1 folder inside class folders"; with what would read a kind that is an image."""
    parts = []
    for kind, count in sorted(skipped.items()):
        files = "file" if count == 1 else "files"
        if kind == NESTED:
            parts.append(f"{count} {'folder' if count == 1 else 'folders'} inside class folders")
        elif kind == LOOSE:
            parts.append(f"{count} {files} beside the class folders")
        else:
            remedy = f" ({REMEDIES[kind]})" if kind in REMEDIES else ""
            parts.append(f"{count} {kind} {files}{remedy}" if kind else f"{count} {files} without an ending")
    return ", ".join(parts)


def _some(names: list[str]) -> str:
    """At most five of the names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
