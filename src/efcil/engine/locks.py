"""A lock on a file: one holder at a time, released by the system when its process ends, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from efcil.errors import UserError


@contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """Hold the lock; ``busy`` is the sentence for whoever finds it held, and without one they wait for it."""
    import fcntl  # not on Windows, where only commands that need a lock would notice

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except OSError:
            raise UserError(busy) from None
        yield
