"""The list of lessons that were asked for, kept beside the model: names of classes and numbers, no name of a photo.

.pets.efcil.serve.lock      held while a server runs
pets.efcil.lessons.json     every lesson, oldest first
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from efcil.engine import state
from efcil.engine.labels import renamed
from efcil.errors import UserError

log = logging.getLogger("efcil.serve")
ENDED = ("done", "failed", "lost")
LOST = "The server ended before this lesson was saved, so the model is as it was before it; teach it again."
KEPT = 1000  # lessons in the list; of those before only the number is kept


@dataclass
class Lesson:
    """One lesson that was asked for."""

    id: str
    status: str  # waiting, running, done, failed or lost
    classes: dict[str, int]  # photos of each
    time: str  # when it was asked for
    progress: dict[str, Any] | None = None  # stage, done, total
    report: dict[str, Any] | None = None  # of a LessonReport
    error: str | None = None
    undone: bool = False  # taken back later
    place: int | None = None  # in the lessons of the model, known just before it is saved

    def to_dict(self) -> dict[str, Any]:
        """As the world sees it."""
        return {name: value for name, value in asdict(self).items() if name != "place"}

    def is_that(self, taught: dict[str, Any]) -> bool:
        """Whether a model has this lesson as that one; photos that were held out of it do not count there."""
        return set(self.classes) == set(taught.get("classes", {}))

    def is_in(self, lessons: list[dict[str, Any]]) -> bool:
        """Whether a model that has had these lessons was saved with this one."""
        return self.place is not None and self.place < len(lessons) and self.is_that(lessons[self.place])

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True)
class Taught:
    """What a model has had at some time."""

    classes: list[str]
    lessons: list[dict[str, Any]]


class Jobs:
    """All lessons of one model, in memory and on disk. Only the event loop changes them."""

    def __init__(self, model: Path) -> None:
        self.path = model.with_name(f"{model.name}.lessons.json")
        self.lessons: list[Lesson] = []
        self.earlier = 0  # lessons that are no longer in the list
        self._changed = asyncio.Event()

    def read(self, taught: list[dict[str, Any]]) -> None:
        """The list as an earlier server left it; what it did not end is lost, unless the model was saved in time.

        ``taught`` are the lessons that the model has had.
        """
        if not self.path.exists():
            return
        known = {field.name for field in fields(Lesson)}
        try:
            kept = json.loads(self.path.read_text())
            self.earlier = int(kept["earlier"])
            self.lessons = [Lesson(**{key: row[key] for key in row.keys() & known}) for row in kept["lessons"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.path} cannot be read ({error}); move it away, the model is not in it.") from None
        for lesson in self.lessons:
            if lesson.ended:
                continue
            if lesson.is_in(taught):
                self.change(lesson, status="done", progress=None)
            else:
                self.change(lesson, status="lost", progress=None, report=None, error=LOST)

    @property
    def total(self) -> int:
        """Lessons that the model was ever asked to learn here."""
        return self.earlier + len(self.lessons)

    @property
    def unfinished(self) -> list[Lesson]:
        return [lesson for lesson in self.lessons if not lesson.ended]

    @property
    def past(self) -> list[Lesson]:
        return [lesson for lesson in self.lessons if lesson.ended]

    def find(self, identity: str) -> Lesson | None:
        return next((lesson for lesson in self.lessons if lesson.id == identity), None)

    def add(self, classes: dict[str, int]) -> Lesson:
        lesson = Lesson(secrets.token_hex(8), "waiting", classes, time.strftime("%Y-%m-%d %H:%M:%S"))
        self.lessons.append(lesson)
        while len(self.lessons) > KEPT and self.lessons[0].ended:
            self.lessons.pop(0)
            self.earlier += 1
        self.write()
        return lesson

    def change(self, lesson: Lesson, **changes: Any) -> None:
        """Note something on a lesson, on disk too unless it is only progress, and wake those who watch it."""
        for name, value in changes.items():
            setattr(lesson, name, value)
        if set(changes) != {"progress"}:
            self.write()
        self.wake()

    def write(self) -> None:
        rows = [{**asdict(lesson), "progress": None} for lesson in self.lessons]
        try:
            state.write_text(self.path, json.dumps({"earlier": self.earlier, "lessons": rows}))
        except OSError as error:  # lessons go on; only a restart would not know of them
            log.warning("The list of lessons cannot be written: %s", error)

    def rename(self, old: str, new: str) -> None:
        """Call a class by its new name in the past too, so that forgetting it later finds it.

        A lesson that waits will teach the name that it was given.
        """
        for lesson in self.past:
            lesson.classes = renamed(lesson.classes, old, new)
            if lesson.report:
                lesson.report = _mapped(lesson.report, {old: new})
        self.write()

    def forget(self, name: str) -> None:
        """Leave no word of a class; a lesson that waits will teach it anew."""
        for lesson in self.past:
            lesson.classes = {known: photos for known, photos in lesson.classes.items() if known != name}
            if lesson.report:
                lesson.report = _mapped(lesson.report, {name: None})
        self.write()

    def undo(self, before: Taught, after: Taught) -> None:
        """Follow the model back: mark the lesson that it has no longer, or take a renaming back here too."""
        if len(before.lessons) == len(after.lessons) + 1:
            learnt = (lesson for lesson in self.lessons if lesson.status == "done" and not lesson.undone)
            done = [lesson for lesson in learnt if lesson.classes]  # none is left where all were forgotten
            if done and done[-1].is_that(before.lessons[-1]):
                self.change(done[-1], undone=True)
            return
        gone, back = set(before.classes) - set(after.classes), set(after.classes) - set(before.classes)
        if len(gone) == len(back) == 1:
            self.rename(gone.pop(), back.pop())

    def wake(self) -> None:
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    async def changed(self, seconds: float) -> bool:
        """Wait until some lesson changes; whether one did."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _mapped(report: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    """A report with classes called by other names, or without those that have none."""

    def rows(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        named = []
        for row in listed:
            found: dict[str, Any] = {key: names.get(row[key], row[key]) for key in ("class", "taken_for") if key in row}
            if None not in found.values():
                named.append({**row, **found})
        return named

    return {**report, "classes": rows(report["classes"]), "confusions": rows(report["confusions"])}
