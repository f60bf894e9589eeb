"""A name for what is about to be learnt: settings, numerics, every image, and the weights it starts from.

Checkpoints and shared first tasks are accepted by it, so two tasks that could end differently never share one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from efcil.data.images import Files, ImageSet
from efcil.engine import numerics, state
from efcil.errors import UserError


def fingerprint(described: Any, weights: Mapping[str, Tensor], *images: ImageSet) -> str:
    """The SHA-256 of a description in JSON, of tensors with their names, and of images."""
    on_cpu = {name: tensor.detach().cpu() for name, tensor in weights.items()}
    digest = hashlib.sha256(state.checksum(on_cpu, {"described": described, "numerics": numerics.VERSION}).encode())
    for image_set in images:
        digest.update(f"{len(image_set)} images of {image_set.size} pixels".encode())
        update_with(digest, image_set)
    return digest.hexdigest()


def update_with(digest: Any, images: ImageSet) -> None:
    """Every pixel of images in memory; of files on disk, which may be many, path, size and time of the last change."""
    if isinstance(images.source, Files):
        for row in images.rows.tolist():
            path = os.path.abspath(images.source.paths[row])
            try:
                about = os.stat(path)
            except OSError as error:
                raise UserError(f"The image file {path!r} cannot be read: {error.strerror}.") from None
            digest.update(json.dumps([path, about.st_size, about.st_mtime_ns]).encode())
        return
    for rows in torch.arange(len(images)).split(1024):
        digest.update(images.batch(rows).contiguous().numpy().data)
