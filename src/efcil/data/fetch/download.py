"""Fetch an image set: download with resume and checksum, then unpack; nothing half-done is ever left in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from efcil.data import DATA_SETS
from efcil.data.dataset import found
from efcil.data.fetch.archives import ARCHIVES, Archive
from efcil.data.fetch.unpack import unpack
from efcil.data.sets.lists import checksum
from efcil.errors import UserError, unknown

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # connections per call; each goes on where the one before broke off
PAUSE = 1.0  # seconds between them
CHUNK = 1 << 18

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if the server says


@dataclass(frozen=True)
class Fetched:
    """Where a set is, and whether it was there before."""

    name: str
    folder: Path
    already_there: bool

    def __str__(self) -> str:
        return f"{self.name} is {'already ' if self.already_there else ''}in {self.folder}."


class _BrokenOff(Exception):
    """The connection ended before the file did."""


def get(name: str, root: Path, progress: Progress | None = None) -> Fetched:
    """Put the image set of this name into its folder in ``root``, unless it is there."""
    archive = _archive(name)
    there = found(root, archive.folder, archive.needs)
    if there is not None:
        return Fetched(name, there, already_there=True)
    folder, file = root / archive.folder, root / archive.file
    if folder.exists():
        raise UserError(f"{folder} exists but holds no {archive.needs}; move it away and try again.")
    _make(root)
    brought = file.exists()  # by hand, or by an earlier call that could not unpack
    if not brought:
        _download(archive, file, progress or (lambda done, total: None))
    elif (digest := checksum(file, "md5")) != archive.md5:
        raise UserError(
            f"{file} has the md5 {digest} instead of {archive.md5}, so it is not {archive.url}; "
            "delete it and try again."
        )
    unpack(file, folder, archive.max_bytes, archive.max_files)
    if not brought:
        file.unlink()
    return Fetched(name, folder, already_there=False)


def _archive(name: str) -> Archive:
    if name in ARCHIVES:
        return ARCHIVES[name]
    if name in DATA_SETS:
        layout = DATA_SETS[name].layout
        raise UserError(f"{name} cannot be fetched automatically; it is expected as {layout}.")
    raise unknown("data set", name, DATA_SETS)


def _make(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {root} cannot be made ({error.strerror}); choose another --data-root.") from None


def _download(archive: Archive, file: Path, progress: Progress) -> None:
    """The archive as ``file``; what came before a failure stays in ``file.partial`` for the next call."""
    partial = file.with_name(f"{file.name}.partial")
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        if partial.exists() and checksum(partial, "md5") == archive.md5:  # an earlier call was killed at the very end
            break
        try:
            _transfer(archive, partial, progress)
            break
        except _BrokenOff as error:
            reason = str(error)
            if _size(partial) == 0:  # nothing ever came: no network, or no such server
                raise _by_hand(archive, file, reason) from None
    else:
        raise _by_hand(archive, file, reason)
    digest = checksum(partial, "md5")
    if digest != archive.md5:
        partial.unlink()
        raise UserError(
            f"{archive.url} came with the md5 {digest} instead of {archive.md5}; it was damaged on the way or has "
            f"changed: try again, or fetch it by hand to {file}."
        )
    os.replace(partial, file)


def _transfer(archive: Archive, partial: Path, progress: Progress) -> None:
    """One connection: ask for what is missing in ``partial`` and append it."""
    start = _size(partial)
    headers = {"User-Agent": "efcil"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urlopen(Request(archive.url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # longer than the file of the server: not a part of it
            partial.unlink()
        raise _BrokenOff(f"the server answers {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise _BrokenOff(str(error.reason if isinstance(error, URLError) else error)) from None
    with response:
        if response.status != 206:  # the server does not know how to go on: all of it again
            start = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            partial.unlink()
            raise _BrokenOff("the server went on at the wrong place")
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        try:
            with partial.open("ab" if start else "wb") as file:
                done = start
                while content := _read(response):
                    file.write(content)
                    done += len(content)
                    progress(done, total)
                    if done > archive.max_bytes:
                        raise UserError(f"{archive.url} sends far more than the image set has; fetch it by hand.")
        except OSError as error:
            raise UserError(f"{partial} cannot be written ({error.strerror}); make room and try again.") from None
    if total is not None and done < total:
        raise _BrokenOff(f"the connection broke off after {done:,} of {total:,} bytes")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, HTTPException) as error:
        raise _BrokenOff(f"the connection broke off: {error}") from None


def _by_hand(archive: Archive, file: Path, reason: str) -> UserError:
    return UserError(
        f"{archive.url} cannot be fetched ({reason}); try again later to go on, or fetch it by hand, put it at {file}, "
        "and run the same command again."
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
