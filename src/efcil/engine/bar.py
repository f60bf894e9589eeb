"""A bar for one lesson, in a terminal or a notebook; elsewhere it says nothing."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from efcil.engine.progress import Step


def is_watched() -> bool:
    """Whether somebody is likely to look: a terminal, or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Bar:
    """Shows the plan of a lesson and how far it has come; closed at its end."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=self.console, transient=True
        )
        self.row = self.progress.add_task("", total=None)
        self.images = self.seen = 0  # of all epochs, and so far
        self.progress.start()

    def begin(self, plan: str, images: int) -> None:
        """Say what the lesson will do; so many images pass through its epochs."""
        self.console.print(plan, highlight=False, markup=False)
        self.progress.update(self.row, total=images or None)
        self.images = images

    def close(self) -> None:
        self.progress.stop()

    def step(self, step: Step) -> None:
        if not self.seen:  # in a lesson that was resumed, earlier epochs count as done
            self.seen = self.images * step.epoch // step.epochs
        self.seen += step.images
        description = f"epoch {step.epoch + 1}/{step.epochs}"
        self.progress.update(self.row, description=description, total=self.images or None, completed=self.seen)

    def epoch(self, step: Step) -> None: ...

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        """Something other than an epoch: as a bar of its own where it says how far it has come."""
        if total:
            self.progress.update(self.row, description=name, total=total, completed=done)
        else:
            self.progress.update(self.row, description=name)
