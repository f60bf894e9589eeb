"""Where a network computes."""

from __future__ import annotations

import torch

from efcil.errors import UserError


def chosen_device(name: str) -> torch.device:
    """The device of this name; auto: the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here ({str(error).splitlines()[0]}).") from None
