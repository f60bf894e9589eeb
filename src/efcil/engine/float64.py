"""Float64 for a device that has none, as Apple's mps: what is in float64 stands on the CPU, all else on the device.

Means, covariances, maps and regressions are computed in float64, in many places, and nobody there should have to know
where. So the rule is kept here, operation by operation: what would become float64 on the device is computed on the CPU
and stays there; an operation that looks at float64 beside numbers of the device is done on the CPU; and what comes out
of float64 in another type goes to the device. The matrices are small, features by features; only they travel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

WITHOUT = {"mps"}  # types of devices that have no float64
WIDE = (torch.float64, torch.complex128)
CPU = torch.device("cpu")


def float64_somewhere(device: torch.device) -> AbstractContextManager[object]:
    """Within, float64 can be used as if the device had it."""
    return Float64OnCPU(device) if device.type in WITHOUT else nullcontext()


class Float64OnCPU(TorchDispatchMode):
    """Sends each operation to the CPU or the device, by the types of its numbers."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there = any(self._is_there(tensor) for tensor in tensors)
        wide = any(tensor.dtype in WIDE for tensor in tensors)  # these stand on the CPU
        target = kwargs.get("device")
        to_there = target is not None and torch.device(target).type == self.device.type
        becomes_wide = kwargs.get("dtype") in WIDE or (wide and kwargs.get("dtype") is None)
        if func is torch.ops.aten.copy_.default:
            return self._copied(func, args, kwargs)
        if to_there and becomes_wide:
            kwargs["device"] = CPU
        elif not (wide or (there and becomes_wide)):
            return func(*args, **kwargs)
        if there:
            changed = args[0] if func._schema.is_mutable and isinstance(args[0], Tensor) else None
            args, kwargs = tree_map(self._here, (args, kwargs))
            if changed is not None and self._is_there(changed):
                changed.copy_(func(*args, **kwargs).to(changed.dtype))
                return changed
        made = func(*args, **kwargs)
        return made if target is not None else tree_map(self._placed, made)

    def _copied(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A copy crosses over by itself, but not while its type changes from one that the device does not have."""
        into, source, *rest = args
        if self._is_there(into) and source.dtype in WIDE:
            source = source.to(into.dtype)
        elif self._is_there(source) and into.dtype in WIDE:
            source = source.cpu()
        return func(into, source, *rest, **kwargs)

    def _is_there(self, tensor: Tensor) -> bool:
        return tensor.device.type == self.device.type

    def _here(self, leaf: Any) -> Any:
        return leaf.cpu() if isinstance(leaf, Tensor) and self._is_there(leaf) else leaf

    def _placed(self, leaf: Any) -> Any:
        moves = isinstance(leaf, Tensor) and leaf.dtype not in WIDE and not self._is_there(leaf)
        return leaf.to(self.device) if moves else leaf
