"""Lessons one after another: each waits for those before it, is learnt in the other process, and then answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import HTTPException

from efcil.errors import UserError
from efcil.serve.jobs import Jobs, Lesson
from efcil.serve.learner import Learner
from efcil.serve.limits import Budget, Limits
from efcil.serve.served import Served

log = logging.getLogger("efcil.serve")
STOPPED = "The server was stopped before this lesson was done, so the model is as it was before it; teach it again."
PATIENCE = 10  # seconds that a model which is being written gets when the server stops


@dataclass
class Waiting:
    """A lesson with its photos, which nobody else has."""

    lesson: Lesson
    names: list[str]
    pixels: npt.NDArray[np.uint8]


class School:
    """The queue of lessons and the process that learns them."""

    def __init__(self, served: Served, jobs: Jobs, limits: Limits, budget: Budget) -> None:
        self.served = served
        self.jobs = jobs
        self.limits = limits
        self.budget = budget
        self.learner = Learner()
        self.changing = asyncio.Lock()  # lessons and other changes of the model, one at a time
        self.stopped = False
        self._waiting: deque[Waiting] = deque()
        self._saving = False
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def learning(self) -> bool:
        return bool(self.jobs.unfinished)

    def add(self, names: list[str], pixels: npt.NDArray[np.uint8]) -> Lesson:
        """Put a lesson into the queue; its photos count as memory until it is learnt."""
        if self.stopped:
            raise HTTPException(409, "The server is stopping; teach this lesson when it is back.")
        if len(self._waiting) >= self.limits.waiting:
            raise HTTPException(429, f"{len(self._waiting)} lessons are waiting already; send this one later.")
        if self.jobs.total >= self.limits.lessons:
            told = f"This model has had {self.jobs.total:,} lessons, which is as many as it may have here"
            raise HTTPException(409, f"{told}; raise the limit, or go on with a new model.")
        if not self.budget.take(pixels.nbytes):
            raise HTTPException(429, "The photos of other lessons fill the memory; send this one later.")
        lesson = self.jobs.add(dict(Counter(names)))
        self._waiting.append(Waiting(lesson, names, pixels))
        self._more.set()
        return lesson

    async def run(self) -> None:
        """Teach for ever."""
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            async with self.changing:
                if self._waiting:
                    self._idle.clear()
                    try:
                        await self._teach(self._waiting.popleft())
                    finally:
                        self._idle.set()

    async def _teach(self, waiting: Waiting) -> None:
        lesson, held = waiting.lesson, waiting.pixels.nbytes
        loop = asyncio.get_running_loop()
        self.jobs.change(lesson, status="running")

        def progress(said: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(lambda: self.jobs.change(lesson, progress=said))

        def learnt(said: dict[str, Any]) -> None:
            asyncio.run_coroutine_threadsafe(self._noted(lesson, said), loop).result()

        store = self.served.store
        task = {"model": str(store.path), "names": waiting.names, "choices": self.served.choices}
        pixels, waiting.pixels = waiting.pixels, np.empty(0, np.uint8)
        failed = ""
        try:
            await asyncio.to_thread(self.learner.teach, task, pixels, progress, learnt)
        except UserError as error:
            failed = STOPPED if self.stopped else str(error)
        except Exception as error:  # a mistake of ours; the next lesson shall be learnt all the same
            log.exception("A lesson failed.")
            failed = f"The lesson failed ({type(error).__name__}); the model is as it was before it."
        finally:
            self._saving = False
            self.budget.give(held)
        await self.served.reload_or_say()  # before it is called done: who then asks is answered by the new model
        if failed and not self._is_saved(lesson):
            self.jobs.change(lesson, status="failed", progress=None, report=None, place=None, error=failed)
        else:
            self.jobs.change(lesson, status="done", progress=None)
        log.info("lesson %s: %s", lesson.id, lesson.status)

    def _is_saved(self, lesson: Lesson) -> bool:
        """Whether the model has the lesson all the same: its process may end between saving it and saying so."""
        classifier = self.served.classifier
        return classifier is not None and lesson.is_in(classifier.lessons_)

    async def _noted(self, lesson: Lesson, said: dict[str, Any]) -> None:
        """Write down what the lesson came to before the model is saved, so that a restart can tell what happened."""
        if self.stopped:
            raise UserError(STOPPED)
        self.jobs.change(lesson, report=said["report"], place=said["place"])
        self._saving = True

    async def stop(self) -> None:
        """End the lesson under way and those that wait, and say so in the list; what is being saved is saved."""
        if self.stopped:
            return
        self.stopped = True
        while self._waiting:
            waiting = self._waiting.popleft()
            self.budget.give(waiting.pixels.nbytes)
            self.jobs.change(waiting.lesson, status="failed", error=STOPPED)
        if self._saving:
            try:
                await asyncio.wait_for(self._idle.wait(), PATIENCE)
            except TimeoutError:
                log.warning("The model could not be saved in %s seconds.", PATIENCE)
        self.learner.end()
        await self._idle.wait()
