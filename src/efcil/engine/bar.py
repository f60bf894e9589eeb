"""What a person sees of one lesson while it is learnt."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from efcil.engine.progress import PLAIN, Step


def is_watched() -> bool:
    """Whether somebody is likely to look: a terminal, or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Bar:
    """Says what a lesson will do, and, in a terminal or notebook, how far it has come."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not is_watched())
        self.row = self.progress.add_task(PLAIN["before the epochs"], total=None)
        self.images = self.seen = 0  # of all epochs, and so far

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def begin(self, plan: str, images: int) -> None:
        """Say what the lesson will do; so many images pass through its epochs."""
        self.console.print(plan, highlight=False, markup=False, soft_wrap=True)
        self.progress.update(self.row, total=images or None)
        self.images = images

    def step(self, step: Step) -> None:
        if not self.seen:  # in a lesson that was resumed, earlier epochs count as done
            self.seen = self.images * step.epoch // step.epochs
        self.seen += step.images
        description = f"epoch {step.epoch + 1}/{step.epochs}"
        self.progress.update(self.row, description=description, total=self.images or None, completed=self.seen)

    def epoch(self, step: Step) -> None: ...

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        """Something other than an epoch: as a bar of its own where it says how far it has come."""
        description = PLAIN.get(name, name)
        if total:
            self.progress.update(self.row, description=description, total=total, completed=done)
        else:
            self.progress.update(self.row, description=description)
