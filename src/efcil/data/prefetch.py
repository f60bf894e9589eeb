"""Work that a few threads, or processes, do ahead of whoever needs it; results come in order, whatever their number."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import current_process, get_context
from typing import Any, TypeVar

import torch
from torch import Tensor

from efcil.errors import UserError

T = TypeVar("T")
QUEUE = 8  # results that wait, at most, or twice the workers if those are many
QUEUE_BYTES = 512 << 20  # and at most so many bytes of them, but always two

_jobs: Sequence[Callable[[], Tensor]] = ()  # in a process that works ahead: what there is to do


def prefetched(jobs: Sequence[Callable[[], T]], workers: int, bytes_each: int) -> Iterator[T]:
    """The result of each job in turn, no more of them in memory than ``bytes_each``, the largest, allows."""
    if workers == 0:
        yield from (job() for job in jobs)
        return
    # Each computes with one core: with all of them, they would get in the way of each other and of the training step.
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from in_turn((pool.submit(job) for job in jobs), queue_length(workers, bytes_each))
    finally:  # also after an error, or when nobody wants the rest: do not begin what is still waiting
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(torch.get_num_threads())  # what this thread has, for threads to come


def worth_processes(jobs: int, workers: int) -> bool:
    """Whether so many jobs pay for processes, where the system can copy this one and it may have others."""
    return jobs >= 2 * workers > 0 and sys.platform == "linux" and not current_process().daemon


def from_processes(jobs: Sequence[Callable[[], Tensor]], workers: int, bytes_each: int) -> Iterator[Tensor]:
    """As prefetched(), from processes that begin as copies of this one: no job is sent, only its pixels come back."""
    pool = ProcessPoolExecutor(workers, get_context("fork"), begin, (jobs, os.getpid()))
    try:
        numbers = range(len(jobs))
        for pixels in in_turn(
            (pool.submit(result_of, number) for number in numbers), queue_length(workers, bytes_each)
        ):
            yield torch.from_numpy(pixels)
    except BrokenProcessPool:
        raise UserError(
            "A process that read images ahead is gone, perhaps for want of memory; use fewer workers, or leave "
            "worker_processes out."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_turn(futures: Iterator[Future[T]], length: int) -> Iterator[T]:
    """Their results, so many of them begun ahead."""
    ahead: deque[Future[T]] = deque()
    for future in futures:
        ahead.append(future)
        if len(ahead) == length:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def queue_length(workers: int, bytes_each: int) -> int:
    return min(max(QUEUE, 2 * workers), max(2, QUEUE_BYTES // max(1, bytes_each)))


def begin(jobs: Sequence[Callable[[], Tensor]], parent: int) -> None:
    """The start of a process that works ahead; whoever waits for it says when it ends, and it ends with them."""
    global _jobs
    _jobs = jobs
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def result_of(number: int) -> Any:
    """Pixels as an array, which goes through a pipe: shared memory is short in many containers."""
    return _jobs[number]().numpy()
