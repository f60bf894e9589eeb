"""A zip of class folders in the place of a folder; nothing is unpacked, so no member escapes and none stays."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from efcil.data.images import Files, ImageSet, Interpolation, decode, extensions
from efcil.errors import UserError

MOST_MEMBERS = 50_000
MOST_BYTES = 8 << 30  # of all members together, expanded
MOST_MEMBER_BYTES = 256 << 20


class ZippedFiles(Files):
    """Image files inside an archive, decoded when they are read."""

    def __init__(self, archive: Path, paths: list[str], size: int, interpolation: Interpolation) -> None:
        super().__init__(paths, size, interpolation)
        self.archive = archive

    def read(self, rows: Tensor) -> Tensor:
        pixels = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        with zipfile.ZipFile(self.archive) as file:
            for place, row in enumerate(rows.tolist()):
                name = str(self.paths[row])
                try:
                    content = file.read(name)
                except Exception as error:  # each way to compress has errors of its own
                    said = str(error) or type(error).__name__
                    raise UserError(f"{self.archive}: {name!r} cannot be read ({said}); make the zip anew.") from None
                pixels[place] = decode(f"{self.archive}:{name}", self.size, self.interpolation, content)
        return pixels


def zipped_folders(archive: Path, size: int, interpolation: Interpolation) -> tuple[ImageSet, list[str]]:
    """The images of a zip of class folders, with the class of each; one folder around them all is looked through."""
    members = image_members(archive)
    inside = [PurePosixPath(member).parts for member in members]
    if all(len(parts) > 2 for parts in inside) and len({parts[0] for parts in inside}) == 1:
        inside = [parts[1:] for parts in inside]
    if not inside or any(len(parts) != 2 for parts in inside):
        raise UserError(f"{archive} must hold images in class folders, such as cat/1.jpg and dog/2.jpg.")
    return ImageSet(ZippedFiles(archive, members, size, interpolation)), [parts[0] for parts in inside]


def image_members(archive: Path) -> list[str]:
    """Names of the images in a zip, sorted, once its size is known to be harmless."""
    try:
        with zipfile.ZipFile(archive) as file:
            listed = [member for member in file.infolist() if not member.is_dir()]
    except Exception as error:  # broken lists of files end in more than BadZipFile
        said = str(error) or type(error).__name__
        raise UserError(f"{archive} cannot be read as a zip ({said}); make it anew.") from None
    if len(listed) > MOST_MEMBERS:
        raise UserError(f"{archive} has {len(listed):,} files, more than {MOST_MEMBERS:,}; split it.")
    if sum(member.file_size for member in listed) > MOST_BYTES:
        raise UserError(f"{archive} expands to more than {MOST_BYTES >> 30} GB; split it.")
    if any(member.file_size > MOST_MEMBER_BYTES for member in listed):
        raise UserError(f"{archive} holds a file of more than {MOST_MEMBER_BYTES >> 20} MB; remove it.")
    if any(member.flag_bits & 1 for member in listed):
        raise UserError(f"{archive} is protected by a password; make it anew without one.")
    names = sorted(member.filename for member in listed if is_photo(member.filename))
    escaping = [name for name in names if ".." in PurePosixPath(name).parts or name.startswith("/")]
    if escaping:
        raise UserError(f"{archive} holds {escaping[0]!r}, a path that leads out of it; make it anew.")
    return names


def is_photo(name: str) -> bool:
    """Whether a member is an image, and not what some systems put beside images."""
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts if part != "..")
    return path.suffix.lower() in extensions() and not hidden
