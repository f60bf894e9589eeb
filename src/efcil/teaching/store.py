"""A model file that is taught lesson by lesson: one writer at a time, every lesson a version, and a way back.

    pets.efcil                  the model as it is now
    pets.efcil.versions/        the models before the last few changes, 0001.efcil being the oldest ever kept;
                                0002.forgotten, which is empty, where a class was forgotten
    .pets.efcil.lock            held while a command changes the model
    .pets.efcil.123.partial     half-written by process 123; the next command that changes the model removes it

A reader never needs the lock: the model is replaced in one step, so it is always whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from efcil.classifier import IncrementalClassifier
from efcil.engine import state
from efcil.engine.locks import locked
from efcil.errors import UserError, unknown
from efcil.teaching.undone import AfterForgetting, taken_back

KEPT = 5  # versions; each is as large as the model
NUMBER = re.compile("[0-9]{4,18}")  # of a change, as it is written here
VERSION, FORGOTTEN = ".efcil", ".forgotten"  # a change that can be undone, and one that cannot


class Store:
    """The model at this path and its earlier versions."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UserError(f"{self.path} is a folder; give a model file, such as pets.efcil.")
        self.folder = self.path.with_name(f"{self.path.name}.versions")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of this model; two lessons at once would lose one of them."""
        if not self.path.parent.is_dir():
            raise UserError(f"There is no folder {self.path.parent}; make it first, or choose another place.")
        busy = f"{self.path} is being changed by another command; wait until that one has finished."
        with locked(self.path.with_name(f".{self.path.name}.lock"), busy):
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what killed processes have left half-written: it may know a class that is forgotten since.

        The names are told exactly, because a server writes its list beside the model without this lock.
        """
        model, version = re.escape(self.path.name), rf"{NUMBER.pattern}\.[a-z]+"
        for folder, name in ((self.path.parent, model), (self.folder, version)):
            left = re.compile(rf"\.{name}\.[0-9]+{re.escape(state.PARTIAL)}")
            for path in folder.glob(f".*{state.PARTIAL}"):
                if left.fullmatch(path.name):
                    path.unlink()

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def load(self) -> IncrementalClassifier:
        """The model as it is now."""
        if not self.exists:
            raise UserError(f"There is no model {self.path}; teach one with: efcil learn {self.path} FOLDER.")
        return IncrementalClassifier.load(self.path)

    def existing(self, *choices: object) -> IncrementalClassifier:
        """The model as it is now; what can be chosen for a new one only must not be given."""
        if any(choices):
            raise UserError(
                f"{self.path} exists, so its method and network are chosen; leave --method, --backbone, --tune and "
                "--set out, or teach a new model."
            )
        return self.load()

    def changes(self) -> list[Path]:
        """What is kept of the last changes, oldest first; a file that somebody else put there is left alone."""
        ours = [path for path in self.folder.glob("*") if path.suffix in (VERSION, FORGOTTEN)]
        return sorted((path for path in ours if NUMBER.fullmatch(path.stem)), key=lambda path: int(path.stem))

    def versions(self) -> list[Path]:
        """Earlier models, oldest first."""
        return [path for path in self.changes() if path.suffix == VERSION]

    def replace(self, classifier: IncrementalClassifier) -> None:
        """Put this model in the place of the present one, which becomes the newest version."""
        if self.exists:
            state.write_bytes(self._next(VERSION), self.path.read_bytes())
        classifier.save(self.path)
        self._tidy()

    def undo(self, further: bool = False) -> str:
        """Go back to the model before the last change, and say what that takes back; it is lost.

        A class that was forgotten does not come back, so going back beyond that must be wished.
        """
        now = self.load()
        passed: list[Path] = []
        for change in reversed(self.changes()):
            lost = "" if change.suffix == FORGOTTEN else taken_back(now, IncrementalClassifier.load(change))
            if not lost:  # also where a change was cut off after its version was kept and before the model was replaced
                passed.append(change)
                continue
            if not further and any(path.suffix == FORGOTTEN for path in passed):
                raise AfterForgetting(lost)
            os.replace(change, self.path)
            for path in passed:
                path.unlink()
            return lost
        raise UserError(
            f"{self.path} has no earlier version to go back to; every change keeps one, but for forgetting, which "
            "cannot be undone."
        )

    def _next(self, kind: str) -> Path:
        """The place of the next change."""
        number = int(self.changes()[-1].stem) + 1 if self.changes() else 1
        return self.folder / f"{number:04}{kind}"

    def _tidy(self) -> None:
        """Keep the last few versions, and of the places where a class was forgotten those behind one of them."""
        for old in self.versions()[:-KEPT]:
            old.unlink()
        for place in self.changes():
            if place.suffix == VERSION:
                break
            place.unlink()

    def forget(self, name: str) -> tuple[int, int]:
        """Forget a class in the model and in every version; how many versions stay without it, and how many went.

        A version that knows nothing else goes, and so does one from before a renaming or merging, which may know the
        class by another name. The same call again goes on where it was cut off.
        """
        models = {path: IncrementalClassifier.load(path) for path in [*self.versions(), self.path]}
        knowing = [path for path, model in models.items() if name in map(str, model.classes_)]
        if not knowing:
            raise unknown("class", name, map(str, models[self.path].classes_))
        others = {
            path: [known for known in map(str, model.classes_) if known != name] for path, model in models.items()
        }
        changes = [path for path, later in pairwise(models) if others[path] != others[later][: len(others[path])]]
        unclear = list(models)[: list(models).index(changes[-1]) + 1] if changes else []
        changed = {path: models[path].forget(name) for path in knowing if len(models[path].classes_) > 1}
        if self.path in knowing and self.path not in changed:
            raise UserError(f"{name} is the only class of {self.path}; delete the file instead, and its versions.")
        if self.versions():
            state.write_bytes(self._next(FORGOTTEN), b"")
        for path in dict.fromkeys([*unclear, *knowing]):
            if path in changed and path not in unclear:
                changed[path].save(path)
            else:
                path.unlink()
        self._tidy()
        stay = [path for path in knowing if path.exists() and path != self.path]
        return len(stay), len(models) - 1 - len(self.versions())
