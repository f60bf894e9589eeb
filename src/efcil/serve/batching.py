"""Photos of several requests pass through the network together: waiting a few milliseconds makes larger batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from efcil.classifier import IncrementalClassifier
from efcil.data.images import ImageSet, Pixels
from efcil.engine.answers import Answers

WINDOW = 0.004  # seconds that a photo waits for others, if others are on their way
MOST = 8  # photos in one forward pass; on a CPU more of them take longer each (benchmarks/README.md)


@dataclass(frozen=True)
class Asked:
    """Photos of one request, not more than fit into a batch, and the model that shall answer."""

    classifier: IncrementalClassifier
    pixels: Tensor  # uint8 (N, 3, S, S)
    answer: asyncio.Future[Answers]


class Batcher:
    """Collects what is asked and answers it batch by batch, one at a time."""

    def __init__(
        self, window: float = WINDOW, most: int = MOST, watch: Callable[[int, int], None] | None = None
    ) -> None:
        self.window = window
        self.most = most
        self.watch = watch  # told the photos and the requests of each batch
        self.coming = 0  # requests that are being read or decoded and will ask soon
        self._asked: list[Asked] = []
        self._more = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Somebody is about to ask, so that waiting for them may pay."""
        self.coming += 1
        try:
            yield
        finally:
            self.coming -= 1
            self._more.set()

    async def answers(self, classifier: IncrementalClassifier, pixels: Tensor) -> Answers:
        """What this model says of these photos."""
        loop = asyncio.get_running_loop()
        parts = [Asked(classifier, part, loop.create_future()) for part in pixels.split(self.most)]
        self._asked += parts
        self._more.set()
        try:
            answers = [await part.answer for part in parts]
        finally:
            for part in parts:  # of a request that was given up
                part.answer.cancel()
        told = [answer.familiarity for answer in answers if answer.familiarity is not None]
        return Answers(np.concatenate([a.probabilities for a in answers]), np.concatenate(told) if told else None)

    async def run(self) -> None:
        """Answer for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._collected()
            batch = self._taken()
            if not batch:
                continue
            try:
                pixels = torch.cat([asked.pixels for asked in batch])
                answers = await loop.run_in_executor(
                    self._thread, batch[0].classifier.answers, ImageSet(Pixels(pixels))
                )
            except Exception as error:
                for asked in batch:
                    if not asked.answer.done():
                        asked.answer.set_exception(error)
                continue
            if self.watch is not None:
                self.watch(len(pixels), len(batch))
            self._hand_out(batch, answers)

    async def _collected(self) -> None:
        """Wait until there is something, and then a little for what is on its way."""
        loop = asyncio.get_running_loop()
        while not self._asked:
            self._more.clear()
            await self._more.wait()
        until = loop.time() + self.window
        while self.coming and sum(len(asked.pixels) for asked in self._asked) < self.most:
            left = until - loop.time()
            if left <= 0:
                return
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), left)
            except TimeoutError:
                return

    def _taken(self) -> list[Asked]:
        """The oldest questions to one model that fit into a batch."""
        self._asked = [asked for asked in self._asked if not asked.answer.done()]
        batch: list[Asked] = []
        photos = 0
        while self._asked:
            first = self._asked[0]
            if batch and (first.classifier is not batch[0].classifier or photos + len(first.pixels) > self.most):
                break
            batch.append(self._asked.pop(0))
            photos += len(first.pixels)
        return batch

    @staticmethod
    def _hand_out(batch: list[Asked], answers: Answers) -> None:
        start = 0
        for asked in batch:
            rows = slice(start, start + len(asked.pixels))
            usual = None if answers.familiarity is None else answers.familiarity[rows]
            if not asked.answer.done():
                asked.answer.set_result(Answers(answers.probabilities[rows], usual))
            start = rows.stop

    def close(self) -> None:
        self._thread.shutdown(wait=False)
