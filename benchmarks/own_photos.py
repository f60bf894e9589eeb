"""Which method for a person's own photos: every method on the same few photos, and on sketches.

    OMP_NUM_THREADS=1 python benchmarks/own_photos.py --data-root DIR --streams office pacs-photo pacs-sketch

DIR holds ``office/DOMAIN/CLASS/*.jpg`` and ``pacs/DOMAIN/CLASS/*.jpg``. The seed decides the order of the classes and
which photos are taught and tested. Every finished run is a row of results/own_photos.csv; rows that are there are not
run again. At the end the tables are printed, from all rows; without ``--data-root`` nothing else happens.

Half of the photos of a class, every second in name order, never appear in these rows. With ``--choosing`` only those
are used, and ``--out`` names another file: that is how the settings of ``efcil learn --tune`` were chosen.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize

from efcil import IncrementalClassifier
from efcil.bench.scenarios import parse_change
from efcil.config import merge
from efcil.data.given import files_inside
from efcil.engine.model import IncrementalModel
from efcil.teaching.new import BACKBONE, TUNED

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Stream:
    """Which photos, how many of each class, and how many classes each lesson has."""

    folder: str
    domains: tuple[str, ...]
    taught: int  # photos of each class
    lessons: tuple[int, ...]
    tested: int = 40  # photos of each class, fewer where there are fewer


STREAMS = {
    "office": Stream("office", ("amazon", "caltech", "dslr", "webcam"), 20, (2, 2, 2, 2, 2)),
    "office-unknown": Stream("office", ("amazon", "caltech", "dslr", "webcam"), 20, (2, 2, 3)),
    "office-five": Stream("office", ("amazon", "caltech", "dslr", "webcam"), 5, (1,) * 10),
    "pacs-photo": Stream("pacs", ("photo",), 20, (2, 2, 3)),
    "pacs-art": Stream("pacs", ("art_painting",), 20, (2, 2, 3)),
    "pacs-cartoon": Stream("pacs", ("cartoon",), 20, (2, 2, 3)),
    "pacs-sketch": Stream("pacs", ("sketch",), 20, (2, 2, 3)),
}
TRAINED: dict[str, Any] = {  # the network learns in every lesson
    "method": "efc++",
    "first": {"rotation": False, "steps": 20, "backbone_lr": 1e-4},
    "incremental": {"steps": 20, "lr": 1e-3, "backbone_lr": 1e-4},
}
METHODS: dict[str, dict[str, Any]] = {
    "freeze": {"method": "freeze"},
    "lda": {"method": "lda"},
    "fecam": {"method": "fecam"},
    "ranpac": {"method": "ranpac", "options": {"expansion": 2048}},  # 10,000 and 8,192, the defaults of these two,
    "ds-al": {"method": "ds-al", "options": {"expansion": 2048}},  # make files of a gigabyte and take many minutes
    "lda tuned": TUNED,  # the network learns in the first lesson and stays so
    "efc++": TRAINED,
    "finetune": {**TRAINED, "method": "finetune", "options": {}},
}
ALL_AT_ONCE = "logistic regression"
STRENGTHS = {"C": [1.0, 10.0, 100.0, 1000.0]}  # of logistic regression, chosen by five folds of what is taught
FIELDS = (
    *("stream", "method", "changes", "seed", "accuracy", "incremental", "seconds", "bytes", "ece"),
    *("auroc", "rejected", "detected", "auroc_softmax", "detected_softmax"),
)
Photos = tuple[list[str], npt.NDArray[np.str_]]


@dataclass(frozen=True)
class Split:
    """What one seed makes of a stream."""

    lessons: list[Photos]
    tests: list[Photos]  # of the classes of each lesson
    strangers: list[str]  # photos of classes that are never taught


def drawn(stream: Stream, root: Path, seed: int, choosing: bool) -> Split:
    """Classes in the order of the seed, and of each class other photos for the lesson and for the test."""
    draw = np.random.default_rng(seed)
    domains = [root / stream.folder / domain for domain in stream.domains]
    classes = draw.permutation(sorted(folder.name for folder in domains[0].iterdir() if folder.is_dir())).tolist()
    taught, tested = {}, {}
    for name in classes:
        paths = [path for domain in domains for path in files_inside(domain / name)][choosing::2]
        mixed = draw.permutation(paths).tolist()
        taught[name] = mixed[: stream.taught]
        tested[name] = mixed[stream.taught :][: stream.tested]
    ends = np.cumsum([0, *stream.lessons])
    groups = [classes[a:b] for a, b in pairwise(ends)]
    strangers = [path for name in classes[ends[-1] :] for path in tested[name]]
    lessons, tests = ([labelled(photos, group) for group in groups] for photos in (taught, tested))
    return Split(lessons, tests, strangers)


def labelled(photos: dict[str, list[str]], classes: list[str]) -> Photos:
    paths = [path for name in classes for path in photos[name]]
    return paths, np.array([name for name in classes for _ in photos[name]])


def joined(parts: list[Photos]) -> Photos:
    return [path for paths, _ in parts for path in paths], np.concatenate([names for _, names in parts])


def learnt(settings: dict[str, Any], split: Split, seed: int, shared: Shared) -> dict[str, Any]:
    """Teach lesson after lesson and measure."""
    classifier = IncrementalClassifier(**merge({"backbone": BACKBONE, "seed": seed, "progress": False}, settings))
    seconds, steps = 0.0, []
    for index, (paths, names) in enumerate(split.lessons):
        begun, spared = time.process_time(), shared.seconds
        classifier.partial_fit(paths, names)
        seconds += time.process_time() - begun - (shared.seconds - spared)
        shared.photos(classifier)
        seen, true = joined(split.tests[: index + 1])
        answers = classifier.answers(seen)
        steps.append(float(np.mean(classifier.classes_[answers.probabilities.argmax(1)] == true)))
        print(f"  lesson {index + 1}: {steps[-1]:.3f} after {seconds:.0f} s", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder, "model.efcil"))
        size = Path(folder, "model.efcil").stat().st_size
    right = classifier.classes_[answers.probabilities.argmax(1)] == true
    row = {"accuracy": steps[-1], "incremental": mean(steps), "seconds": seconds, "bytes": size}
    row["ece"] = calibration_error(answers.probabilities.max(1), right)
    if split.strangers:
        strange = classifier.answers(split.strangers)
        row |= softmax_rejection(answers.probabilities, strange.probabilities, answers.unknown.mean())
        if answers.familiarity is not None and strange.familiarity is not None:
            row["auroc"] = area(answers.familiarity, strange.familiarity)
            row["rejected"], row["detected"] = answers.unknown.mean(), strange.unknown.mean()
    return row


def all_at_once(split: Split, shared: Shared) -> dict[str, Any]:
    """Logistic regression on the features of all photos together, which nobody who teaches in lessons can have."""
    (paths, names), (seen, true) = joined(split.lessons), joined(split.tests)
    network = IncrementalClassifier("freeze", backbone=BACKBONE, progress=False).partial_fit(paths[:1], names[:1])
    shared.photos(network)
    taught = features(network, paths)
    begun = time.process_time()
    regression = GridSearchCV(LogisticRegression(max_iter=500), STRENGTHS, cv=5).fit(taught, names)
    row = {"seconds": time.process_time() - begun}
    known = regression.predict_proba(features(network, seen))
    right = regression.classes_[known.argmax(1)] == true
    row |= {"accuracy": right.mean(), "ece": calibration_error(known.max(1), right)}
    if split.strangers:
        row |= softmax_rejection(known, regression.predict_proba(features(network, split.strangers)), 0.05)
    return row


class Shared:
    """Every photo passes through a frozen network once, whatever methods ask for it; a lesson is timed without that."""

    def __init__(self) -> None:
        self.of_batch: dict[bytes, torch.Tensor] = {}  # features of what a lesson shows, by its pixels
        self.of_photo: dict[str, torch.Tensor] = {}
        self.seconds = 0.0  # of looking and finding
        self.look = IncrementalModel.features
        IncrementalModel.features = lambda model, x: self.batch(model, x)  # type: ignore[method-assign]

    def batch(self, model: IncrementalModel, x: torch.Tensor) -> torch.Tensor:
        if not model.frozen_backbone:
            return self.look(model, x)
        begun = time.process_time()
        pixels = hashlib.blake2b(x.contiguous().numpy().tobytes()).digest()
        if pixels not in self.of_batch:
            self.of_batch[pixels] = self.look(model, x)
        self.seconds += time.process_time() - begun
        return self.of_batch[pixels]

    def photos(self, classifier: IncrementalClassifier) -> None:
        """Let this classifier answer from features that are known, if its network is frozen."""
        assert classifier._model is not None
        if not classifier._model.frozen_backbone or classifier.config.image_size:
            return
        measure = IncrementalClassifier._features

        def known(paths: list[str]) -> Iterator[torch.Tensor]:
            missing = [path for path in paths if path not in self.of_photo]
            if missing:
                self.of_photo.update(zip(missing, torch.cat(list(measure(classifier, missing))), strict=True))
            yield torch.stack([self.of_photo[path] for path in paths])

        classifier._features = known  # type: ignore[method-assign]


@torch.no_grad()
def features(network: IncrementalClassifier, paths: list[str]) -> Floats:
    """At unit length, as lda uses them."""
    rows: Floats = normalize(torch.cat(list(network._features(paths))).numpy())
    return rows


def calibration_error(sure: Floats, right: npt.NDArray[np.bool_]) -> float:
    """How far being sure is from being right, over ten equal parts of [0, 1], weighted by photos."""
    parts = np.minimum((sure * 10).astype(int), 9)
    gaps = [abs(right[parts == p].mean() - sure[parts == p].mean()) * np.mean(parts == p) for p in np.unique(parts)]
    return float(sum(gaps))


def softmax_rejection(known: Floats, strange: Floats, rejected: float) -> dict[str, float]:
    """The greatest probability as the sign of something untaught, with the threshold that rejects as many known."""
    sure, unsure = known.max(1), strange.max(1)
    return {
        "auroc_softmax": area(sure, unsure),
        "detected_softmax": float(np.mean(unsure < np.quantile(sure, rejected))),
    }


def area(known: Floats, strange: Floats) -> float:
    """AUROC of telling known photos from strange ones."""
    truth = np.repeat([1, 0], [len(known), len(strange)])
    return float(roc_auc_score(truth, np.concatenate([known, strange])))


def rows_of(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def append(file: Path, row: dict[str, Any]) -> None:
    new = not file.exists()
    with file.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        numbers = {
            name: round(float(value), 4) for name, value in row.items() if isinstance(value, float | np.floating)
        }
        writer.writerow(row | numbers)


def run(args: argparse.Namespace) -> None:
    changes, shared = " ".join(args.changes), Shared()
    for name in args.streams:
        for seed in args.seeds:
            for method in args.methods:
                key = {"stream": name, "method": method, "changes": changes, "seed": str(seed)}
                if any(key.items() <= row.items() for row in rows_of(args.out)):
                    continue
                print(f"{name} {method} seed {seed} {changes}", file=sys.stderr, flush=True)
                split = drawn(STREAMS[name], args.data_root, seed, args.choosing)
                if method == ALL_AT_ONCE:
                    found = all_at_once(split, shared)
                else:
                    settings = METHODS[method]
                    for change in args.changes:
                        settings = merge(settings, parse_change(change)["classifier"])
                    found = learnt(settings, split, seed, shared)
                append(args.out, {**key, **found})


def table(rows: list[dict[str, str]], stream: str) -> None:
    """The rows of one stream as Markdown, a line for each method."""
    own = [row for row in rows if row["stream"] == stream]
    print(f"\n{stream}\n")
    columns = ["accuracy", "incremental", "ece", "minutes", "MB"]
    told = ["auroc", "rejected", "detected", "auroc_softmax", "detected_softmax"]
    columns += told if any(row["auroc_softmax"] for row in own) else []
    print(f"| method | {' | '.join(columns)} | seeds |\n|---|{'---:|' * (len(columns) + 1)}")
    for method, changes in dict.fromkeys((row["method"], row["changes"]) for row in own):
        mine = [row for row in own if (row["method"], row["changes"]) == (method, changes)]
        cells = [cell(mine, column) for column in columns]
        print(f"| {f'{method} {changes}'.strip()} | {' | '.join(cells)} | {len(mine)} |")


def cell(rows: list[dict[str, str]], column: str) -> str:
    """Mean ± standard deviation."""
    source, scale, digits = {
        "minutes": ("seconds", 1 / 60, 1),
        "MB": ("bytes", 1e-6, 1),
        "auroc": ("auroc", 1, 3),
        "auroc_softmax": ("auroc_softmax", 1, 3),
    }.get(column, (column, 100, 1))
    values = [float(row[source]) * scale for row in rows if row[source]]
    if not values:
        return ""
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 and column not in ("minutes", "MB") else ""
    return f"{mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="without it only the tables are printed")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, ALL_AT_ONCE], default=[*METHODS, ALL_AT_ONCE])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--choosing", action="store_true", help="use the other half of the photos")
    parser.add_argument("--out", type=Path, default=Path("results/own_photos.csv"))
    args = parser.parse_args()
    if args.data_root:
        run(args)
    for stream in args.streams:
        table(rows_of(args.out), stream)
