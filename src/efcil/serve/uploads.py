"""Uploads become pixels without ever being on disk: a form is read into memory, each photo is decoded from there."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from fastapi import HTTPException, Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from torch import Tensor

from efcil.data.images import Bounds, Files, Interpolation, decode
from efcil.data.zips import check_directory, zipped_folders
from efcil.errors import TooLarge, UserError
from efcil.serve.limits import Limits

TOLD = 200  # characters of a file's name in an answer


class Uploads(Files):
    """Image files in memory, decoded when they are read."""

    def __init__(
        self, files: Sequence[tuple[str, bytes]], size: int, interpolation: Interpolation, bounds: Bounds
    ) -> None:
        super().__init__([name for name, _ in files], size, interpolation)
        self.contents = [content for _, content in files]
        self.bounds = bounds

    def read(self, rows: Tensor) -> Tensor:
        pixels = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = decode(self.paths[row], self.size, self.interpolation, self.contents[row], self.bounds)
        return pixels


@dataclass
class Form:
    """What a form brought."""

    words: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)  # by field: name and content of each


async def read_form(request: Request, limits: Limits, words: Sequence[str], files: Sequence[str]) -> Form:
    """The form of a request with these fields and no others, all of it in memory."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise HTTPException(415, "Send a form of the type multipart/form-data, as curl does with -F.")
    parser = MultiPartParser(request.headers, request.stream(), max_files=limits.photos, max_fields=8)
    parser.spool_max_size = limits.request_bytes + 1  # more never comes, so nothing is put into a temporary file
    try:
        parsed = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise TooLarge(f"A request brings at most {limits.photos:,} photos; send the others in another.") from None
        raise UserError(f"The form cannot be read ({error.message.rstrip('.')}); send it anew.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The request was cut off; send it anew.") from None
    form = Form()
    try:
        for name, value in parsed.multi_items():
            if name in words and isinstance(value, str):
                form.words[name] = value
            elif name in files and isinstance(value, UploadFile):
                content = value.file.read()
                value.file.close()  # one copy in memory is enough
                form.files.setdefault(name, []).append(((value.filename or "")[:TOLD], content))
            else:
                wanted = ", ".join([*(f"{file} (files)" for file in files), *words])
                raise UserError(f"The form has an unexpected field {name[:TOLD]!r}; send {wanted}.")
    finally:
        for _, value in parsed.multi_items():
            if isinstance(value, UploadFile):
                value.file.close()
    return form


def zipped(content: bytes, size: int, interpolation: Interpolation, limits: Limits) -> tuple[Any, list[str]]:
    """The photos inside a zip of class folders, none decoded yet, and the class of each."""
    check_directory(content, limits.bounds)
    listed, names = zipped_folders(io.BytesIO(content), size, interpolation, limits.bounds)
    if len(names) > limits.photos:
        raise TooLarge(f"A request brings at most {limits.photos:,} photos; send the others in another.")
    return listed.source, names
