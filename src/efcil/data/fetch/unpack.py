"""Unpack a tar or zip archive that may be hostile: plain files and folders only, inside one folder, within limits.

Everything goes into a temporary folder beside the target and is moved there in one step, so that the target is
either complete or not there.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from efcil.errors import UserError

DAMAGE = (  # all that reading an archive can raise, encrypted entries (RuntimeError) included
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
)


@dataclass(frozen=True)
class Member:
    """One entry of an archive."""

    name: str
    kind: str  # file, folder, or anything else, which is refused
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, target: Path, max_bytes: int, max_files: int) -> None:
    """Unpack the archive, which must hold the folder ``target.name`` and nothing beside it, to ``target``."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(archive, temporary, target.name, max_bytes, max_files)
        os.rename(temporary / target.name, target)
    except DAMAGE as error:
        raise UserError(f"{archive} is damaged ({error}); delete it and get it again.") from None
    except OSError as error:
        raise UserError(
            f"{archive} cannot be unpacked to {target} ({error.strerror}); make room, or move away what is there."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(archive: Path, into: Path, folder: str, max_bytes: int, max_files: int) -> None:
    total = 0
    for count, member in enumerate(_members(archive, max_bytes)):
        where = PurePosixPath(member.name)
        inside = where.parts[:1] == (folder,) and ".." not in where.parts
        if not inside or "\\" in member.name or "\0" in member.name:  # also refuses absolute paths, by their first part
            raise UserError(f"{archive} wants to write {member.name!r} outside of {folder}; do not use it.")
        if member.kind not in ("file", "folder"):
            raise UserError(f"{archive} holds {member.name!r}, which is neither a file nor a folder; do not use it.")
        total += member.size
        if count >= max_files or total > max_bytes:
            raise UserError(f"{archive} unpacks to far more than the image set has; do not use it.")
        path = into / where
        if member.kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        source = member.open()
        if source is None:
            raise UserError(f"{archive} holds {member.name!r} without its content; delete it and get it again.")
        with source, path.open("xb") as file:  # x: no entry may replace another
            shutil.copyfileobj(source, file, 1 << 20)
            if file.tell() != member.size:
                raise UserError(f"{archive} ends in the middle of {member.name!r}; delete it and get it again.")
    if not (into / folder).is_dir():
        raise UserError(f"{archive} does not hold the folder {folder}; delete it and get it again.")


def _members(archive: Path, max_bytes: int) -> Iterator[Member]:
    return _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive, max_bytes)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            mode = info.external_attr >> 16  # Unix; 0 when the archive comes from elsewhere
            plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
            kind = ("folder" if info.is_dir() else "file") if plain else "link or device"
            yield Member(info.filename, kind, info.file_size, partial(packed.open, info))


def _tar_members(archive: Path, max_bytes: int) -> Iterator[Member]:
    # Read as a stream, through a counter: a bomb may hide in what tarfile reads for itself, such as long names.
    with _Counted(archive, max_bytes) as raw, tarfile.open(fileobj=raw, mode="r|") as packed:
        for info in packed:
            kind = "folder" if info.isdir() else "file" if info.isreg() and not info.issparse() else "link or device"
            yield Member(info.name, kind, info.size, partial(packed.extractfile, info))


class _Counted(gzip.GzipFile):
    """A compressed file that refuses to unpack to more than so many bytes."""

    def __init__(self, archive: Path, max_bytes: int) -> None:
        super().__init__(archive, "rb")
        self.archive, self.left = archive, max_bytes

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.left -= len(content)
        if self.left < 0:
            raise UserError(f"{self.archive} unpacks to far more than the image set has; do not use it.")
        return content
