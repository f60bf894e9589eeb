"""Images of a set in one file, resized: read once from their own files, and from then on from this one.

Decoding a JPEG of a camera takes milliseconds, its pixels in a file that the system maps into memory take microseconds.
The file is a plain .npy array, uint8 (N, 3, S, S), made on first use. Its name has a digest of what is in it: the paths
of the images, their sizes and times, the side and the way of resizing. So a set that has changed gets a new file.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from efcil.data.images import Files, ImageSet, image_bytes
from efcil.errors import UserError, cannot_write

TOGETHER = 64  # images that are decoded as one piece of work
PARTIAL = ".partial"


class Packed(Files):
    """Images whose pixels are in one file; their own files are not opened."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files.paths, files.size, files.interpolation)
        self.path = path

    @cached_property
    def pixels(self) -> Any:
        """The array, of which only what is read comes into memory."""
        try:
            pixels = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{self.path} cannot be read ({error}); remove it, and it is made anew.") from None
        if pixels.dtype != np.uint8 or pixels.shape != (len(self), 3, self.size, self.size):
            raise UserError(f"{self.path} holds other images than its name says; remove it, and it is made anew.")
        return pixels

    def read(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(self.pixels[rows.numpy()]))


def packed(images: ImageSet, folder: Path, workers: int) -> ImageSet:
    """The same images, their pixels in a file of this folder, which is made if it is not there yet."""
    files = images.source
    if type(files) is not Files:  # in memory, or packed already
        return images
    if folder.exists() and not folder.is_dir():
        raise UserError(f"data.packed must name a folder, and {folder} is a file.")
    path = folder / f"{os.path.basename(os.path.commonpath(files.paths))}-{files.size}px-{digest(files)}.npy"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with one_at_a_time(path):
                if not path.exists():
                    write(files, path, workers)
        except OSError as error:
            raise cannot_write(path, error) from None
    return ImageSet(Packed(files, path), images.rows)


def digest(files: Files) -> str:
    """A name for these images as they are now; they are not opened."""
    found = hashlib.sha256(json.dumps([1, files.size, files.interpolation]).encode())
    for path in files.paths:
        try:
            about = os.stat(path)
        except OSError as error:
            raise UserError(f"The image file {os.fspath(path)!r} cannot be read: {error.strerror}.") from None
        found.update(json.dumps([os.path.abspath(path), about.st_size, about.st_mtime_ns]).encode())
    return found.hexdigest()[:16]


def write(files: Files, path: Path, workers: int) -> None:
    """Make the file beside its place and move it there when it is whole.

    It is written from its beginning to its end: a full disk is an error then, and not a signal that ends the process.
    """
    needed, free = len(files) * image_bytes(files.size), shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(f"{path} needs {needed / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free; make room.")
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), 3, files.size, files.size)}
    groups = torch.arange(len(files)).split(TOGETHER)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            batches = ImageSet(files).batches(groups, workers)
            for pixels in shown(batches, len(groups), f"packing {path.name}"):
                file.write(pixels.numpy().data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def shown(batches: Iterator[Tensor], total: int, what: str) -> Iterator[Tensor]:
    """The same, with a bar where somebody looks."""
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    return iter(track(batches, what, total, console=Console(stderr=True), transient=True, disable=not watched))


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Others who want the same file wait until it is there; on a disk without locks each makes its own."""
    import fcntl  # not on Windows

    with path.with_name(f".{path.name}.lock").open("a") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in path.parent.glob(f".{path.name}.*{PARTIAL}"):  # of processes that were killed
                left.unlink()
        yield
