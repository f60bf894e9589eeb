"""A program of torch.export in one file, which PyTorch alone can load and run."""

from __future__ import annotations

import io
import json
from typing import Any

import torch

from efcil.export.program import quietly

ABOUT = "efcil.json"  # the name of the description among the extra files


def torch_bytes(program: torch.export.ExportedProgram, about: dict[str, Any]) -> bytes:
    """The program and its description as the content of a .pt2 file."""
    file = io.BytesIO()
    with quietly():
        torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})
    return file.getvalue()
