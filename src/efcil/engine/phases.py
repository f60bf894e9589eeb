"""How long each phase of a task takes (Fig. 12): a phase within another takes its time away from the outer one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Phases:
    """Seconds by the name of the phase; ``wait`` is called at every change, for devices that work on alone."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self._wait = wait
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0  # when the innermost phase was last begun or taken up again

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """What is done within counts for this phase."""
        self._account()
        self._open.append(name)
        try:
            yield
        finally:
            self._account()
            self._open.pop()

    @property
    def seconds(self) -> dict[str, float]:
        """So far, the phase that is going on included."""
        self._account()
        return dict(self._seconds)

    def add(self, seconds: Mapping[str, float]) -> None:
        """Time that was spent elsewhere, as by a run that was cut off."""
        for name, value in seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + value

    def _account(self) -> None:
        if self._open:
            self._wait()
        now = time.monotonic()
        if self._open:
            self.add({self._open[-1]: max(0.0, now - self._since)})  # a clock may go back
        self._since = now
