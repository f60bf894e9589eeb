"""Several processes that learn one model together, as torchrun starts them; with one nothing here does anything.

    torchrun --nproc-per-node 2 -m efcil run digits-cold5

Every process goes through the same code with the same random numbers, so all of them know the same at any time, and a
batch is as large as the settings say, whatever the number of processes. Only what costs is shared out: views of images
and passes without gradients by turns (``by_turns``), the rows of a training batch (shards.py). Work is shared out
within ``together()`` alone, where all processes are known to be; everywhere else each computes for itself. The first
process is the only one that writes and prints. docs/scale.md says what that means for each method.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from efcil.errors import Notice, UserError

T = TypeVar("T")

SILENCE = timedelta(minutes=30)  # after which a process that hears nothing of the others gives up
FIRST_SPEAKS = 2.0  # seconds that others leave the first process to say what has gone wrong
SPOKEN = "spoken"  # the key of the store that counts who has


class LostProcess(RuntimeError):
    """Another process has gone, or does not answer."""


@dataclass(frozen=True)
class Job:
    """This process among those that torchrun has started."""

    rank: int
    world: int
    store: Any  # where processes leave words for each other, also while they cannot compute together


_job: Job | None = None
_together = False


def launched() -> bool:
    """Whether torchrun has started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Whether torchrun has started this process anew after one had failed; also where only one is left."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def processes(silence: timedelta = SILENCE) -> Iterator[None]:
    """Join the other processes of torchrun; if something goes wrong, one of them says so and all end."""
    global _job
    if not launched() or _job is not None:
        yield
        return
    try:
        with warnings.catch_warnings():
            _job = _joined(silence)
            if not is_first():
                warnings.simplefilter("ignore", Notice)  # the first process has said it
            yield
    except BaseException as error:
        if not _speaks():
            raise SystemExit(2 if isinstance(error, UserError) else 1) from None
        if _job is not None and not is_first() and isinstance(error, UserError):
            where = f"process {_job.rank + 1} of {_job.world}, on {socket.gethostname()}"
            raise UserError(f"{where}: {error}") from None
        raise
    finally:
        _job = None
        if dist.is_initialized():
            dist.destroy_process_group()


def _joined(silence: timedelta) -> Job:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if here > gpus:
            raise UserError(f"{here} processes but {gpus} GPUs on this host; torchrun --nproc-per-node {gpus} fits.")
        torch.cuda.set_device(local)  # what "cuda" means from now on
    with _talking():
        store, rank, world = next(rendezvous("env://", timeout=silence))
        store = part_of_these(store, rank, world, silence)
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=silence)
    return Job(rank, world, store)


def part_of_these(store: Any, rank: int, world: int, silence: timedelta) -> Any:
    """The part of a store that these processes alone know, once all are there.

    torchrun keeps its store when it starts processes anew, so the addresses of those that have gone are still in it,
    and whoever comes first would call them. Each leaves a number that was never used before; all have come when all
    have seen the same ones.
    """
    store.set(f"here/{rank}", uuid4().hex)
    until, seen = time.monotonic() + silence.total_seconds(), ""
    while time.monotonic() < until:
        numbers = b"".join(store.multi_get([f"here/{place}" for place in range(world)]))
        now = hashlib.sha256(numbers).hexdigest()
        if store.add(now, int(now != seen)) == world:
            return PrefixStore(now, store)
        seen = now
        time.sleep(0.05)
    raise RuntimeError("not all have come")


def _speaks() -> bool:
    """Whether this process is the one that tells the user what has gone wrong; the first one is asked first."""
    if _job is None:
        return True
    try:
        if not is_first():
            until = time.monotonic() + FIRST_SPEAKS
            while time.monotonic() < until and not _job.store.check([SPOKEN]):
                time.sleep(0.1)
        return bool(_job.store.add(SPOKEN, 1) == 1)
    except RuntimeError:  # nobody is left to ask
        return True


@contextmanager
def _talking() -> Iterator[None]:
    """What torch says of lost connections, as one sentence."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).strip().partition("\n")[0][-120:]
        raise LostProcess(
            f"another process of this job has failed or does not answer ({said}); with torchrun --max-restarts N the "
            "job starts again from its last checkpoint, up to N times."
        ) from error


# Who is there


def is_first() -> bool:
    """Whether this process writes and prints."""
    return _job is None or _job.rank == 0


@contextmanager
def together() -> Iterator[None]:
    """All processes go through what is within, and share it out."""
    with _sharing(_job is not None):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Each process computes what is within for itself, all of it."""
    with _sharing(False):
        yield


@contextmanager
def _sharing(value: bool) -> Iterator[None]:
    global _together
    before, _together = _together, value
    try:
        yield
    finally:
        _together = before


def world() -> int:
    """Among how many processes work is shared out here and now."""
    return _job.world if _together and _job is not None else 1


def rank() -> int:
    """The place of this process among them, from 0."""
    return _job.rank if _together and _job is not None else 0


# What the first process knows, for all


def from_first(compute: Callable[[], T]) -> T:
    """What the first process makes of it; the others do not compute it, and get it from there."""
    if _job is None:
        return compute()
    found = [compute() if is_first() else None]
    with _talking():
        dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
    return cast(T, found[0])


@contextmanager
def copy_of_first(path: Path) -> Iterator[Path]:
    """A file of the first process; others see a copy of it meanwhile, because hosts need not share their files."""
    content = None if _job is None else from_first(lambda: path.read_bytes() if path.is_file() else None)
    if is_first():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        if content is not None:
            copy.write_bytes(content)
        yield copy


@torch.no_grad()
def align(tensors: Iterable[Tensor]) -> None:
    """Give all the numbers of the first process: what each has computed for itself may be rounded otherwise."""
    if world() == 1:
        return
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    for group in kinds.values():
        numbers = torch.cat([tensor.detach().reshape(-1) for tensor in group])
        with _talking():
            dist.broadcast(numbers, src=0)
        if rank():
            for tensor, part in zip(group, numbers.split([tensor.numel() for tensor in group]), strict=True):
                tensor.copy_(part.view(tensor.shape))


# Work that is shared out


def dealt(jobs: Sequence[T]) -> Sequence[T]:
    """Those that it is this process's turn to do."""
    return jobs[rank() :: world()]


def by_turns(own: Iterator[Tensor], shapes: Sequence[Sequence[int]], device: torch.device) -> Iterator[Tensor]:
    """What all processes make of the jobs dealt to them, in the order of the jobs: float32 tensors of these shapes."""
    place, count = rank(), world()
    if count == 1:
        yield from own
        return
    for start in range(0, len(shapes), count):
        turn = shapes[start : start + count]
        mine = next(own).contiguous() if place < len(turn) else None
        for owner, shape in enumerate(turn):
            tensor = mine if owner == place and mine is not None else torch.empty(*shape, device=device)
            with _talking():
                dist.broadcast(tensor, src=owner)
            yield tensor


def share(total: int) -> tuple[int, int]:
    """The first of this process's rows out of so many, and the first that is no longer its own."""
    return rank() * total // world(), (rank() + 1) * total // world()


def summed(tensor: Tensor) -> Tensor:
    """The sum of the tensors of all processes, the same everywhere."""
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    with _talking():
        dist.all_reduce(total)
    return total


def gathered(own: Tensor, total: int) -> Tensor:
    """All rows, of which each process has its share()."""
    sizes = [(place + 1) * total // world() - place * total // world() for place in range(world())]
    padded = own.new_zeros(max(sizes), *own.shape[1:])  # all shares must have one size; they differ by a row at most
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in sizes]
    with _talking():
        dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
