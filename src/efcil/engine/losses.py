"""The losses of an epoch, read from the device many at a time: a reading waits until the device has caught up."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

READ_SECONDS = 2.0  # a device is asked at most so often within an epoch, for whoever watches and to stop in time


class EpochLosses:
    """Named terms of every step; what is read is summed up, and the last of it shown."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self.totals: dict[str, float] = {}  # averages over the epoch, of the steps that were read
        self.latest: dict[str, float] = {}  # of the last step that was read
        self.steps = steps
        self._at_once = device.type == "cpu"  # where nobody has to wait for anything
        self._unread: list[tuple[tuple[str, ...], Tensor]] = []
        self._read_at = time.monotonic()

    def add(self, terms: Mapping[str, Tensor]) -> list[dict[str, float]]:
        """Take the terms of a step; what was read now, step by step: on a CPU this one, elsewhere mostly none."""
        self._unread.append((tuple(terms), torch.stack([term.detach() for term in terms.values()])))
        due = not 0 <= time.monotonic() - self._read_at < READ_SECONDS  # also if the clock has gone back
        return self.read() if self._at_once or due else []

    def read(self) -> list[dict[str, float]]:
        """The terms of every step that has not been read yet."""
        if not self._unread:
            return []
        values = iter(torch.cat([terms for _, terms in self._unread]).tolist())
        steps = [{name: next(values) for name in names} for names, _ in self._unread]
        for losses in steps:
            for name, value in losses.items():
                self.totals[name] = self.totals.get(name, 0.0) + value / self.steps
        self.latest, self._unread, self._read_at = steps[-1], [], time.monotonic()
        return steps
