"""The text files beside images that say which image belongs to what, and their checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from efcil.errors import UserError


def read_lines(path: Path, remedy: str) -> list[str]:
    """The lines of a list file without the empty ones; it must be there, be text and hold something."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({os.strerror(error.errno or 0)}); {remedy}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file; {remedy}.") from None
    lines = [line for line in lines if line]
    if not lines:
        raise UserError(f"{path} is empty; {remedy}.")
    return lines


def checksum(path: Path, kind: str = "sha256") -> str:
    """The checksum of a file of any size, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
