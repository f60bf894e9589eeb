"""EFC++ at the size of ImageNet-1K with made-up features: time and peak memory of every step against the formulas.

    OMP_NUM_THREADS=1 python benchmarks/imagenet_scale.py --out scale.json --plot docs/figures/imagenet-scale.svg

1,000 classes in 20 steps, 1,300 images of each, 512 features. The images are 64 coloured pixels and the network is one
random layer that turns a little with every task: all else is what `efcil run imagenet1k-cold20` runs after the epochs
of a task, from features in chunks to drift, re-balancing, prototypes and EFM. Re-balancing takes one epoch: of a tenth
of the images, so of a tenth of the draws, in all steps but the last, and of all of them in the last.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from efcil import IncrementalClassifier
from efcil.engine import context
from efcil.engine.context import Context
from efcil.methods import METHODS
from efcil.methods.efc_plus_plus import EFCPlusPlus

FEATURES = 512
WORKING = 12 * 4 * context.AT_ONCE  # bytes: chunks of two networks in three copies each, draws and their noise


class OneLayer(nn.Module):
    """192 numbers of an image become 512 features, none of them negative."""

    feature_dim = FEATURES

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x.flatten(1)))


class Watched(EFCPlusPlus):
    """EFC++ whose stages after a task are timed one by one."""

    steps: ClassVar[list[dict[str, float]]] = []
    last = 19
    share = 10

    def after_task(self, ctx: Context) -> None:
        with torch.no_grad():  # the epochs that are not run would have moved the network
            for parameter in ctx.model.backbone.parameters():
                parameter.add_(0.02 * parameter.std() * torch.randn(parameter.shape, generator=ctx.rng))
        seconds: dict[str, float] = {}
        reset_peak()
        if not ctx.first:
            seconds["drift"] = timed(lambda: self.memory.update_prototypes(ctx))
            rows = torch.arange(0, len(ctx.columns), 1 if ctx.task == self.last else self.share)
            part = replace(ctx, images=ctx.images.subset(rows), columns=ctx.columns[rows])
            seconds["re-balancing"] = timed(lambda: self.rebalance(part))
        seconds["statistics"] = timed(lambda: self.memory.remember(ctx))
        kept = sum(tensor.nbytes for tensor in self.memory.state().values())
        self.steps.append(
            {**seconds, "kept": kept, "peak": peak(), "now": now(), "classes": len(self.memory.prototypes)}
        )
        print({name: round(value, 2) for name, value in self.steps[-1].items()}, flush=True)


def timed(work: Any) -> float:
    """CPU seconds, which other processes on the machine do not lengthen much."""
    start = time.process_time()
    work()
    return time.process_time() - start


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    return status("VmHWM")


def now() -> int:
    return status("VmRSS")


def status(name: str) -> int:
    """Bytes of this process, as the system counts them."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def images_of(classes: range, per_class: int) -> tuple[Any, Any]:
    """Noise around one colour and one shade per class."""
    labels = np.repeat(np.array(classes), per_class)
    rng = np.random.default_rng(classes.start)
    colours = rng.integers(60, 196, (len(classes), 8, 8, 3), dtype=np.uint8)
    noise = rng.integers(0, 60, (len(labels), 8, 8, 3), dtype=np.uint8)
    noise += colours[labels - classes.start]
    return noise, labels


def kept_formula(classes: int, per_class: int) -> int:
    """4 n Σ min(N_c − 1, n) + 4 m n + 16 m + 4 n²."""
    n = FEATURES
    return 4 * n * classes * min(per_class - 1, n) + 4 * classes * n + 16 * classes + 4 * n * n


def plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    steps = found["steps"]
    classes = [step["classes"] for step in steps]
    figure, (memory, seconds) = pyplot.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    memory.plot(classes, [step["peak"] / 1e9 for step in steps], "o", label="peak, measured", color="#b3261e")
    memory.plot(
        classes, [step["formula"] / 1e9 for step in steps], "-", label="start + 2 kept + working", color="#b3261e"
    )
    memory.plot(classes, [step["kept"] / 1e9 for step in steps], "s", ms=4, label="kept, measured", color="#1a5fb4")
    memory.plot(classes, [step["kept_formula"] / 1e9 for step in steps], "-", label="kept, formula", color="#1a5fb4")
    memory.axhline(4, color="grey", lw=0.8, ls=":")
    memory.set(xlabel="classes", ylabel="GB", ylim=(0, 4.2), title="memory")
    memory.legend(fontsize=8)
    for name, colour in (("statistics", "#1a5fb4"), ("drift", "#26a269"), ("re-balancing", "#b3261e")):
        own = [step for step in steps if name in step]
        label = "re-balancing, a tenth of an epoch" if name == "re-balancing" else name
        shown = own[:-1] if name == "re-balancing" else own
        seconds.plot([s["classes"] for s in shown], [s[name] for s in shown], "o-", ms=3, label=label, color=colour)
    seconds.set(xlabel="classes", ylabel="CPU seconds of a step", title="time", ylim=(0, None))
    seconds.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--images", type=int, default=1300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    METHODS["watched"] = Watched
    Watched.last = args.steps - 1
    learner = IncrementalClassifier(
        "watched",
        backbone=OneLayer(),
        augmentation="none",
        device="cpu",
        workers=0,
        first={"epochs": 0},
        incremental={"epochs": 0},
        options={"rebalancing": {"epochs": 1, "views": 1}},
    )
    start, per_step = now(), args.classes // args.steps
    for step in range(args.steps):
        learner.partial_fit(*images_of(range(step * per_step, (step + 1) * per_step), args.images))
    for step in Watched.steps:
        step["kept_formula"] = kept_formula(int(step["classes"]), args.images)
        step["formula"] = start + 2 * step["kept_formula"] + WORKING  # twice: a copy in one piece is checked and saved
    found = {"start": start, "working": WORKING, "steps": Watched.steps}
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    if args.plot:
        plot(found, args.plot)
    print(f"peak {max(step['peak'] for step in Watched.steps) / 1e9:.2f} GB, at the start {start / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
