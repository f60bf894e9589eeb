"""What a model says of photos, how often it is right, and what it holds: rows for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from efcil.classifier import IncrementalClassifier
from efcil.data.images import Files, ImageSet, Pixels
from efcil.engine import state
from efcil.engine.answers import UNKNOWN, Answers
from efcil.errors import UserError
from efcil.teaching.photos import Photos, decoded
from efcil.teaching.store import Store

AT_A_TIME = 256  # photos in memory


def answered(
    classifier: IncrementalClassifier, given: Sequence[Files], top: int, unknown: bool, console: Console
) -> tuple[list[dict[str, Any]], list[str]]:
    """For each photo the answer, whether it is unlike every class, and the most likely classes; and sentences on files
    that cannot be read. Few photos are in memory at a time."""
    if top < 1:
        raise UserError(f"--top must be at least 1, not {top}.")
    rows, bad = [], []
    for files in given:
        for places in torch.arange(len(files)).split(AT_A_TIME):
            good, more = decoded(files, console, places.tolist())
            bad += more
            if good:
                answers = classifier.answers(ImageSet(Pixels(torch.stack(list(good.values())))))
                rows += told_of(classifier, answers, [str(files.paths[place]) for place in good], top, unknown)
    return rows, bad


def told_of(
    classifier: IncrementalClassifier, answers: Answers, paths: list[str], top: int, unknown: bool
) -> list[dict[str, Any]]:
    """What was found out about photos, a row for each."""
    rows = []
    for place, path in enumerate(paths):
        shares = answers.probabilities[place]
        best = np.argsort(-shares, kind="stable")[:top]
        guesses = [{"class": str(classifier.classes_[c]), "probability": round(float(shares[c]), 6)} for c in best]
        strange = bool(unknown and answers.unknown[place])
        row = {"photo": path, "answer": UNKNOWN if strange else guesses[0]["class"], "unknown": strange}
        rows.append({**row, "familiarity": answers.rounded_familiarity(place), "guesses": guesses})
    return rows


def evaluation(classifier: IncrementalClassifier, photos: Photos, worst: int) -> dict[str, Any]:
    """Accuracy over all photos and per class, what is taken for what, and the photos that went most wrong.

    Photos of classes that were never taught are counted and not measured.
    """
    known = [str(name) for name in classifier.classes_]
    strangers = Counter(name for name in photos.names.tolist() if name not in known)
    photos = photos.of(known)
    if not len(photos):
        told = f"The model was never taught {', '.join(list(strangers)[:5])}"
        raise UserError(f"{told}; name the folders after classes that it knows ({', '.join(known[:8])}), or teach it.")
    answers = classifier.answers(photos.images)
    predicted = np.array(known)[answers.probabilities.argmax(1)]
    right = predicted == photos.names
    classes = []
    for name in known:
        own = photos.names == name
        if not own.any():
            continue
        mistakes = Counter(predicted[own & ~right].tolist()).most_common(2)
        taken = ", ".join(f"{other} {count}" for other, count in mistakes)
        row = {"class": name, "photos": int(own.sum()), "accuracy": float(right[own].mean()), "taken_for": taken}
        classes.append(row)
    own_share = answers.probabilities[np.arange(len(photos)), [known.index(name) for name in photos.names]]
    order = [int(place) for place in np.argsort(own_share, kind="stable") if not right[place]][:worst]
    return {
        "accuracy": float(right.mean()),
        "photos": len(photos),
        "rejected": float(answers.unknown.mean()),
        "classes": classes,
        "never_taught": [{"class": name, "photos": count} for name, count in strangers.items()],
        "confusions": confusions(photos.names, predicted),
        "worst": [
            {
                "photo": photos.paths[place],
                "class": str(photos.names[place]),
                "answer": str(predicted[place]),
                "probability": round(float(answers.probabilities[place].max()), 4),
            }
            for place in order
        ],
    }


def confusions(names: Any, predicted: Any) -> list[dict[str, Any]]:
    """Which class is taken for which other, most often first."""
    wrong = Counter((str(a), str(b)) for a, b in zip(names, predicted, strict=True) if a != b)
    return [{"class": a, "taken_for": b, "photos": count} for (a, b), count in wrong.most_common()]


def description(store: Store) -> dict[str, Any]:
    """Everything that a person may want to know of a model file."""
    classifier = store.load()
    total = store.path.stat().st_size
    return {
        "model": str(store.path),
        "method": classifier.config.method,
        "backbone": classifier.config.backbone,
        "bytes": total,
        "network_bytes": classifier.network_bytes,
        "classes": class_rows(classifier),
        "history": [told(lesson) for lesson in classifier.lessons_],
        "versions": [path.name for path in store.versions()],
        "images_inside": holds_pixels(store.path),
    }


def class_rows(classifier: IncrementalClassifier) -> list[dict[str, Any]]:
    """Every class with how many photos of it were taught, and when the last of them."""
    counts: Counter[str] = Counter()
    taught: dict[str, str] = {}
    for lesson in classifier.lessons_:
        for name, photos in lesson.get("classes", {}).items():
            counts[name] += photos
            taught[name] = lesson.get("time", "")
    return [
        {"class": str(name), "photos": counts[str(name)], "taught": taught.get(str(name), "")}
        for name in classifier.classes_
    ]


def holds_pixels(path: Path) -> bool:
    """Whether a model file has a tensor of bytes, as images are; features, weights and counts are of other types."""
    tensors, _ = state.read(path, "classifier")
    return any(tensor.dtype == torch.uint8 for tensor in tensors.values())


def told(lesson: dict[str, Any]) -> str:
    """A lesson of the past in one line."""
    when = f"{lesson['time']}  " if lesson.get("time") else ""
    classes = ", ".join(f"{name} ({photos})" for name, photos in lesson.get("classes", {}).items())
    return f"{when}{lesson['what']} {classes}".rstrip()
