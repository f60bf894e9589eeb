"""What a training loop tells whoever watches it; the default watcher is silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Report = Callable[[int, int], None]
"""Is told how much of a long stage is done, and how much there is of it."""

PLAIN = {
    "before the epochs": "getting ready",
    "extracting features": "looking at the photos",
    "after the epochs": "looking at the photos",
}
"""Stages in the words of people who teach a model their photos."""


@dataclass(frozen=True)
class Step:
    """One optimiser step, or the state of things at the end of an epoch."""

    task: int
    epoch: int
    epochs: int
    losses: dict[str, float]  # by name: of this step (on a GPU of the last one known), or averaged over the epoch
    images: int  # seen since the last report, with rotations, mixes and generated ones


class Watcher(Protocol):
    def step(self, step: Step) -> None:
        """After every optimiser step."""

    def epoch(self, step: Step) -> None:
        """After every epoch."""

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        """When something other than an epoch begins, and while it goes on if it is known how much there is of it."""


class Silent:
    """Watches and says nothing."""

    def step(self, step: Step) -> None: ...

    def epoch(self, step: Step) -> None: ...

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None: ...


def unreported(done: int, total: int) -> None:
    """For whoever need not know."""
