"""How much one request, one lesson and the server as a whole may ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from efcil.data.images import Bounds
from efcil.data.zips import EXPANDED_IN_STEPS
from efcil.errors import UserError

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "HEIF")
"""What is read of strangers, as Pillow calls it: photos. Some other formats start programs."""


@dataclass(frozen=True)
class Limits:
    """Each can be changed with --limit NAME=VALUE."""

    request_mb: float = 256  # of one request
    memory_mb: float = 1024  # of all uploads and of the photos of all waiting lessons together
    megapixels: float = 64  # of one image
    photos: int = 1000  # of one request
    archive_members: int = 2000  # files of one zip
    expanded_mb: float = 1024  # of all files of one zip together
    name_characters: int = 100  # of the name of a class
    waiting: int = 16  # lessons that wait for the one under way
    lessons: int = 10_000  # that one model is ever taught here
    seconds: float = 60  # for one request, from its first byte to the last of its answer
    requests: int = 128  # at the same time, those that watch a lesson included

    @property
    def request_bytes(self) -> int:
        return int(self.request_mb * (1 << 20))

    @property
    def bounds(self) -> Bounds:
        """What the files of strangers may be like."""
        return Bounds(
            pixels=int(self.megapixels * 1e6),
            formats=FORMATS,
            members=self.archive_members,
            expanded=int(self.expanded_mb * (1 << 20)),
            compressions=EXPANDED_IN_STEPS,
        )


WHOLE = ("photos", "archive_members", "name_characters", "waiting", "lessons", "requests")


def changed_limits(changes: Iterable[str]) -> Limits:
    """The limits with some of them changed, each given as NAME=VALUE."""
    names = [field.name for field in dataclasses.fields(Limits)]
    given: dict[str, Any] = {}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in names:
            raise UserError(f"There is no limit {name!r}; there are: {', '.join(names)}.")
        kind = "whole number" if name in WHOLE else "number"
        try:
            given[name] = int(value) if name in WHOLE else float(value)
        except ValueError:
            given[name] = 0
        if not 0 < given[name] < 1e12:
            raise UserError(f"The limit {name} must be a {kind} above 0, not {value!r}.")
    return Limits(**given)


class Budget:
    """Bytes that may be in memory at once for everybody together."""

    def __init__(self, bytes_: int) -> None:
        self.whole = bytes_
        self.taken = 0

    def take(self, count: int) -> bool:
        """Whether so many more may be held; then they count until they are given back."""
        if self.taken + count > self.whole:
            return False
        self.taken += count
        return True

    def give(self, count: int) -> None:
        self.taken -= count
