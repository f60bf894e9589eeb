"""Which method would be best on these photos: each is taught most of them, lesson by lesson, and tested on the rest."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from efcil.classifier import IncrementalClassifier
from efcil.errors import UserError
from efcil.teaching.lesson import split
from efcil.teaching.photos import Photos

METHODS = ("lda", "freeze", "fecam", "ds-al")  # quick ones, which leave the network as it is
LESSON_CLASSES = 5


def compared(classifier: IncrementalClassifier, photos: Photos, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """For each method its accuracy on photos that it was not taught, its seconds and its bytes."""
    taught, tested = split(photos.names)
    if len(np.unique(photos.names)) < 2 or not len(tested):
        raise UserError("Comparing needs at least two classes and five photos of one of them; give more photos.")
    lessons = lessons_of(classifier, photos)
    for method in methods:
        candidate = classifier.untaught(method)
        begun = time.monotonic()
        for classes in lessons:
            rows = taught[np.isin(photos.names[taught.numpy()], classes)]
            candidate.partial_fit(photos.images.subset(rows), photos.names[rows.numpy()])
        seconds = time.monotonic() - begun
        accuracy = candidate.score(photos.images.subset(tested), photos.names[tested.numpy()])
        yield {
            "method": method,
            "accuracy": accuracy,
            "photos_tested": len(tested),
            "lessons": len(lessons),
            "seconds": round(seconds, 2),
            "bytes": saved_bytes(candidate),
        }


def lessons_of(classifier: IncrementalClassifier, photos: Photos) -> list[list[str]]:
    """The classes of the photos in the lessons of the model, and those that it does not know a few at a time."""
    there = set(photos.names.tolist())
    lessons = [[name for name in lesson["classes"] if name in there] for lesson in classifier.lessons_]
    known = {name for lesson in lessons for name in lesson}
    rest = sorted(there - known)
    lessons += [rest[place : place + LESSON_CLASSES] for place in range(0, len(rest), LESSON_CLASSES)]
    seen: set[str] = set()
    once = []
    for lesson in lessons:  # a class that was refined counts in its first lesson
        once.append([name for name in lesson if name not in seen])
        seen |= set(lesson)
    return [lesson for lesson in once if lesson]


def saved_bytes(classifier: IncrementalClassifier) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.efcil"
        classifier.save(path)
        return path.stat().st_size
