"""How long a run is going to take: from recorded runs, or else from how fast this machine is right now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

from efcil import data
from efcil.bench.results import Cell, Results, Row
from efcil.bench.runs import stored_image_size
from efcil.classifier import IncrementalClassifier
from efcil.config import DataConfig, RunConfig, StreamConfig
from efcil.data.stream import Stream
from efcil.errors import UserError


@dataclass(frozen=True)
class Estimate:
    """Seconds of computing, if that can be said, and what the number is from."""

    seconds: float | None
    source: str


class Estimator:
    """Estimates the runs of a campaign; images are read and steps are timed only where no recorded run helps."""

    def __init__(self, results: Results, data_root: Path | None) -> None:
        self.rows, self.data_root = list(results.values()), data_root
        self.images_per_task, self.about = cache(self._images_per_task), cache(self._about)
        self.tried: dict[tuple[Any, ...], float] = {}  # seconds per image, by what decides them

    def estimate(self, cell: Cell) -> Estimate:
        """From runs of the same cell with any seed; else of its method or its preset; else from steps tried now."""
        same = [row for row in self.rows if (row["preset"], row["method"], row["changes"]) == cell.key[:3]]
        current = [row for row in same if row["config_digest"] == cell.config_digest]
        if found := current or same:
            seconds = mean(float(row["seconds"]) for row in found)
            return Estimate(seconds, runs(found) + ("" if current else " with older settings"))
        try:
            return self._from_work(cell)
        except UserError as error:  # such as images that are not there
            return Estimate(None, f"not known: {error}")

    def _from_work(self, cell: Cell) -> Estimate:
        """Images that have to pass through the network, times the seconds that each takes."""
        work = self.work(cell.config)
        beside = [row for row in self.rows if row["preset"] == cell.preset]
        own = [row for row in beside if row["method"] == cell.method]
        elsewhere = [row for row in self.rows if row["method"] == cell.method and row["preset"] != cell.preset]
        for rows, what in (
            (own, f"{cell.method} with other settings"),
            (elsewhere, f"{cell.method} on other presets of this network"),
            (beside, "other methods"),
        ):
            rates = self._rates(rows, network(cell.config))
            if work and rates:
                return Estimate(work * median(rates), f"{runs(rates)} of {what}, {work:,} images")
        images = work or sum(self._counts(cell.config))  # without epochs every image passes once
        rate = self.seconds_per_image(cell.config)
        return Estimate(rate * images, f"{images:,} images, {1 / rate:,.0f} per second when tried now")

    def work(self, config: RunConfig) -> int:
        """How many images pass through all epochs of all tasks."""
        return sum(IncrementalClassifier.from_config(config.classifier).work(list(self._counts(config))))

    def seconds_per_image(self, config: RunConfig) -> float:
        """Of training, or of features where nothing is trained; tried once for every kind of network."""
        c = config.classifier
        kind = (*network(config), c.method, c.device)
        if kind not in self.tried:
            images = data.load(config.data, self.data_root, stored_image_size(config), cache_mb=0)
            first = Stream(images, config.stream, c.seed).task(0)
            plan = IncrementalClassifier.from_config(c).plan(first.train, first.train_labels)
            self.tried[kind] = plan.seconds / (plan.shown or plan.images)
        return self.tried[kind]

    def _counts(self, config: RunConfig) -> tuple[int, ...]:
        return self.images_per_task(config.data, config.stream, config.classifier.seed)

    def _images_per_task(self, images: DataConfig, stream: StreamConfig, seed: int) -> tuple[int, ...]:
        return tuple(len(task.train) for task in Stream(data.load(images, self.data_root, cache_mb=0), stream, seed))

    def _rates(self, rows: list[Row], like: tuple[Any, ...]) -> list[float]:
        """Seconds per image of those rows of such a network that can still be read."""
        rates = []
        for row in rows:
            kind, work = self.about(row["preset"], row["method"], row["changes"], int(row["seed"]))
            rates += [float(row["seconds"]) / work] if work and kind == like else []
        return rates

    def _about(self, preset: str, method: str, changes: str, seed: int) -> tuple[tuple[Any, ...], int]:
        """The network of a recorded run, and its images; none of a method or an option that is no more."""
        try:
            config = Cell(preset, method, tuple(changes.split()), seed).config
            return network(config), self.work(config)
        except UserError:
            return (), 0


def network(config: RunConfig) -> tuple[Any, ...]:
    """What decides how long an image takes, but for the method."""
    c = config.classifier
    return config.data.name, c.backbone, c.width, c.stem, c.stem_stride, c.image_size


def runs(found: list[Any]) -> str:
    return f"{len(found)} recorded run{'s' if len(found) > 1 else ''}"


def total_sentence(seconds: list[float | None], at_once: int) -> str:
    """``about 3.2 hours of computing, 1.6 hours with 2 runs at once``, and what could not be told."""
    known = [value for value in seconds if value is not None]
    if not known:
        return "to run: for how long is not known"
    hours = sum(known) / 3600
    longest = max(known) / 3600
    sentence = f"to run: about {hours_text(hours)} of computing"
    if at_once > 1:
        sentence += f", {hours_text(max(hours / at_once, longest))} with {at_once} at once"
    unknown = len(seconds) - len(known)
    return sentence + (f"; {unknown} of {len(seconds)} runs not counted, their time is not known" if unknown else "")


def hours_text(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
