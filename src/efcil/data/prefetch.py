"""Work that a few threads do ahead of whoever needs it; the results come in order, whatever the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
QUEUE = 8  # results that wait, at most, or twice the threads if those are many
QUEUE_BYTES = 512 << 20  # and at most so many bytes of them, but always two


def prefetched(jobs: Sequence[Callable[[], T]], workers: int, bytes_each: int) -> Iterator[T]:
    """The result of each job in turn, no more of them in memory than ``bytes_each``, the largest, allows."""
    if workers == 0:
        yield from (job() for job in jobs)
        return
    length = min(max(QUEUE, 2 * workers), max(2, QUEUE_BYTES // max(1, bytes_each)))
    # Each computes with one core: with all of them, they would get in the way of each other and of the training step.
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        ahead: deque[Future[T]] = deque()
        for job in jobs:
            ahead.append(pool.submit(job))
            if len(ahead) == length:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:  # also after an error, or when nobody wants the rest: do not begin what is still waiting
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(torch.get_num_threads())  # what this thread has, for threads to come
