"""Classifiers that runs have kept, and their images: features, columns and what a classifier remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from efcil.analysis.runs import Run
from efcil.bench.run_folder import check_same_stream
from efcil.bench.runs import stored_image_size
from efcil.classifier import IncrementalClassifier
from efcil.data.augment import augmentation, chosen
from efcil.data.images import ImageSet
from efcil.data.stream import Stream, Task
from efcil.parts.consolidation import Consolidating, Consolidation
from efcil.rng import generator


def streams(runs: Sequence[Run], data_root: Path | None) -> dict[Path, Stream]:
    """The images of each run by its folder; runs that saw the same share them."""
    loaded: dict[Any, Stream] = {}
    found = {}
    for run in runs:
        seen = (run.config.data, run.config.stream, run.seed, stored_image_size(run.config))
        if seen not in loaded:
            loaded[seen] = run.stream(data_root)
        check_same_stream(run.folder, loaded[seen])
        found[run.folder] = loaded[seen]
    return found


def memory_of(path: Path) -> tuple[IncrementalClassifier, Consolidation]:
    """A saved classifier with an EFM and what it remembers, E_t and P_{1:t}."""
    classifier = IncrementalClassifier.load(path)
    assert isinstance(classifier._method, Consolidating)
    return classifier, classifier._method.memory


@torch.no_grad()
def features(classifier: IncrementalClassifier, images: ImageSet, view: int | None = None) -> Tensor:
    """f(x; θ_t) of all images, (N, n): as they are, or in the random view of this number."""
    model, preprocessing = classifier._fitted()
    device, change = (
        classifier._device(),
        augmentation(chosen(classifier.config.augmentation, images.size), preprocessing.size),
    )
    rng = generator(classifier.config.seed, "analysis", view or 0)
    parts = []
    for rows in torch.arange(len(images)).split(preprocessing.batch):
        pixels = images.batch(rows)
        pixels = preprocessing.centred(pixels) if view is None else change(pixels, rng)
        parts.append(model.features(preprocessing.normalised(pixels, device)))
    return torch.cat(parts).cpu()


def columns(classifier: IncrementalClassifier, labels: Any) -> Tensor:
    """The column of each label among the classes of the classifier."""
    order = classifier.classes_.argsort()
    return torch.from_numpy(order[np.searchsorted(classifier.classes_, labels, sorter=order)])


def task_columns(classifier: IncrementalClassifier, task: int) -> slice:
    """The columns of the classes of one task."""
    start = sum(classifier.tasks_[:task])
    return slice(start, start + classifier.tasks_[task])


def everything(stream: Stream) -> Task:
    """All tasks as one."""
    return stream.past(len(stream))


def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
    """The items in turn, with a bar where there is a terminal."""
    console = Console(stderr=True)
    return track(items, what, console=console, transient=True, disable=not console.is_terminal)
