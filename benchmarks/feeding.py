"""How many images a core makes ready for a network of 224 pixels: from JPEG files, and from one packed file.

    OMP_NUM_THREADS=1 python benchmarks/feeding.py

Images of 500 × 375 pixels, about as ImageNet has them, are made up. Each is decoded, resized to 256, cut at random to
224, turned over or not and normalised, by the very code that feeds a training step. "A core" is processor time, whoever
else uses the machine; ways take turns, and medians of the rounds are shown. Threads, or processes
(`worker_processes`), do it ahead of a training step; the processes' own time counts too.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

from efcil.data.augment import augmentation
from efcil.data.images import ImageSet, on_disk
from efcil.data.packed import packed
from efcil.data.prefetch import from_processes, prefetched
from efcil.engine.preprocessing import Preprocessing

READ, SHOWN, BATCH = 256, 224, 32
WAYS: tuple[tuple[str, Any, int], ...] = (
    ("no workers", prefetched, 0),
    ("2 threads", prefetched, 2),
    ("2 processes", from_processes, 2),
)


def photos(folder: Path, count: int) -> list[str]:
    """JPEG files whose size, about 70 kB, and time to decode are those of photos."""
    rng = np.random.default_rng(0)
    paths = []
    for index in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        grain = Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)).filter(ImageFilter.GaussianBlur(1))
        paths.append(str(folder / f"{index:04}.jpg"))
        Image.blend(coarse, grain, 0.3).save(paths[-1], quality=90)
    return paths


def changed(images: ImageSet, rows: torch.Tensor, seed: int) -> torch.Tensor:
    """The pixels of one batch, as a training step gets them."""
    return augmentation("resized_crop_flip", SHOWN)(images.batch(rows), torch.Generator().manual_seed(seed))


def ready(images: ImageSet, rows: torch.Tensor, seed: int) -> torch.Tensor:
    """One batch, ready for the network."""
    return preprocessing().normalised(changed(images, rows, seed), torch.device("cpu"))


def preprocessing() -> Preprocessing:
    return Preprocessing(size=SHOWN, stored=READ, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def walked(images: ImageSet, how: Callable[..., Iterator[torch.Tensor]], workers: int) -> float:
    """Processor seconds for all images once."""
    batches = torch.arange(len(images)).split(BATCH)
    job = changed if how is from_processes else ready
    jobs = [partial(job, images, rows, number) for number, rows in enumerate(batches)]
    start = processor_time()
    for batch in how(jobs, workers, BATCH * 4 * 3 * SHOWN * SHOWN):
        if job is changed:  # where processes read ahead, pixels are made floats where the step is computed
            preprocessing().normalised(batch, torch.device("cpu"))
    return processor_time() - start


def processor_time() -> float:
    """Of this process and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def decoded(images: ImageSet) -> float:
    """Processor seconds for reading alone."""
    cpu = time.process_time()
    for rows in torch.arange(len(images)).split(BATCH):
        images.batch(rows)
    return time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = photos(Path(folder), args.images)
        size = sum(Path(path).stat().st_size for path in paths) / args.images / 1e3
        print(f"{args.images} JPEG files of 500 × 375 pixels, {size:.0f} kB each on average")
        files = on_disk(paths, READ)
        start = time.process_time()
        one_file = packed(files, Path(folder) / "packed", workers=0)
        print(f"packing them once: {args.images / (time.process_time() - start):.0f} images/s of a core")
        found: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            for name, images in (("JPEG files", files), ("packed file", one_file)):
                found.setdefault(f"{name}: reading alone", []).append(decoded(images))
                for way, how, workers in WAYS:
                    found.setdefault(f"{name}: ready, {way}", []).append(walked(images, how, workers))
    for name, seconds in found.items():
        print(f"{name}: {args.images / median(seconds):.0f} images/s of a core")


if __name__ == "__main__":
    main()
