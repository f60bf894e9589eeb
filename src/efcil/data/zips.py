"""A zip of class folders in the place of a folder; nothing is unpacked, so no member escapes and none stays."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

import torch
from torch import Tensor

from efcil.data.images import ANY, Bounds, Files, ImageSet, Interpolation, decode, extensions
from efcil.errors import TooLarge, UserError, WrongType

Archive = Path | IO[bytes]  # on disk, or in memory
END = struct.Struct("<4sHHHHIIH")  # the last record of an archive: its files, the bytes of their list, …
TAIL = END.size + 0xFFFF  # bytes at the end in which that record is
ENTRY = 1024  # bytes that one file takes in the list, generously
EXPANDED_IN_STEPS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways to compress of which no more is expanded than is asked for, whatever the archive says of its size."""


class ZippedFiles(Files):
    """Image files inside an archive, decoded when they are read."""

    def __init__(
        self, archive: Archive, paths: list[str], size: int, interpolation: Interpolation, bounds: Bounds = ANY
    ) -> None:
        super().__init__(paths, size, interpolation)
        self.archive = archive
        self.bounds = bounds

    def read(self, rows: Tensor) -> Tensor:
        pixels = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        with zipfile.ZipFile(self.archive) as file:
            for place, row in enumerate(rows.tolist()):
                name = str(self.paths[row])
                try:
                    with file.open(name) as member:
                        content = member.read(file.getinfo(name).file_size)
                except Exception as error:  # each way to compress has errors of its own
                    said = str(error) or type(error).__name__
                    told = f"{shown(self.archive)}: {name!r} cannot be read ({said}); make the zip anew."
                    raise UserError(told) from None
                path = f"{shown(self.archive)}:{name}"
                pixels[place] = decode(path, self.size, self.interpolation, content, self.bounds)
        return pixels


def zipped_folders(
    archive: Archive, size: int, interpolation: Interpolation, bounds: Bounds = ANY
) -> tuple[ImageSet, list[str]]:
    """The images of a zip of class folders, with the class of each; one folder around them all is looked through."""
    members = image_members(archive, bounds)
    inside = [PurePosixPath(member).parts for member in members]
    if all(len(parts) > 2 for parts in inside) and len({parts[0] for parts in inside}) == 1:
        inside = [parts[1:] for parts in inside]
    if not inside or any(len(parts) != 2 for parts in inside):
        raise UserError(f"{shown(archive)} must hold images in class folders, such as cat/1.jpg and dog/2.jpg.")
    return ImageSet(ZippedFiles(archive, members, size, interpolation, bounds)), [parts[0] for parts in inside]


def image_members(archive: Archive, bounds: Bounds = ANY) -> list[str]:
    """Names of the images in a zip, sorted, once its size is known to be harmless."""
    try:
        with zipfile.ZipFile(archive) as file:
            listed = [member for member in file.infolist() if not member.is_dir()]
    except Exception as error:  # broken lists of files end in more than BadZipFile
        said = str(error) or type(error).__name__
        raise WrongType(f"{shown(archive)} cannot be read as a zip ({said}); make it anew.") from None
    name = shown(archive)
    if len(listed) > bounds.members:
        raise TooLarge(f"{name} has {len(listed):,} files, more than {bounds.members:,}; split it.")
    if sum(member.file_size for member in listed) > bounds.expanded:
        raise TooLarge(f"{name} expands to more than {megabytes(bounds.expanded)}; split it.")
    if any(member.file_size > bounds.member for member in listed):
        raise TooLarge(f"{name} holds a file of more than {megabytes(bounds.member)}; remove it.")
    if any(member.flag_bits & 1 for member in listed):
        raise UserError(f"{name} is protected by a password; make it anew without one.")
    if bounds.compressions is not None and any(member.compress_type not in bounds.compressions for member in listed):
        raise UserError(f"{name} is compressed in an unusual way; make it anew as an ordinary zip.")
    photos = sorted(member.filename for member in listed if is_photo(member.filename))
    escaping = [photo for photo in photos if ".." in PurePosixPath(photo).parts or photo.startswith("/")]
    if escaping:
        raise UserError(f"{name} holds {escaping[0]!r}, a path that leads out of it; make it anew.")
    return photos


def check_directory(content: bytes, bounds: Bounds) -> None:
    """Refuse a list of files that is longer than the limit before anybody reads all of it, as zipfile would."""
    tail = content[-TAIL:]
    for place in {len(tail) - END.size, tail.rfind(b"PK\5\6")}:  # where zipfile looks
        if not 0 <= place <= len(tail) - END.size or tail[place : place + 4] != b"PK\5\6":
            continue
        *_, files, length, _, _ = END.unpack_from(tail, place)
        if tail[max(0, place - 20) :][:4] == b"PK\6\7" or files > bounds.members or length > bounds.members * ENTRY:
            raise TooLarge(f"the zip lists more than {bounds.members:,} files, or very long names; split it.")


def shown(archive: Archive) -> str:
    """What an archive is called in a sentence."""
    return str(archive) if isinstance(archive, Path) else "the zip"


def megabytes(count: int) -> str:
    return f"{count >> 30} GB" if count >= 1 << 30 else f"{count / (1 << 20):g} MB"


def is_photo(name: str) -> bool:
    """Whether a member is an image, and not what some systems put beside images."""
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts if part != "..")
    return path.suffix.lower() in extensions() and not hidden
