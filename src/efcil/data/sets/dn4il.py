"""DN4IL: six domains of DomainNet with the same 100 classes each, split by list files; every listed image is used."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path, PurePosixPath

from efcil.data.dataset import DataSet, existing
from efcil.data.sets.folder import parts
from efcil.data.sets.imagenet import SIZE
from efcil.data.sets.lists import checksum, read_lines
from efcil.errors import UserError

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")  # in the order of the paper
CLASSES = 100  # of each domain
REMEDY = "get the lists of DN4IL again"


def load(root: Path | None, size: int | None) -> DataSet:
    """``root/dn4il/<domain>/<class>/*`` as listed in ``<domain>_train.txt`` and ``<domain>_test.txt``.

    The lists lie in the same folder or in ``splits`` inside it. Label = 100 · domain + class; a class is called
    ``domain/class``.
    """
    folder = existing(root, "dn4il", DOMAINS[0], "put the domains of DN4IL there, or check --data-root")
    paths: dict[str, list[str]] = {"train": [], "test": []}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    names: list[str] = []
    sources: dict[str, str] = {}
    for domain in DOMAINS:
        classes: dict[int, str] = {}
        seen: set[str] = set()
        first = len(names)
        for part in ("train", "test"):
            file = folder / "splits" / f"{domain}_{part}.txt"
            file = file if file.exists() else folder / file.name
            for image, label in _read_list(file, folder, domain, classes, seen):
                paths[part].append(image)
                labels[part].append(first + label)
            sources[file.name] = checksum(file)
            if sorted(classes) != list(range(CLASSES)) or len(set(classes.values())) != CLASSES:
                raise UserError(
                    f"{file} does not give {CLASSES} classes the labels 0 to {CLASSES - 1}, one each "
                    f"({len(classes)} labels, {len(set(classes.values()))} classes); {REMEDY}."
                )
        names += [f"{domain}/{classes[label]}" for label in range(CLASSES)]
    domains = [name.partition("/")[0] for name in names]
    data = parts(paths["train"], labels["train"], paths["test"], labels["test"], names, size or SIZE, domains)
    return dataclasses.replace(data, sources=sources)


def _read_list(file: Path, folder: Path, domain: str, classes: dict[int, str], seen: set[str]) -> list[tuple[str, int]]:
    """Path and label of each line ``domain/class/image label``, checked against the lines read before."""
    listed = []
    for line in read_lines(file, REMEDY):
        image, _, number = line.rpartition(" ")
        where = PurePosixPath(image).parts
        if len(where) != 3 or where[0] != domain or ".." in where or not number.isdecimal():
            raise UserError(f"{file} has the line {line!r} instead of '{domain}/class/image label'; {REMEDY}.")
        label = int(number)
        if classes.setdefault(label, where[1]) != where[1]:
            raise UserError(f"{file} uses label {label} for {where[1]} and for {classes[label]}; {REMEDY}.")
        if image in seen:
            raise UserError(f"{file} names {image} a second time, here or in the other list; {REMEDY}.")
        path = os.path.join(folder, *where)
        if not os.path.isfile(path):
            raise UserError(f"{file} names {image}, which is not in {folder}; unpack the domain {domain} again.")
        seen.add(image)
        listed.append((path, label))
    return listed
