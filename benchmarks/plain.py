"""EFC++ as one would write it down at first, and how much faster the library does the same.

    OMP_NUM_THREADS=1 python benchmarks/plain.py --data-root DIR                # width 16, three seeds
    OMP_NUM_THREADS=1 python benchmarks/plain.py --data-root DIR --width 64     # as wide as the paper's

The plain way is what a paper's code usually looks like: PIL images changed one at a time in a DataLoader, a stock
ResNet-18 whose BatchNorm is only put into eval mode, the Empirical Feature Matrix one image at a time, Gaussians drawn
with MultivariateNormal one class at a time, drift one class at a time, and a fresh pass over the new images in each of
the 50 epochs of re-balancing. Settings and class order are equal; the ways take turns, ours also with
`incremental.views`, where the batches of the first epochs come again. Time is processor time of this
process, which other programs hardly change. Printed are rows for benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from efcil import IncrementalClassifier, data
from efcil.config import DataConfig
from efcil.engine import phases
from efcil.rng import generator

LAMBDA, ETA, SIGMA = 3.0, 0.1, 0.2
REBALANCING = {"epochs": 50, "lr": 1e-2}
RATE = 1e-3
BATCH = 32
DECAY = 2e-4
PHASES = ("training", "drift", "re-balancing", "statistics")


class Photos(Dataset[tuple[Tensor, int]]):
    """PIL images, padded, cropped and mirrored one at a time."""

    def __init__(
        self, images: list[Image.Image], labels: list[int], scale: tuple[Tensor, Tensor], changed: bool
    ) -> None:
        self.images, self.labels, self.scale, self.changed = images, labels, scale, changed

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        if self.changed:
            side = image.width
            top, left = torch.randint(side // 4 + 1, (2,)).tolist()
            image = ImageOps.expand(image, side // 8).crop((left, top, left + side, top + side))
            if torch.rand(()) < 0.5:
                image = ImageOps.mirror(image)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3)
        centre, spread = self.scale
        return (pixels.permute(2, 0, 1) / 255 - centre[:, None, None]) / spread[:, None, None], self.labels[index]


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.shortcut(x))


class Network(nn.Module):
    """ResNet-18 for small images."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        inside = width
        for stage in range(4):
            for block in range(2):
                layers.append(Block(inside, width << stage, 2 if stage and not block else 1))
                inside = width << stage
        self.layers = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))  # type: ignore[no-any-return]


class Plain:
    """EFC++ (Algorithm 1), written down line by line."""

    def __init__(self, width: int, stride: int, first_epochs: int, epochs: int) -> None:
        self.network, self.epochs = Network(width, stride), (first_epochs, epochs)
        self.head = torch.zeros(0, 8 * width)
        self.means: list[Tensor] = []
        self.covariances: list[Tensor] = []
        self.efm = torch.zeros(0)
        self.seconds: dict[str, float] = defaultdict(float)
        self.scale: tuple[Tensor, Tensor] | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        self.seconds[name] += time.process_time() - begun

    def loader(self, images: list[Image.Image], labels: list[int], changed: bool, shuffled: bool) -> DataLoader[Any]:
        assert self.scale is not None
        return DataLoader(Photos(images, labels, self.scale, changed), BATCH, shuffle=shuffled)

    def learn(self, images: list[Image.Image], labels: list[int]) -> None:
        """One task; labels go on counting from those of the tasks before."""
        known = len(self.head)
        classes = max(labels) + 1 - known
        new = nn.Parameter(nn.Linear(self.head.shape[1], classes, bias=False).weight.detach().clone())
        if self.scale is None:
            pixels = torch.stack([torch.frombuffer(bytearray(i.tobytes()), dtype=torch.uint8) for i in images])
            channels = pixels.view(-1, 3) / 255
            self.scale = channels.mean(0), channels.std(0)
            with self.phase("training"):
                self.first_task(images, labels, new)
            self.head = new.detach()
        else:
            old = copy.deepcopy(self.network).eval()
            with self.phase("training"):
                self.later_task(images, labels, new, old, known)
            with self.phase("drift"):
                self.follow(images, labels, old)
            self.head = torch.cat([self.head, new.detach()])
            with self.phase("re-balancing"):
                self.rebalance(images, labels, known)
        with self.phase("statistics"):
            self.remember(images, labels, known)

    def first_task(self, images: list[Image.Image], labels: list[int], head: nn.Parameter) -> None:
        """Cross-entropy; the rotated copies of every image are further classes."""
        rotations = nn.Linear(head.shape[1], 3 * len(head))
        parameters = [*self.network.parameters(), head, *rotations.parameters()]
        optimizer = torch.optim.Adam(parameters, RATE, weight_decay=DECAY)
        steps = [round(0.45 * self.epochs[0]), round(0.9 * self.epochs[0])]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, steps)
        self.network.train()
        for _ in range(self.epochs[0]):
            for x, y in self.loader(images, labels, True, True):
                turned = torch.cat([torch.rot90(x, k, (2, 3)) for k in range(4)])
                target = torch.cat([y, *(len(head) + 3 * y + k for k in range(3))])
                features = self.network(turned)
                loss = F.cross_entropy(torch.cat([features @ head.T, rotations(features)], 1), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
        self.network.eval()
        for module in self.network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(False)

    def later_task(
        self, images: list[Image.Image], labels: list[int], head: nn.Parameter, old: nn.Module, known: int
    ) -> None:
        """Cross-entropy of the new classes and the drift of the features under λE + ηI (Eqs. 10 and 12)."""
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam([*trained, head], RATE, weight_decay=DECAY)
        for _ in range(self.epochs[1]):
            for x, y in self.loader(images, labels, True, True):
                features = self.network(x)
                with torch.no_grad():
                    before = old(x)
                drift = features - before
                distance = LAMBDA * (drift @ self.efm * drift).sum(1) + ETA * drift.square().sum(1)
                loss = F.cross_entropy(features @ head.T, y - known) + distance.mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    @torch.no_grad()
    def features(self, network: nn.Module, images: list[Image.Image], labels: list[int], changed: bool) -> Tensor:
        return torch.cat([network(x) for x, _ in self.loader(images, labels, changed, False)])

    @torch.no_grad()
    def follow(self, images: list[Image.Image], labels: list[int], old: nn.Module) -> None:
        """Each mean follows the images near it (Eqs. 14-15)."""
        pairs = [(old(x), self.network(x)) for x, _ in self.loader(images, labels, True, False)]
        before, after = (torch.cat(part) for part in zip(*pairs, strict=True))
        distances = []
        for centre in self.means:
            away = before - centre
            distances.append(torch.stack([row @ self.efm @ row for row in away]))
        low, high = min(float(d.min()) for d in distances), max(float(d.max()) for d in distances)
        for index, distance in enumerate(distances):
            weights = torch.exp(-(distance - low) / (high - low) / (2 * SIGMA**2))
            self.means[index] = self.means[index] + (weights[:, None] * (after - before)).sum(0) / weights.sum()

    def rebalance(self, images: list[Image.Image], labels: list[int], known: int) -> None:
        """All heads on draws of the old classes and a fresh view of the new images in every epoch (Eq. 13)."""
        head = self.head.clone().requires_grad_()
        optimizer = torch.optim.SGD([head], REBALANCING["lr"], momentum=0.9, weight_decay=5e-4)
        per_class = len(images) // (len(self.head) - known)
        for _ in range(int(REBALANCING["epochs"])):
            parts, targets = [self.features(self.network, images, labels, True)], [torch.tensor(labels)]
            for index in range(known):
                jitter = 1e-5 * torch.eye(len(self.means[index]))
                gaussian = MultivariateNormal(self.means[index], self.covariances[index] + jitter)
                parts.append(gaussian.sample((per_class,)))
                targets.append(torch.full((per_class,), index))
            features, columns = torch.cat(parts), torch.cat(targets)
            for rows in torch.randperm(len(features)).split(256):
                optimizer.zero_grad()
                F.cross_entropy(features[rows] @ head.T, columns[rows]).backward()
                optimizer.step()
        self.head = head.detach()

    @torch.no_grad()
    def remember(self, images: list[Image.Image], labels: list[int], known: int) -> None:
        """Mean and covariance of each new class, and the Empirical Feature Matrix of its images (Eqs. 6-8)."""
        features, columns = self.features(self.network, images, labels, True), torch.tensor(labels)
        for index in range(known, len(self.head)):
            part = features[columns == index]
            self.means.append(part.mean(0))
            self.covariances.append(torch.cov(part.T))
        total = torch.zeros(features.shape[1], features.shape[1])
        for row in features:
            p = torch.softmax(self.head @ row, 0)
            gradients = self.head - p @ self.head
            total += gradients.T @ (p[:, None] * gradients)
        self.efm = total / len(features)

    @torch.no_grad()
    def accuracy(self, images: list[Image.Image], labels: list[int]) -> float:
        scores = self.features(self.network, images, labels, False) @ self.head.T
        return 100 * float((scores.argmax(1) == torch.tensor(labels)).float().mean())


class ProcessClock:
    """What engine/phases.py asks for the time, here of this process alone."""

    monotonic = staticmethod(time.process_time)


def library(
    args: argparse.Namespace, seed: int, tasks: list[Any], views: int | None = None
) -> tuple[dict[str, float], float, float]:
    """Seconds of each phase, in all, and the accuracy at the end; of the library."""
    classifier = IncrementalClassifier(
        "efc++",
        width=args.width,
        stem_stride=args.stride,
        image_size=32,
        augmentation="crop_flip",
        first={"epochs": args.first_epochs, "batch_size": BATCH},
        incremental={"epochs": args.epochs, "batch_size": BATCH, "lr": RATE, "views": views},
        options={"lambda_efm": LAMBDA, "eta": ETA, "rebalancing": REBALANCING},
        seed=seed,
        device="cpu",
        progress=False,
    )
    spent: dict[str, float] = defaultdict(float)
    begun = time.process_time()
    for pixels, labels, _, _ in tasks:
        classifier.partial_fit(pixels, labels)
        for name, value in classifier.phase_seconds_.items():
            spent[name] += value
    total = time.process_time() - begun
    found = [float((classifier.predict(test) == wanted.numpy()).mean()) for _, _, test, wanted in tasks]
    return spent, total, 100 * mean(found)


def plainly(args: argparse.Namespace, seed: int, tasks: list[Any]) -> tuple[dict[str, float], float, float]:
    """The same of the plain way."""
    torch.manual_seed(seed)
    plain = Plain(args.width, args.stride, args.first_epochs, args.epochs)
    begun = time.process_time()
    for pixels, labels, _, _ in tasks:
        plain.learn(pictures(pixels), labels.tolist())
    total = time.process_time() - begun
    return plain.seconds, total, mean(plain.accuracy(pictures(test), wanted.tolist()) for _, _, test, wanted in tasks)


def pictures(pixels: Tensor) -> list[Image.Image]:
    return [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]


def stream(args: argparse.Namespace, seed: int) -> list[Any]:
    """Of each task its images and labels to learn, and those to ask; labels count on in the order of the classes."""
    found = data.load(DataConfig(name="cifar100"), args.data_root)
    order = torch.randperm(100, generator=generator(seed, "class order"))[: args.tasks * args.classes]
    splits = ((found.train, found.train_labels, args.images), (found.test, found.test_labels, 100))
    tasks = []
    for start, chosen in zip(range(0, len(order), args.classes), order.split(args.classes), strict=True):
        parts = []
        for images, labels, most in splits:
            rows = [(labels == label).nonzero()[:most, 0] for label in chosen]
            columns = [torch.full((len(part),), start + place) for place, part in enumerate(rows)]
            parts += [images.batch(torch.cat(rows)), torch.cat(columns)]
        tasks.append(parts)
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", type=Path, required=True)
    for name, value in (("width", 16), ("stride", 2), ("tasks", 3), ("classes", 10), ("images", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("first-epochs", 10), ("epochs", 10), ("views", 2), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if args.views >= args.epochs:
        parser.error("--views must be less than --epochs, or no batch comes again.")
    phases.time = ProcessClock  # type: ignore[attr-defined]
    ways = {"ours": library, f"ours, {args.views} views": partial(library, views=args.views), "plain": plainly}
    results: dict[str, list[Any]] = {name: [] for name in ways}
    for seed in range(args.seeds):
        tasks = stream(args, seed)
        for name, way in ways.items():
            results[name].append(way(args, seed, tasks))  # type: ignore[operator]
    shown = args.classes * args.images * (4 * args.first_epochs + (args.tasks - 1) * args.epochs)
    rows = {phase: [mean(run[0][phase] for run in runs) for runs in results.values()] for phase in PHASES}
    rows["all, processor time"] = [mean(run[1] for run in runs) for runs in results.values()]
    print(f"| width {args.width} | {' | '.join(ways)} | plain / ours |\n|---|{'---:|' * (len(ways) + 1)}")
    for name, seconds in rows.items():
        print(f"| {name} | {' | '.join(f'{each:.1f} s' for each in seconds)} | {seconds[-1] / seconds[0]:.1f}× |")
    print(f"| images learnt per second | {' | '.join(f'{shown / each:.0f}' for each in seconds)} | |")
    found = [[run[2] for run in runs] for runs in results.values()]
    spread = [f"{mean(part):.1f} ± {stdev(part) if len(part) > 1 else 0:.1f} %" for part in found]
    print(f"| accuracy over all tasks | {' | '.join(spread)} | |")


if __name__ == "__main__":
    main()
