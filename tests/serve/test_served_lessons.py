"""How a lesson ends when its process, the server or the new model fails around the moment in which it is saved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import make_blobs
from efcil.errors import UserError
from efcil.serve import lessons as module
from efcil.serve.jobs import Jobs, Lesson
from efcil.serve.learner import Learner
from efcil.serve.lessons import School
from efcil.serve.limits import Budget, Limits
from efcil.serve.served import Served
from efcil.teaching.store import Store
from serving import SIZE, taught_model

KILLED = "The process that learnt this lesson ended (exit code -9); the model is as it was before it."


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(Store(taught_model(tmp_path / "pets.efcil", "cat", "dog")), {})


def save(store: Store) -> None:
    store.replace(store.load().partial_fit(*make_blobs(["bird"], size=SIZE)))


def lesson_of(
    served: Served, teach: Callable[[Callable[[dict[str, Any]], None]], None], stopping: threading.Event | None = None
) -> Lesson:
    """A lesson on birds once it has ended; ``teach`` is the process, and the server is told to stop on this event."""

    async def ended() -> Lesson:
        await served.reload()
        school = School(served, Jobs(served.store.path), Limits(), Budget(1 << 20))
        school.learner.teach = lambda task, pixels, progress, learnt: teach(learnt)  # type: ignore[method-assign, assignment]
        pixels, names = make_blobs(["bird"], size=SIZE)
        lesson = school.add(list(names), pixels)
        running = asyncio.create_task(school.run())
        if stopping is not None:
            await asyncio.to_thread(stopping.wait)
            await school.stop()
        while not lesson.ended:
            await asyncio.sleep(0.01)
        running.cancel()
        return lesson

    return asyncio.run(ended())


def noted(learnt: Callable[[dict[str, Any]], None]) -> None:
    learnt({"report": {"seconds": 1.0}, "place": 1})


@pytest.mark.parametrize("saved", [True, False])
def test_a_process_that_dies_before_it_says_saved_is_judged_by_the_model(served: Served, saved: bool) -> None:
    def teach(learnt: Callable[[dict[str, Any]], None]) -> None:
        noted(learnt)
        if saved:
            save(served.store)
        raise UserError(KILLED)

    lesson = lesson_of(served, teach)
    assert (lesson.status, lesson.error) == (("done", None) if saved else ("failed", KILLED))
    assert (lesson.report is not None) is saved
    assert served.classifier is not None and ("bird" in served.classifier.classes_) is saved


@pytest.mark.parametrize("saved", [True, False])
def test_a_stop_that_runs_out_of_patience_is_judged_by_the_model(
    served: Served, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    saving, killed = threading.Event(), threading.Event()
    monkeypatch.setattr(Learner, "end", lambda self: killed.set())

    def teach(learnt: Callable[[dict[str, Any]], None]) -> None:
        noted(learnt)
        if saved:
            save(served.store)
        saving.set()
        killed.wait()
        raise UserError(KILLED)

    lesson = lesson_of(served, teach, saving)
    assert (lesson.status, lesson.error) == (("done", None) if saved else ("failed", module.STOPPED))


@pytest.mark.parametrize("trouble", [MemoryError(), UserError("It cannot be read.")])
def test_a_saved_lesson_is_done_even_if_its_model_cannot_be_loaded(
    served: Served, trouble: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise trouble

    def teach(learnt: Callable[[dict[str, Any]], None]) -> None:
        noted(learnt)
        save(served.store)
        monkeypatch.setattr(served.store, "load", fails)

    lesson = lesson_of(served, teach)
    assert (lesson.status, lesson.error) == ("done", None) and lesson.report is not None
    assert f"The model before goes on answering: {str(trouble) or 'MemoryError'}" in caplog.messages
    assert served.classifier is not None and "bird" not in served.classifier.classes_


def test_a_model_is_loaded_when_there_is_memory_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise MemoryError

    async def loaded() -> None:
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(served.store, "load", fails)
            await served.reload()
        await served.reload()

    asyncio.run(loaded())
    assert served.classifier is not None
