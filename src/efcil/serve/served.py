"""The model that answers: one in memory, replaced in one step whenever the file has become another."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor

from efcil.classifier import IncrementalClassifier
from efcil.data.images import FILE_SIZE, Interpolation
from efcil.errors import UserError
from efcil.teaching.new import new_classifier
from efcil.teaching.store import Store

log = logging.getLogger("efcil.serve")
Stamp = tuple[int, int, int]


class Served:
    """The model in memory. Who has begun with one ends with it; who comes later gets the new one."""

    def __init__(self, store: Store, choices: dict[str, object]) -> None:
        self.store = store
        self.choices = choices  # what a new model is made of
        self.classifier: IncrementalClassifier | None = None
        self._stamp: Stamp | None = None
        self._loading = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        # Always the same thread: each thread that has loaded a model keeps memory for the next.
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._untaught: IncrementalClassifier | None = None

    async def reload(self) -> None:
        """Take the file as it is now; the model from before answers until the new one is ready."""
        async with self._loading:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            try:
                loop = asyncio.get_running_loop()
                classifier = await loop.run_in_executor(self._loader, self.store.load) if stamp else None
            except UserError:
                self._stamp = stamp  # a file that cannot be used is not tried again and again
                raise
            self.classifier, self._stamp = classifier, stamp

    def refresh(self) -> None:
        """Look in the background whether somebody else has changed the file."""
        if self._stamp_now() != self._stamp and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self.reload_or_say())

    async def reload_or_say(self) -> None:
        """Take the file as it is now; one that cannot be used is told in the log, and nothing else stops for it."""
        try:
            await self.reload()
        except Exception as error:
            log.warning("The model before goes on answering: %s", str(error) or type(error).__name__)

    def _stamp_now(self) -> Stamp | None:
        try:
            seen = os.stat(self.store.path)
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def close(self) -> None:
        self._loader.shutdown(wait=False)

    def sight(self) -> tuple[int, Interpolation]:
        """The side that photos are read with, and how they are resized; of a new model too."""
        if self.classifier is None and self._untaught is None:
            self._untaught = new_classifier(**self.choices)  # type: ignore[arg-type]
        model = self.classifier or self._untaught
        assert model is not None
        return model.stored_size or FILE_SIZE, model.interpolation
