"""Photos in class folders, or in a zip of them, every one decoded before anything is learnt from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import track

from efcil.classifier import IncrementalClassifier
from efcil.data.given import files_inside
from efcil.data.images import FILE_SIZE, HEIF, Files, ImageSet, Pixels, extensions
from efcil.data.sets.folder import class_folders, notes
from efcil.data.zips import ZippedFiles, image_members, zipped_folders
from efcil.engine.plan import numbered
from efcil.errors import UserError

LISTED = 20  # bad files that are named; the others are counted


@dataclass(frozen=True)
class Photos:
    """Images with the name of the class and the file of each."""

    images: ImageSet
    names: npt.NDArray[np.str_]
    paths: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def of(self, classes: Sequence[str]) -> Photos:
        """The photos of these classes."""
        rows = np.flatnonzero(np.isin(self.names, classes))
        return Photos(self.images.subset(torch.from_numpy(rows)), self.names[rows], [self.paths[row] for row in rows])


def read_photos(source: Path, classifier: IncrementalClassifier, skip_bad: bool, console: Console) -> Photos:
    """The photos of a folder or zip, decoded; bad files are listed one by one, and left out when that is wished."""
    size, interpolation = classifier.stored_size or FILE_SIZE, classifier.interpolation
    if source.is_file():
        listed, names = zipped_folders(source, size, interpolation)
        assert isinstance(listed.source, Files)
        files = listed.source
    elif source.is_dir():
        found = class_folders(source)
        phone = phone_photos(source, found.names)
        for note in notes(source, found.skipped - Counter(path.suffix.lower() for path in phone)):
            console.print(note, highlight=False, markup=False)
        files = Files([*found.paths, *map(str, phone)], size, interpolation)
        names = [*(found.names[label] for label in found.labels), *(path.parent.name for path in phone)]
    else:
        raise UserError(f"There is no folder or zip {source}.")
    good, bad = decoded(files, console)
    if bad:
        list_bad(bad, len(files), console)
        if not skip_bad:
            raise UserError("Nothing was learnt or measured; mend or remove these files, or add --skip-bad.")
    if not good:
        raise UserError(f"No file in {source} can be read as an image.")
    rows = sorted(good)
    pixels = torch.stack([good[row] for row in rows])
    return Photos(ImageSet(Pixels(pixels)), np.array(names)[rows], [str(files.paths[row]) for row in rows])


def phone_photos(source: Path, classes: Sequence[str]) -> list[Path]:
    """Photos in these class folders that only the plugin for the format of phones can read, if that is missing."""
    inside = (path for name in classes for path in sorted((source / name).iterdir()))
    return [path for path in inside if path.suffix.lower() in HEIF - extensions() and path.name[0] != "."]


def photo_files(given: Sequence[Path], classifier: IncrementalClassifier) -> list[Files]:
    """These files, all images inside these folders, and those inside these zips; no image is opened yet."""
    size, interpolation = classifier.stored_size or FILE_SIZE, classifier.interpolation
    found: list[Files] = []
    for path in given:
        if not path.exists():
            raise UserError(f"There is no file or folder {path}.")
        if path.suffix.lower() == ".zip" and path.is_file():
            found.append(ZippedFiles(path, image_members(path), size, interpolation))
        else:
            found.append(Files(files_inside(path) if path.is_dir() else [str(path)], size, interpolation))
    return found


def list_bad(bad: Sequence[str], files: int, console: Console) -> None:
    """Name files that cannot be read, or the first of very many."""
    console.print(f"{len(bad)} of {numbered(files, 'file')} cannot be read:", highlight=False)
    for sentence in bad[:LISTED]:
        console.print(f"  {sentence}", highlight=False, markup=False, soft_wrap=True)
    if len(bad) > LISTED:
        console.print(f"  and {len(bad) - LISTED} more", highlight=False)


def decoded(
    files: Files, console: Console, rows: Sequence[int] | None = None
) -> tuple[dict[int, torch.Tensor], list[str]]:
    """The pixels of every readable file by its place, of all or of these, and a sentence on each of the others."""
    good: dict[int, torch.Tensor] = {}
    bad: list[str] = []
    places = range(len(files)) if rows is None else rows

    def read(row: int) -> torch.Tensor | str:
        try:
            return files.read(torch.tensor([row]))[0]
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        results = pool.map(read, places)
        quiet = not console.is_terminal
        shown = track(results, "reading photos", len(places), console=console, transient=True, disable=quiet)
        for row, result in zip(places, shown, strict=True):
            if isinstance(result, str):
                bad.append(result)
            else:
                good[row] = result
    return good, bad
