"""What a training step costs each of two processes, against one that does it all.

    OMP_NUM_THREADS=1 python benchmarks/processes.py --width 32

CPU seconds of the busier process, and not those of a clock on the wall, so that other work on the machine does not
count. One and two processes take turns; the best of each is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from efcil.backbones import build_backbone
from efcil.config import ClassifierConfig
from efcil.engine import distributed
from efcil.engine.model import placed
from efcil.rng import generator

STEPS = 4


def cpu_seconds(width: int, rows: int, frozen: bool) -> float:
    """Of a step, after one that warms up, in the busier process."""
    cpu, stem = torch.device("cpu"), ClassifierConfig().stem
    model = placed(build_backbone("resnet18", width, stem, 1, 32, generator(0, "backbone")), cpu)
    model.grow(10, generator(0, "head"))
    if frozen:
        model.freeze_batchnorm()
    model.train()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    images = torch.randn(rows, 3, 32, 32, generator=generator(0, "x")).contiguous(memory_format=torch.channels_last)
    columns = torch.arange(rows) % 10
    begun = 0.0
    for step in range(STEPS + 1):
        begun = time.process_time() if step == 1 else begun
        optimizer.zero_grad()
        F.cross_entropy(model(images), columns).backward()
        optimizer.step()
    own = torch.full((1,), (time.process_time() - begun) / STEPS)
    return float(distributed.gathered(own, distributed.world()).max()) if distributed.world() > 1 else float(own)


def measured(count: int, arguments: list[str]) -> float:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    command = [sys.executable, *launcher, str(Path(__file__).resolve()), "--measure", *arguments]
    said = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return float(json.loads(said.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rows", type=int, default=64, help="images of the whole batch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--frozen", action="store_true", help="BatchNorm as in later tasks")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        torch.set_num_threads(1)
        with distributed.processes(), distributed.together():
            seconds = cpu_seconds(args.width, args.rows, args.frozen)
            if distributed.is_first():
                print(json.dumps(seconds))
        return
    arguments = ["--width", str(args.width), "--rows", str(args.rows), *(["--frozen"] if args.frozen else [])]
    rounds = [(measured(1, arguments), measured(2, arguments)) for _ in range(args.rounds)]
    one, two = (min(times) for times in zip(*rounds, strict=True))
    print(f"width {args.width}, {args.rows} images, BatchNorm {'frozen' if args.frozen else 'trained'}: ", end="")
    print(f"one process {1000 * one:.0f} ms, each of two {1000 * two:.0f} ms of CPU, {one / two:.2f} times less")


if __name__ == "__main__":
    main()
