"""What a page says of a taught model: its lessons, its classes, what it mixes up, when it says unknown, what is inside.

Without photos it is estimated from draws of what the model keeps of each class; with photos it is measured on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from efcil.classifier import IncrementalClassifier
from efcil.config import to_dict
from efcil.engine.answers import UNUSUAL, Answers
from efcil.errors import UserError
from efcil.report.confusion import confusion_figure
from efcil.report.figure import Figure
from efcil.report.lines import Curves, Series
from efcil.report.sections import Section, Tile
from efcil.report.table import Table, cell, size, size_cell
from efcil.teaching.answers import description
from efcil.teaching.kept import bytes_per_class, tensors_inside
from efcil.teaching.photos import Photos
from efcil.teaching.store import Store

BATCH = 32  # photos between two looks at the bar
WORST = 10
THRESHOLDS = [place / 100 for place in range(101)]

Progress = Callable[[int], None]  # told how many photos were looked at


@dataclass(frozen=True)
class ModelPage:
    """All that the template needs."""

    name: str
    lead: str
    facts: Sequence[str]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    settings: str
    commands: Sequence[str]


@dataclass(frozen=True)
class Judged:
    """Answers on things whose class is known: draws, or photos."""

    names: npt.NDArray[np.str_]  # (N,) the true class
    said: npt.NDArray[np.str_]  # (N,)
    familiarity: npt.NDArray[np.float32] | None  # (N,)

    @classmethod
    def of(cls, classes: npt.NDArray[np.str_], answers: Answers, names: npt.NDArray[np.str_]) -> Judged:
        return cls(names, classes[answers.probabilities.argmax(1)], answers.familiarity)

    def only(self, rows: npt.NDArray[np.bool_]) -> Judged:
        return Judged(self.names[rows], self.said[rows], None if self.familiarity is None else self.familiarity[rows])

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = self.names == self.said
        return same

    @property
    def accuracy(self) -> float | None:
        """In percent."""
        return 100 * float(self.right.mean()) if len(self.names) else None

    def of_class(self, name: str) -> Judged:
        return self.only(self.names == name)

    def taken_for(self) -> str:
        mistakes = Counter(self.said[~self.right].tolist()).most_common(2)
        return ", ".join(f"{other} ({count}×)" for other, count in mistakes)

    def rejected(self) -> list[float | None]:
        """Percent that would be called unknown at each threshold."""
        assert self.familiarity is not None
        return [100 * float((self.familiarity < limit).mean()) if len(self.names) else None for limit in THRESHOLDS]

    def counts(self, classes: Sequence[str]) -> list[list[int]]:
        pairs = Counter(zip(self.names.tolist(), self.said.tolist(), strict=True))
        return [[pairs[a, b] for b in classes] for a in classes]


def model_page(store: Store, photos: Photos | None, seen: Progress) -> ModelPage:
    """Everything that is known of the model at this place."""
    about = description(store)
    classifier = store.load()
    classes = names_of(classifier)
    drawn = judged_draws(classifier)
    tested = judged_photos(classifier, photos, seen) if photos is not None else None
    known = tested.only(np.isin(tested.names, classes)) if tested is not None else None
    strangers = tested.only(~np.isin(tested.names, classes)) if tested is not None else None
    if known is not None and not len(known.names):
        raise UserError(f"No class of the photos was ever taught; the model knows {', '.join(classes[:8])}.")
    made = [
        lessons(classifier, accuracy_of_versions(store, drawn, known, photos, seen)),
        class_table(about, classifier, drawn, known),
        confusions(classes.tolist(), drawn, known),
        unknown_curve(drawn, known, strangers),
        worst(classifier, photos, tested, known),
        inside(store.path, about),
    ]
    return ModelPage(
        store.path.name,
        lead(about, drawn, known, strangers),
        facts(about, classifier),
        tiles(about, drawn, known),
        [section for section in made if section.figures or section.tables or section.text],
        yaml.safe_dump(to_dict(classifier.config), sort_keys=False),
        [f"efcil {word} {store.path.name}" for word in ("inspect", "evaluate", "learn", "undo")],
    )


def names_of(classifier: IncrementalClassifier) -> npt.NDArray[np.str_]:
    return np.array([str(name) for name in classifier.classes_])


def judged_draws(classifier: IncrementalClassifier) -> Judged | None:
    """What it says of draws from what it keeps of each class."""
    estimated = classifier.estimated_answers()
    if estimated is None:
        return None
    answers, columns = estimated
    classes = names_of(classifier)
    return Judged.of(classes, answers, classes[columns])


def judged_photos(classifier: IncrementalClassifier, photos: Photos, seen: Progress) -> Judged:
    import torch

    found = []
    for rows in torch.arange(len(photos)).split(BATCH):
        found.append(classifier.answers(photos.images.subset(rows)))
        seen(len(rows))
    usual = [answers.familiarity for answers in found if answers.familiarity is not None]
    whole = Answers(np.concatenate([a.probabilities for a in found]), np.concatenate(usual) if usual else None)
    return Judged.of(names_of(classifier), whole, photos.names)


# What comes first


def lead(about: dict[str, Any], drawn: Judged | None, known: Judged | None, strangers: Judged | None) -> str:
    image = "IMAGES" if about["images_inside"] else "no image"
    text = f"It knows {len(about['classes'])} classes, and {image} is inside the file."
    if known is not None:
        text += f" Of {len(known.names)} photos that were given it names {known.accuracy:.1f} % rightly."
        others = 0 if strangers is None else len(strangers.names)
        return f"{text} {others} more are of classes that it was never taught." if others else text
    if drawn is not None:
        estimate = f"Of draws from what it keeps of each class it names {drawn.accuracy:.1f} % rightly"
        return f"{text} {estimate}; --photos FOLDER measures it on photos."
    return f"{text} What it keeps is too little for an estimate; --photos FOLDER measures it on photos."


def facts(about: dict[str, Any], classifier: IncrementalClassifier) -> list[str]:
    versions = len(about["versions"])
    return [
        f"{about['method']} on {about['backbone']}",
        f"{len(classifier.lessons_)} lesson{'s' * (len(classifier.lessons_) != 1)}",
        f"{versions} earlier version{'s' * (versions != 1)} kept",
    ]


def tiles(about: dict[str, Any], drawn: Judged | None, known: Judged | None) -> list[Tile]:
    photos = sum(row["photos"] for row in about["classes"])
    number, unit = size(about["bytes"]).split()
    found = [
        Tile(
            "Classes", str(len(about["classes"])), "", f"from {photos} photos" if photos else "photos were not counted"
        ),
        Tile("File", number, unit, f"{size(about['network_bytes'])} of it the network"),
        Tile("Images inside", "yes" if about["images_inside"] else "0", "", "no tensor of bytes, as pixels are"),
    ]
    judged, how = (known, "of photos given") if known is not None else (drawn, "of draws, an estimate")
    if judged is not None and judged.accuracy is not None:
        found.insert(0, Tile("Named rightly", f"{judged.accuracy:.1f}", "%", how))
    return found


# Sections


def lessons(classifier: IncrementalClassifier, more: list[Figure]) -> Section:
    """What was taught when, and how the number of classes grew."""
    known: set[str] = set()
    grown, rows = [], []
    for place, lesson in enumerate(classifier.lessons_, 1):
        taught = lesson["classes"]
        new = [name for name in taught if name not in known]
        again = [name for name in taught if name in known]
        known |= set(taught)
        grown.append(float(len(known)))
        rows.append(
            [
                cell(place),
                cell(lesson.get("time")),
                cell(", ".join(new)),
                cell(", ".join(again)),
                cell(sum(taught.values()) or None),
                cell(len(known)),
            ]
        )
    headings = ["lesson", "time", "new classes", "refined", "photos", "classes then known"]
    chart = Curves(
        "Classes known after each lesson",
        f"{len(rows)} lessons brought it to {len(known)} classes.",
        "lesson",
        "classes",
        [str(place) for place in range(1, len(rows) + 1)],
        [Series("classes", grown, 4)],
        low=0.0,
        decimals=0,
    )
    table = Table("Lessons", headings, rows).filled()
    return Section(
        "lessons", "Lessons", ["Under the names that the classes have now."], [chart.figure(), *more], tables=[table]
    )


def accuracy_of_versions(
    store: Store, drawn: Judged | None, known: Judged | None, photos: Photos | None, seen: Progress
) -> list[Figure]:
    """How good the model was at each of the versions that are kept, and is now."""
    labels, estimates, measured, rows = [], [], [], []
    for file in [*store.versions(), store.path]:
        model = IncrementalClassifier.load(file)
        now = file == store.path
        judged = drawn if now else judged_draws(model)
        labels.append("now" if now else file.stem.lstrip("0"))
        estimates.append(judged.accuracy if judged is not None else None)
        measured.append((known.accuracy if known else None) if now else measured_accuracy(model, photos, seen))
        rows.append([cell(labels[-1]), cell(len(model.classes_)), cell(estimates[-1]), cell(measured[-1])])
    curves = [
        Series("photos given, of classes then known", measured, 0),
        Series("draws from what was kept", estimates, 4, dashed=True),
    ]
    series = [one for one in curves if any(value is not None for value in one.values)]
    if not series or len(labels) < 2:
        return []
    title = "Accuracy of the versions kept"
    last = ", ".join(f"{s.name} {s.values[-1]:.1f}" for s in series if s.values[-1] is not None)
    chart = Curves(title, f"In percent, now: {last}.", "version", "percent", labels, series, low=0.0, high=100.0)
    table = Table(title, ["version", "classes", "draws, percent", "photos, percent"], rows)
    return [chart.figure(table=table)]


def measured_accuracy(model: IncrementalClassifier, photos: Photos | None, seen: Progress) -> float | None:
    """In percent, on the photos of classes that it knows."""
    import torch

    if photos is None:
        return None
    rows = np.flatnonzero(np.isin(photos.names, names_of(model)))
    some = Photos(photos.images.subset(torch.from_numpy(rows)), photos.names[rows], [photos.paths[row] for row in rows])
    return judged_photos(model, some, seen).accuracy if len(rows) else None


def class_table(
    about: dict[str, Any], classifier: IncrementalClassifier, drawn: Judged | None, known: Judged | None
) -> Section:
    rows = []
    for row, kept in zip(about["classes"], bytes_per_class(classifier), strict=True):
        own = known.of_class(row["class"]) if known is not None else None
        guess = drawn.of_class(row["class"]) if drawn is not None else None
        mistakes = own if own is not None else guess
        rows.append(
            [
                cell(row["class"]),
                cell(row["photos"] or None),
                cell(row["taught"]),
                size_cell(kept),
                *([cell(guess.accuracy)] if guess is not None else []),
                *([cell(own.accuracy), cell(len(own.names))] if own is not None else []),
                cell(mistakes.taken_for() if mistakes is not None else ""),
            ]
        )
    headings = ["class", "photos taught", "last taught", "kept"]
    headings += ["draws right, %"] if drawn is not None else []
    headings += ["photos right, %", "photos given"] if known is not None else []
    text = [
        "How each photo would be named had it not been taught (leave-one-out) is said at the end of a lesson and not "
        "kept in the file; draws are made anew from the statistics that are."
    ]
    table = Table("Classes", [*headings, "mostly taken for"], rows).filled()
    return Section("classes", "Classes", text, tables=[table])


def confusions(classes: list[str], drawn: Judged | None, known: Judged | None) -> Section:
    figures: list[Figure] = []
    if known is not None:
        figures.append(confusion_figure("Photos given", classes, known.counts(classes), "Photos given", "photos"))
    if drawn is not None:
        title = "Draws from what is kept"
        figures.append(confusion_figure(title, classes, drawn.counts(classes), title, "draws"))
    return Section("confusions", "Confusions", ["Row: the true class. Column: the answer."] if figures else [], figures)


def unknown_curve(drawn: Judged | None, known: Judged | None, strangers: Judged | None) -> Section:
    """How many would be called unknown at each threshold of familiarity."""
    title = "Unknown"
    expected = Series("expected of classes taught", [100 * limit for limit in THRESHOLDS], 3, dashed=True)
    kinds = [
        ("photos of classes taught (wrongly rejected)", known, 0),
        ("photos of other classes (rightly rejected)", strangers, 5),
        ("draws from what is kept (wrongly rejected)", drawn, 4),
    ]
    told = [
        (name, judged, style)
        for name, judged, style in kinds
        if judged is not None and judged.familiarity is not None and len(judged.names)
    ]
    if not told:
        never = "This method does not tell how usual a photo is for its class, so it never answers unknown."
        return Section("unknown", title, [never])
    series = [Series(name, judged.rejected(), style, dashed=judged is drawn) for name, judged, style in told]
    place = THRESHOLDS.index(UNUSUAL)
    now = "; ".join(f"{s.name}: {s.values[place]:.1f} %" for s in series)
    series.append(expected)
    labels = [f"{limit:.2f}" for limit in THRESHOLDS]
    rows = [[cell(labels[i]), *(cell(s.values[i]) for s in series)] for i in sorted({place, *range(0, 101, 10)})]
    chart = Curves(
        "Called unknown, by threshold of familiarity",
        f"At the threshold in use, {UNUSUAL}: {now}.",
        "threshold of familiarity",
        "percent called unknown",
        labels,
        series,
        low=0.0,
        high=100.0,
        marked=(place, f"in use: {UNUSUAL}"),
    )
    table = Table("Percent called unknown", ["threshold", *(s.name for s in series)], rows)
    text = [
        "Familiarity is the share of a class's own photos that would be less usual than this one. Below the threshold "
        f"the answer is unknown, so about that share of a class's own photos is expected to be. At {UNUSUAL}, the "
        f"threshold in use: {now}.",
        "Draws are Gaussian and can be more alike than photos are: photos tell more.",
    ]
    return Section("unknown", title, text, [chart.figure(wide=True, table=table)])


def worst(
    classifier: IncrementalClassifier, photos: Photos | None, tested: Judged | None, known: Judged | None
) -> Section:
    """Photos that were named wrongly; only their names are in the page."""
    title = "Photos named wrongly"
    if photos is None or tested is None or known is None:
        return Section("worst", title)
    classes = names_of(classifier)
    wrong = np.flatnonzero(np.isin(tested.names, classes) & ~tested.right)
    if not len(wrong):
        return Section("worst", title, ["None."])
    usual = tested.familiarity
    order = sorted(wrong.tolist(), key=lambda row: 0.0 if usual is None else -float(usual[row]))
    rows = [
        [
            cell(Path(photos.paths[row]).name),
            cell(str(tested.names[row])),
            cell(str(tested.said[row])),
            cell(None if usual is None else float(usual[row]), 2),
        ]
        for row in order[:WORST]
    ]
    text = [f"{len(wrong)} of {len(known.names)}; those that look most usual for the wrong class come first."]
    return Section("worst", title, text, tables=[Table(title, ["file", "is", "answer", "familiarity"], rows)])


def inside(path: Path, about: dict[str, Any]) -> Section:
    rows = [
        [cell(row["name"]), cell(row["shape"]), cell(row["type"]), size_cell(row["bytes"])]
        for row in tensors_inside(path)
    ]
    image = (
        "A tensor of bytes is inside, as images are: this is no model that efcil made."
        if about["images_inside"]
        else "No image is inside, nor a file name or a path of one: no tensor has the type of pixels (uint8)."
    )
    text = [
        image,
        "Means and covariances of features are statistics of your photos; docs/what-a-model-reveals.md says what they "
        "tell.",
    ]
    return Section(
        "inside", "What the file holds", text, tables=[Table("Tensors", ["name", "shape", "type", "size"], rows)]
    )
