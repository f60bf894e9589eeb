"""A model file that is taught lesson by lesson: one writer at a time, every lesson a version, and a way back.

    pets.efcil                  the model as it is now
    pets.efcil.versions/        the models before the last few changes, 0001.efcil being the oldest ever kept
    .pets.efcil.lock            held while a command changes the model

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

KEPT = 5  # versions; each is as large as the model
NUMBER = re.compile("[0-9]{4,18}")  # of a version, as it is written here


class Store:
    """The model at this path and its earlier versions."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.folder = self.path.with_name(f"{self.path.name}.versions")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of this model; two lessons at once would lose one of them."""
        if not self.path.parent.is_dir():
            raise UserError(f"There is no folder {self.path.parent}; make it first, or choose another place.")
        busy = f"{self.path} is being changed by another command; wait until that one has finished."
        with locked(self.path.with_name(f".{self.path.name}.lock"), busy):
            yield

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

    def versions(self) -> list[Path]:
        """Earlier models, oldest first; a file that somebody else put beside them has no number and is left alone."""
        numbered = [path for path in self.folder.glob("*.efcil") if NUMBER.fullmatch(path.stem)]
        return sorted(numbered, key=lambda path: int(path.stem))

    def replace(self, classifier: IncrementalClassifier) -> None:
        """Put this model in the place of the present one, which becomes the newest version."""
        if self.exists:
            number = int(self.versions()[-1].stem) + 1 if self.versions() else 1
            version = self.folder / f"{number:04}.efcil"
            state.write_bytes(version, self.path.read_bytes())
        classifier.save(self.path)
        for old in self.versions()[:-KEPT]:
            old.unlink()

    def undo(self) -> IncrementalClassifier:
        """Go back to the model before the last change; that change is lost."""
        self.load()
        now = self.path.read_bytes()
        for version in reversed(self.versions()):
            before = version.read_bytes()
            if before == now:  # a change was cut off after its version was kept and before the model was replaced
                version.unlink()
                continue
            classifier = IncrementalClassifier.load(version)
            os.replace(version, self.path)
            return classifier
        raise UserError(f"{self.path} has no earlier version to go back to; the last {KEPT} changes are kept.")

    def forget(self, name: str) -> int:
        """Forget a class in the model and in every version; returns how many files knew it.

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
        for path in dict.fromkeys([*unclear, *knowing]):
            if path in changed and path not in unclear:
                changed[path].save(path)
            else:
                path.unlink()
        return len(knowing)
