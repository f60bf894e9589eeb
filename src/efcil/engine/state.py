"""Files that hold tensors and what they mean: safetensors with a JSON header, written whole or not at all.

No pickle, so reading a file never runs code. docs/state-format.md says what is inside.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from efcil.engine import distributed
from efcil.errors import UserError, cannot_write

VERSION = 2  # of what is written; every version since the first is read
LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it
# What reading a broken or forged file raises; a KeyError is a type that torch has not.
UNREADABLE = (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError)
PARTIAL = ".partial"  # how the name of a file ends that is being written


def write(path: Path, kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and a JSON description; a reader sees the old file or the new one, never half of it."""
    plain = unshared({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())})
    header = {"format": "efcil", "version": VERSION, "kind": kind, **meta}
    header["checksum"] = checksum(plain, header)
    # A single entry: the library does not keep the order of several, and equal states should be equal files.
    write_bytes(path, save(plain, {"efcil": json.dumps(header, sort_keys=True)}))


def read(path: Path, kind: str, keys: Mapping[str, type] | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file of this kind, or one sentence on why it cannot be used.

    ``keys`` are the ones that its description must have, with their types.
    """
    if path.is_dir():
        raise UserError(f"There is no file {path}, it is a folder.")
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    try:
        with path.open("rb") as file:  # once: whoever replaces the file meanwhile leaves this one whole
            words = words_beside(file)
            if words is None:
                raise UserError(f"{path} is not an efcil model; give a file that `efcil learn` wrote.")
            header = json.loads(words.get("efcil", "null"))
            if not isinstance(header, dict) or header.get("format") != "efcil":
                raise UserError(f"{path} was not written by efcil; give a file that IncrementalClassifier.save made.")
            if header.get("version") not in range(1, VERSION + 1):
                raise UserError(
                    f"{path} has format version {header.get('version')}, not one of 1 to {VERSION}; upgrade efcil."
                )
            if header.get("kind") != kind:
                raise UserError(f"{path} holds a {header.get('kind')}, not a {kind}.")
            file.seek(0)
            loaded = load(file.read())
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged or cannot be read ({error}); restore it from a copy.") from None
    tensors = {name: loaded.pop(name).clone() for name in list(loaded)}  # aligned as torch likes it
    if header.pop("checksum", None) != checksum(tensors, header):
        raise UserError(f"{path} is damaged (its checksum does not match); restore it from a copy.")
    for name, expected in (keys or {}).items():
        if type(header.get(name)) is not expected:
            raise UserError(f"{path} has no {name} of type {expected.__name__} inside; restore it from a copy.")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.isnan().any():
            raise UserError(f"{path} cannot be used: {name} holds NaN; restore it from a copy.")
    return tensors, header


def words_beside(file: BinaryIO) -> dict[str, Any] | None:
    """The words beside the tensors of a safetensors file, which begins with eight bytes, a length, and JSON so long.

    None where there is no such JSON: a file of some other kind.
    """
    length = int.from_bytes(file.read(8), "little")
    described = file.read(min(length, LONGEST_HEADER))
    if not described.startswith(b"{"):
        return None
    words = json.loads(described).get("__metadata__")
    return words if isinstance(words, dict) else {}


def unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, none in the memory of another, as tied weights are; each is written for itself."""
    seen: set[int] = set()
    own = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        own[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return own


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """A fingerprint of the description and of every tensor's name, type, shape and bytes, but for times."""
    described = {name: value for name, value in header.items() if name != "times"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step; of several processes that work together the first one does."""
    if not distributed.is_first():
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            with suppress(OSError):  # where nothing can be written, nothing was
                partial.unlink()
    except OSError as error:
        raise cannot_write(path, error) from None


def remove_partial(folder: Path, name: str = "") -> None:
    """Remove what processes that were killed while writing have left of this file or of all files in the folder.

    Only for who has them to himself: others may be writing right now.
    """
    for partial in folder.glob(f".{glob.escape(name)}*{PARTIAL}"):
        partial.unlink()


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under ``prefix.``."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def section(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of prefixed()."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
