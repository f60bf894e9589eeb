"""One lesson: teach, and say how well the new classes are known and what that cost the old ones."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.classifier import IncrementalClassifier
from efcil.teaching.answers import confusions
from efcil.teaching.photos import Photos

HELD_OUT = 5  # every fifth photo of a class is kept back from methods that cannot leave one out


@dataclass(frozen=True)
class LessonReport:
    """What a lesson came to; shares from 0 to 1, None where nobody can tell."""

    classes: list[dict[str, Any]]  # class, photos, accuracy
    how: str  # where the accuracies are from
    old_before: float | None  # share of the old classes named rightly before the lesson, estimated
    old_after: float | None
    confusions: list[dict[str, Any]]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def taught(classifier: IncrementalClassifier, photos: Photos, minutes: float | None = None) -> LessonReport:
    """Teach these photos to the classifier; the report comes from photos as if each had not been taught, or was not."""
    begun = time.monotonic()
    before = classifier.estimated_accuracy() if len(classifier.classes_) else None
    old = len(classifier.classes_)
    kept, held = (None, None) if classifier.validates else split(photos.names)
    lesson = photos.images if kept is None else photos.images.subset(kept)
    names = (
        photos.names if kept is None else photos.names[kept.numpy()]
    )  # a tensor of one row would take a name out of the array
    classifier.partial_fit(lesson, names, minutes=minutes)
    if held is None:
        true, said = classifier.validation()
        how = "each photo as if it had not been taught (leave-one-out)"
    else:
        true = photos.names[held.numpy()]
        said = classifier.predict(photos.images.subset(held)).astype(str) if len(held) else true
        how = f"every {HELD_OUT}th photo, which was not taught"
        if classifier.refines and len(held):
            how += " by then"
            join_last(classifier.partial_fit(photos.images.subset(held), true))
    classifier.lessons_[-1]["time"] = time.strftime("%Y-%m-%d %H:%M")
    after = classifier.estimated_accuracy(old) if before is not None else None
    counts = dict(zip(*np.unique(photos.names, return_counts=True), strict=True))
    classes = [
        {"class": str(name), "photos": int(count), "accuracy": share(true, said, str(name))}
        for name, count in counts.items()
    ]
    return LessonReport(classes, how, before, after, confusions(true, said), time.monotonic() - begun)


def join_last(classifier: IncrementalClassifier) -> None:
    """Make one lesson of the last two: photos that were held out and then taught belong to the same one."""
    more = classifier.lessons_.pop()["classes"]
    classes = Counter(classifier.lessons_[-1]["classes"]) + Counter(more)
    classifier.lessons_[-1] = {**classifier.lessons_[-1], "classes": dict(classes)}


def split(names: npt.NDArray[np.str_]) -> tuple[Any, Any]:
    """Rows that are taught and rows that are held out: every fifth of a class, none of a class of fewer than five."""
    import torch

    held = np.zeros(len(names), dtype=bool)
    for name in np.unique(names):
        held[np.flatnonzero(names == name)[HELD_OUT - 1 :: HELD_OUT]] = True
    return torch.from_numpy(np.flatnonzero(~held)), torch.from_numpy(np.flatnonzero(held))


def share(true: npt.NDArray[Any], said: npt.NDArray[Any], name: str) -> float | None:
    """How much of a class is named rightly; None when no photo of it tells."""
    own = true == name
    return float(np.mean(said[own] == name)) if own.any() else None
