"""Speed and memory, as ratios against a plain implementation in the same run; one core.

    OMP_NUM_THREADS=1 python benchmarks/speed.py            # everything, up to half an hour
    OMP_NUM_THREADS=1 python benchmarks/speed.py efm step   # only these

Every line is printed as a row of a Markdown table; benchmarks/README.md holds one such table with its machine.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
from PIL import Image
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from efcil.backbones.resnet18 import ResNet18
from efcil.config import WORKERS, ClassifierConfig
from efcil.data.augment import AUGMENTATIONS
from efcil.data.images import on_disk
from efcil.engine.context import Context, View
from efcil.engine.model import IncrementalModel
from efcil.engine.preprocessing import Preprocessing
from efcil.engine.trainer import planned_batches, shuffled_batches
from efcil.methods.efc import EFC
from efcil.paper import rebalancing as paper_rebalancing
from efcil.paper.drift import compensate
from efcil.paper.efm import efm_loss, empirical_feature_matrix
from efcil.paper.prototypes import GaussianPrototypes
from efcil.paper.rebalancing import CHUNK, Rebalancing, rebalance


def seconds(work: Callable[[], object], repeats: int = 5, warm: bool = False) -> float:
    """The shortest of a few runs after one to warm up; other programs can only make it longer."""
    if not warm:
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def alternating(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The same for two pieces of work in turns, so that a busy moment of the machine hits both."""
    first(), second()
    pairs = [(seconds(first, 1, warm=True), seconds(second, 1, warm=True)) for _ in range(repeats)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def row(what: str, ours: float, plain: float | None = None, note: str = "") -> None:
    ratio = "" if plain is None else f"{plain / ours:,.2f}×" if plain / ours < 10 else f"{plain / ours:,.0f}×"
    other = "" if plain is None else f"{1000 * plain:,.1f} ms"
    print(f"| {what} | {1000 * ours:,.1f} ms | {other} | {ratio} | {note} |", flush=True)


def efm() -> None:
    """Eqs. 6-8 for n = 512, m = 100 from 5,000 features, against the best vectorised per-sample form."""
    features, weight = torch.randn(5000, 512).abs(), 0.05 * torch.randn(100, 512)

    def per_sample() -> Tensor:
        total = torch.zeros(512, 512)
        for chunk in features.split(250):
            p = torch.softmax(chunk @ weight.T, 1)
            gradients = weight - (p @ weight)[:, None]  # (B, m, n), one row per class and sample
            weighted = (gradients * p.sqrt()[:, :, None]).reshape(-1, 512)
            total += weighted.T @ weighted
        return total / len(features)

    wide = 0.05 * torch.randn(1000, 512)
    before = peak_megabytes()  # before the plain form, whose own peak would hide ours
    taken = seconds(lambda: empirical_feature_matrix(features, wide), 3)
    row("EFM, n=512, m=1,000, 5,000 samples", taken, note=f"{peak_megabytes() - before:.0f} MB extra memory")
    torch.testing.assert_close(empirical_feature_matrix(features, weight), per_sample(), rtol=1e-3, atol=1e-6)
    ours = seconds(lambda: empirical_feature_matrix(features, weight), 20)
    row("EFM, n=512, m=100, 5,000 samples", ours, seconds(per_sample, 1), "plain: vectorised per-sample form")


def drift() -> None:
    """Eqs. 14-15 for 90 prototypes and 5,000 samples, against the quadratic form written out per class."""
    old, prototypes = torch.randn(5000, 512).abs(), torch.randn(90, 512).abs()
    new = old + 0.1 * torch.randn(5000, 512)
    matrix = empirical_feature_matrix(old, 0.05 * torch.randn(100, 512))

    def per_class() -> Tensor:
        distances = []
        for prototype in prototypes:
            difference = old - prototype
            distances.append(-(difference @ matrix * difference).sum(1))
        closeness = torch.stack(distances)
        closeness = (closeness - closeness.min()) / (closeness.max() - closeness.min())
        weights = torch.exp(closeness / (2 * 0.2**2))
        return prototypes + weights @ (new - old) / weights.sum(1, keepdim=True)

    ours = compensate(prototypes, old, new, matrix, 0.2, "scaled")
    torch.testing.assert_close(ours, per_class(), rtol=1e-3, atol=1e-4)
    taken = seconds(lambda: compensate(prototypes, old, new, matrix, 0.2, "scaled"), 10)
    row("drift update, 90 classes × 5,000 samples", taken, seconds(per_class, 1), "plain: one class at a time")


def sampling() -> None:
    """90 × 500 Gaussian vectors of 512 features, against a MultivariateNormal per class."""
    covariance = torch.eye(512) + 0.1
    factors = torch.linalg.cholesky(covariance).expand(90, -1, -1).contiguous()
    prototypes = GaussianPrototypes(torch.zeros(90, 512), factors, torch.full((90,), 500))
    rng, columns = torch.Generator(), torch.arange(90).repeat(500)  # in turns, as they come in re-balancing

    def per_class() -> None:
        for _ in range(9):
            MultivariateNormal(torch.zeros(512), covariance).sample(torch.Size([500]))

    ours = seconds(lambda: prototypes.sample_classes(columns, rng), 5)
    row("drawing 90 × 500 Gaussian vectors", ours, 10 * seconds(per_class, 1), "plain: MultivariateNormal per class")


def step() -> None:
    """One optimiser step on 64 images of 32×32, at the paper's width and at that of the CPU presets."""
    step_at(64, 1, repeats=4)
    step_at(16, 2, repeats=20)


def step_at(width: int, stride: int, repeats: int) -> None:
    """EFC++ against fine-tuning, the folded old network against a plain one, and the augmentation beside them."""
    model = IncrementalModel(ResNet18(width, "small", stride)).to(memory_format=torch.channels_last)
    model.grow(10)
    model.freeze_batchnorm()
    model.train()
    old = copy.deepcopy(model).eval()
    x = torch.randn(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (64,))
    matrix = torch.eye(8 * width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)

    def train_step(regularised: bool) -> None:
        features = model.features(x)
        loss = F.cross_entropy(model.logits(features), y)
        if regularised:
            loss = loss + efm_loss(features - forward(old, x), matrix, 10, 0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    network = f"width {width}, stem stride {stride}"
    peak = convolution_peak(width)
    flops = 3 * forward_flops(model.backbone, x[:1]) * 64  # backward costs twice the forward
    plain, ours = alternating(lambda: train_step(False), lambda: train_step(True), repeats)
    reached = f"{100 * flops / plain / peak:.0f} % of the convolution peak ({peak / 1e9:.0f} GFLOPS)"
    row(f"fine-tuning step, {network}", plain, note=f"{64 / plain:,.0f} images/s, {reached}")
    row(f"EFC++ step, {network}", ours, note=f"{64 / ours:,.0f} images/s, {ours / plain:.2f} × the fine-tuning step")
    slow = unfolded(old)
    row(
        f"forward of the old network, {network}",
        seconds(lambda: forward(old, x), repeats),
        seconds(lambda: forward(slow, x.contiguous()), repeats),
        "plain: BatchNorm not folded, channels first",
    )
    for name in ("crop_flip", "cifar_reference"):
        taken = seconds(lambda name=name: AUGMENTATIONS[name](IMAGES, torch.Generator()), 20)
        row(f"augmentation {name}, 64 images", taken, note=f"{100 * taken / ours:.1f} % of an EFC++ step, {network}")


@torch.no_grad()
def forward(model: nn.Module, x: Tensor) -> Tensor:
    return model.features(x) if isinstance(model, IncrementalModel) else model(x)


def unfolded(model: IncrementalModel) -> nn.Module:
    """The same network written with separate convolution and BatchNorm, channels first."""
    plain = copy.deepcopy(model.backbone).to(memory_format=torch.contiguous_format)
    for module in plain.modules():
        if hasattr(module, "norm") and hasattr(module, "conv"):
            module.forward = (lambda m: lambda x: m.norm(m.conv(x[:, :, :: m.skip, :: m.skip])))(module)
    return plain


def forward_flops(backbone: nn.Module, x: Tensor) -> float:
    """Multiplications and additions of all convolutions for one image."""
    total = 0.0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        conv = module.conv
        total += 2 * output.numel() * conv.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in backbone.modules() if hasattr(m, "conv")]
    forward(backbone, x)
    for hook in hooks:
        hook.remove()
    return total


def convolution_peak(width: int) -> float:
    """The most a 3×3 convolution of this network reaches here, in operations per second."""
    best = 0.0
    for channels, side in ((width, 32), (2 * width, 16), (4 * width, 8), (8 * width, 4)):
        conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
        x = torch.randn(64, channels, side, side).contiguous(memory_format=torch.channels_last)
        taken = seconds(lambda conv=conv, x=x: forward(conv, x), 5)
        best = max(best, 2 * 64 * channels * side * side * 9 * channels / taken)
    return best


ROUNDS = 3  # of ways that are compared in turns


def files() -> None:
    """The images of an epoch of EFC at 224 pixels from JPEG files: read ahead, against within the step as once.

    The network is left out: a step is a pause, as where a GPU computes it. Once, threads only decoded the first batch
    of each step ahead; the second was read, and both were augmented, between steps on the thread that trains.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{index:03}.jpg") for index in range(STEPS * 64)]
        for path in paths:  # as large as those of ImageNet, with contents that compress like a photo
            coarse = torch.randint(256, (1, 3, 47, 63)).float()
            pixels = F.interpolate(coarse, (375, 500), mode="bicubic").clamp(0, 255).to(torch.uint8)[0]
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
        for pause in (0.0, 2.0):
            ways = (ahead, within)
            for way in ways:
                file_epoch(paths, way, 0.0)  # the files are then in the memory of the system
            rounds = [[file_epoch(paths, way, pause) for way in ways] for _ in range(ROUNDS)]
            ours, plain = (median(times[place].step for times in rounds) for place in range(2))
            ratios = sorted(times[1].step / times[0].step for times in rounds)
            waits, threads = (
                [1000 * median(getattr(times[place], name) for times in rounds) for place in range(2)]
                for name in ("wait", "thread")
            )
            cores = [1000 * median(times[place].cpu for times in rounds) / len(paths) / 2 for place in range(2)]
            row(
                f"EFC step of {1000 * pause:.0f} ms with 128 files, 224 pixels",
                ours,
                plain,
                f"ratios of the rounds {', '.join(f'{ratio:.2f}' for ratio in ratios)}; for images the training thread "
                f"computes {threads[0]:,.0f} instead of {threads[1]:,.0f} ms and waits {waits[0]:,.0f} instead of "
                f"{waits[1]:,.0f} ms a step; {128 / ours:,.0f} instead of {128 / plain:,.0f} images/s; "
                f"{cores[0]:.1f} and {cores[1]:.1f} ms of a core per image",
            )


STEPS = 4  # of 64 images and as many for the second batch; nobody has read ahead for the first


@dataclass(frozen=True)
class Times:
    """Seconds, as means over the steps of an epoch but the first."""

    step: float
    wait: float  # of a step, for its images
    thread: float  # of the training thread itself, computing them; other programs cannot change it
    cpu: float  # of all threads, over the whole epoch


Way = Callable[[Context, list[Tensor], list[tuple[View, Tensor]]], Iterator[object]]


def ahead(ctx: Context, rows: list[Tensor], extras: list[tuple[View, Tensor]]) -> Iterator[object]:
    """One queue for both batches of every step, which come ready for the network."""
    return planned_batches(ctx, rows, extras)


def within(ctx: Context, rows: list[Tensor], extras: list[tuple[View, Tensor]]) -> Iterator[object]:
    """Pixels of the first batch come from a queue, everything else is done here."""
    views = [ctx.view(group) for group in rows]
    for view, pixels, (extra, _) in zip(views, ctx.images.batches(rows, WORKERS), extras, strict=True):
        assert view.seeds is not None
        augmented = ctx.augmentation(pixels, torch.Generator().manual_seed(int(view.seeds)))
        yield ctx.preprocessing.normalised(augmented, ctx.device), ctx.shown(ctx.images, extra)


def file_epoch(paths: list[Path], way: Way, pause: float) -> Times:
    """Steps of 64 images and as many for the second batch, in the second of two tasks of ten classes."""
    model = IncrementalModel(ResNet18(4, "large"))
    model.grow(1), model.grow(10)
    ctx = Context(
        config=ClassifierConfig(workers=WORKERS, cache_mb=0),
        task=1,
        model=model,
        old=None,
        images=on_disk(paths, 256),
        columns=torch.arange(len(paths)) % 10 + 1,
        classes=10,
        preprocessing=Preprocessing(256, 224, (0.5,) * 3, (0.25,) * 3),
        augmentation=AUGMENTATIONS["resized_crop_flip"],
        device=torch.device("cpu"),
    )
    ctx.reseed("epoch", 0)
    rows = shuffled_batches(len(paths), 64, ctx.rng)
    batches = way(ctx, rows, EFC(EFC.Options(prototype_batch=70)).plan(ctx, len(rows)))
    waits, threads, begun = [], [], time.perf_counter()
    cpu = time.process_time()
    for step in range(STEPS):
        asked, computed = time.perf_counter(), time.thread_time()
        next(batches)
        if step == 0:
            begun = time.perf_counter()
        else:
            waits.append(time.perf_counter() - asked)
            threads.append(time.thread_time() - computed)
        time.sleep(pause)
    taken = time.perf_counter() - begun - pause  # the pause after the first step belongs to nobody
    means = [sum(times) / len(times) for times in (waits, threads)]
    return Times(taken / (STEPS - 1), *means, time.process_time() - cpu)


def rebalancing() -> None:
    """Memory of a re-balancing epoch at the end of ImageNet-1K in ten tasks: draws in portions, against all at once."""
    needed = []
    for chunk in (CHUNK, 1 << 40):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            before, peak = pool.submit(rebalancing_memory, chunk).result()
        needed.append(peak - before)
    note = f"{needed[0]:,.0f} MB above the {before:,.0f} MB of what it is given; all at once {needed[1]:,.0f} MB"
    print(f"| re-balancing, 900 old and 100 new classes, 1,281 features of each | | | | {note} |", flush=True)


def rebalancing_memory(chunk: int, classes: int = 1000, new: int = 100, images: int = 1281) -> tuple[float, float]:
    """Megabytes before and at the peak; covariances of full rank and one view of 512 features.

    The epoch is cut off within its fourth portion: each needs what the one before it left.
    """
    torch.set_num_threads(1)
    paper_rebalancing.CHUNK = chunk
    factors = tuple(torch.randn(512, 512).triu_().mul_(0.04) for _ in range(classes - new))
    counts = torch.full((classes - new,), images)
    prototypes = GaussianPrototypes(torch.randn(classes - new, 512), factors, counts)
    view, columns = torch.randn(new * images, 512), torch.arange(classes - new, classes).repeat_interleave(images)
    weight, rng = 0.05 * torch.randn(classes, 512), torch.Generator().manual_seed(0)
    portion = min(chunk, classes * images)
    left = 3 * portion // Rebalancing.batch_size if portion == chunk else 0  # all at once, the peak is before any step
    loss = paper_rebalancing.rebalancing_loss

    def counted(*args: Tensor) -> Tensor:
        nonlocal left
        if left == 0:
            raise InterruptedError
        left -= 1
        return loss(*args)

    paper_rebalancing.rebalancing_loss = counted
    before = peak_megabytes()
    with suppress(InterruptedError):
        rebalance(weight, prototypes, [view], columns, Rebalancing(epochs=1), rng)
    return before, peak_megabytes()


def run() -> None:
    """A CIFAR-100 run at the paper's width: time to its first step, and memory over its ten tasks."""
    if "EFCIL_DATA" not in os.environ:
        print("| a CIFAR-100 run | | | | skipped: EFCIL_DATA does not name a folder with cifar-100-binary |")
        return
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "efcil", "run", "cifar100-cold10", "--out", out]
        command += ["--data-root", os.environ["EFCIL_DATA"], "--set", "first.epochs=1", "--set", "incremental.epochs=1"]
        command += ["--set", "data.images_per_class=26", "--set", "options.rebalancing.views=1"]
        start, begun, peak = time.perf_counter(), False, 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                status = Path(f"/proc/{process.pid}/status").read_text()
                if "VmHWM:" in status:  # not in that of a process that has just ended
                    peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]))
                if not begun and any(Path(out).glob("*/log.txt")):
                    begun = True
                    row("`efcil run cifar100-cold10` to its first step", time.perf_counter() - start)
                time.sleep(0.05)
    taken = time.perf_counter() - start
    row("its ten tasks, 26 images per class", taken, note=f"peak memory {peak / 1024:,.0f} MB")


def peak_megabytes() -> float:
    """Of this program alone; what getrusage says may be that of the program that started it."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


IMAGES = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8)
PARTS = {part.__name__: part for part in (efm, drift, sampling, step, files, rebalancing, run)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| what | ours | plain | ratio | note |\n|---|---:|---:|---:|---|")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
