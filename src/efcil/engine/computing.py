"""How a network is computed: its precision, as a compiled program, and with the same bits every time.

Only what is inside a backbone is computed in fewer bits. Its features come out in float32, so that losses, heads and
all that is kept of the classes (means, covariances, EFM, drift) have the precision that they always have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Convolutions and products within are computed in this precision."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=TYPES[precision])


def gradient_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Keeps small gradients from vanishing in fp16, whose range is short; in other precisions it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


@contextmanager
def compiled(network: nn.Module, wanted: bool) -> Iterator[None]:
    """The network runs as a compiled program within; afterwards it is the module that it was.

    For a lesson only: a method may later hang hooks on the layers, which a compiled program would not notice.
    """
    if not wanted:
        yield
        return
    network.compile()
    try:
        yield
    finally:
        network._compiled_call_impl = None


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """The same bits every time on the same GPU within; an operation that cannot promise that raises an error."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = benchmark
