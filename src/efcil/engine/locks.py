"""A lock on a file: one holder at a time, released by the system when its process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from efcil.errors import Busy, UserError, cannot_write


@contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """Hold the lock; ``busy`` is the sentence for whoever finds it held, and without one they wait for it."""
    import fcntl  # not on Windows, where only commands that need a lock would notice

    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a")
        except OSError as error:
            raise cannot_write(path, error) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
            except BlockingIOError:
                raise Busy(busy) from None
            except OSError as error:  # a file system without locks
                raise UserError(
                    f"{path} cannot be locked ({error.strerror}); choose a place on another disk."
                ) from None
            if not _is_at(path, file.fileno()):
                continue  # whoever held it has removed the file meanwhile: others would lock a new one
            yield
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
