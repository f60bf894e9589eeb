"""What going back from one model to an earlier one takes away, in words."""

from __future__ import annotations

from typing import Any

from efcil.classifier import IncrementalClassifier
from efcil.errors import UserError


class AfterForgetting(UserError):
    """The last change forgot a class, which nothing brings back; whoever goes further back loses something else."""

    def __init__(self, lost: str) -> None:
        self.lost = lost
        told = "The last change was forgetting a class, which cannot be undone"
        super().__init__(f"{told}; add --further to go back beyond it, which takes back {lost}.")


def taken_back(now: IncrementalClassifier, before: IncrementalClassifier) -> str:
    """The change between two models in words; none where both were taught the same."""
    lessons = now.lessons_[len(before.lessons_) :]
    if lessons:
        return " and ".join(map(lesson_words, lessons))
    known, earlier = (list(map(str, model.classes_)) for model in (now, before))
    gone, back = (", ".join(name for name in a if name not in b) for a, b in ((known, earlier), (earlier, known)))
    if gone:
        return f"the renaming of {back} to {gone}"
    return f"the merging of {back} into another class" if back else ""


def lesson_words(lesson: dict[str, Any]) -> str:
    """``the lesson of mug (6), pen (4) on 2025-03-01 10:22``."""
    when = f" on {lesson['time']}" if lesson.get("time") else ""
    return f"the lesson of {', '.join(f'{name} ({photos})' for name, photos in lesson['classes'].items())}{when}"
