"""Photos in class folders, or in a zip of them, every one decoded before anything is learnt from the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import track

from efcil.classifier import IncrementalClassifier
from efcil.data.images import FILE_SIZE, Files, ImageSet, Pixels, on_disk
from efcil.data.sets.folder import class_folders, notes
from efcil.data.zips import zipped_folders
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


def read_photos(source: Path, classifier: IncrementalClassifier, skip_bad: bool, console: Console) -> Photos:
    """The photos of a folder or zip, decoded; bad files are listed one by one, and left out when that is wished."""
    size, interpolation = classifier.stored_size or FILE_SIZE, classifier.interpolation
    if source.is_file():
        listed, names = zipped_folders(source, size, interpolation)
    elif source.is_dir():
        found = class_folders(source)
        listed, names = on_disk(found.paths, size, interpolation), [found.names[label] for label in found.labels]
        for note in notes(source, found.skipped):
            console.print(note, highlight=False, markup=False)
    else:
        raise UserError(f"There is no folder or zip {source}.")
    assert isinstance(listed.source, Files)
    good, bad = decoded(listed.source, console)
    files = [str(path) for path in listed.source.paths]
    if bad:
        console.print(f"{len(bad)} of {len(files)} files cannot be read:", highlight=False)
        for sentence in bad[:LISTED]:
            console.print(f"  {sentence}", highlight=False, markup=False, soft_wrap=True)
        if len(bad) > LISTED:
            console.print(f"  and {len(bad) - LISTED} more", highlight=False)
        if not skip_bad:
            raise UserError("Nothing was learnt or measured; mend or remove these files, or add --skip-bad.")
    if not good:
        raise UserError(f"No file in {source} can be read as an image.")
    rows = sorted(good)
    pixels = torch.stack([good[row] for row in rows])
    return Photos(ImageSet(Pixels(pixels)), np.array(names)[rows], [files[row] for row in rows])


def decoded(files: Files, console: Console) -> tuple[dict[int, torch.Tensor], list[str]]:
    """The pixels of every readable file by its place, and a sentence on each of the others."""
    good: dict[int, torch.Tensor] = {}
    bad: list[str] = []

    def read(row: int) -> torch.Tensor | str:
        try:
            return files.read(torch.tensor([row]))[0]
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        results = pool.map(read, range(len(files)))
        quiet = not console.is_terminal
        shown = track(results, "reading photos", len(files), console=console, transient=True, disable=quiet)
        for row, result in enumerate(shown):
            if isinstance(result, str):
                bad.append(result)
            else:
                good[row] = result
    return good, bad
