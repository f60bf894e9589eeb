"""Where a network computes."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from efcil.errors import UserError

PINNED = ("cuda",)  # devices to which memory that is pinned can travel while both sides go on working


def chosen_device(name: str) -> torch.device:
    """The device of this name; auto: the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        why = "torch knows none of that name" if said.startswith("Expected one of") else said.rstrip(".")
        raise UserError(f"The device {name!r} cannot be used here ({why}); auto and cpu always can.") from None


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device; nobody waits for the copy where it can be made meanwhile."""
    if device.type in PINNED and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def kept_randomness(device: torch.device) -> AbstractContextManager[None]:
    """What is drawn within changes nothing for those who draw later, from the CPU's numbers or this device's."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])  # the default would wake every GPU
