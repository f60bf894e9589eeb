"""The list of lessons over restarts: what is kept, what is lost, and what is forgotten."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from efcil.errors import UserError
from efcil.serve import jobs as module
from efcil.serve.jobs import Jobs, Taught

REPORT: dict[str, Any] = {
    "classes": [{"class": "cat", "photos": 3, "accuracy": 1.0}, {"class": "dog", "photos": 2, "accuracy": 0.5}],
    "confusions": [{"class": "dog", "taken_for": "cat", "photos": 1}],
    "seconds": 1.0,
}


def restarted(folder: Path, taught: list[dict[str, Any]]) -> Jobs:
    jobs = Jobs(folder / "pets.efcil")
    jobs.read(taught)
    return jobs


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path / "pets.efcil")


def test_what_was_not_ended_is_lost(jobs: Jobs, tmp_path: Path) -> None:
    done, running, _waiting = (jobs.add({name: 3}) for name in ("cat", "dog", "cow"))
    jobs.change(done, status="done", report=REPORT)
    jobs.change(running, status="running", report=REPORT)
    for _ in range(2):  # a second restart finds the same
        again = restarted(tmp_path, [{"classes": {"cat": 3}}])
        assert [lesson.status for lesson in again.lessons] == ["done", "lost", "lost"]
        assert [lesson.error is not None for lesson in again.lessons] == [False, True, True]
        assert again.lessons[0].to_dict() == done.to_dict() and again.lessons[1].report is None


@pytest.mark.parametrize(
    ("taught", "status"),
    [
        ([{"classes": {"cat": 3}}, {"classes": {"dog": 2}}], "done"),
        ([{"classes": {"cat": 3}}], "lost"),
        ([{"classes": {"cat": 3}}, {"classes": {"dog": 1}}], "done"),  # the other photo was held out
        ([{"classes": {"cat": 3}}, {"classes": {"cow": 2}}], "lost"),
    ],
)
def test_a_kill_around_saving_is_judged_by_the_model(
    jobs: Jobs, tmp_path: Path, taught: list[dict[str, Any]], status: str
) -> None:
    """The report was noted, then the model was to be saved: whether it was, the model says."""
    jobs.change(jobs.add({"dog": 2}), status="running", report=REPORT, place=1)
    assert restarted(tmp_path, taught).lessons[0].status == status


def test_progress_is_not_written(jobs: Jobs) -> None:
    lesson = jobs.add({"cat": 1})
    before = jobs.path.read_bytes()
    jobs.change(lesson, progress={"stage": "learning", "done": 1, "total": 2})
    assert jobs.path.read_bytes() == before and lesson.to_dict()["progress"]["done"] == 1


def test_a_forgotten_class_leaves_no_word_under_any_name(jobs: Jobs) -> None:
    jobs.change(jobs.add({"cat": 3, "dog": 2}), status="done", report=REPORT)
    jobs.rename("cat", "tiger")
    assert jobs.lessons[0].classes == {"tiger": 3, "dog": 2}
    assert jobs.lessons[0].report is not None and jobs.lessons[0].report["confusions"][0]["taken_for"] == "tiger"
    jobs.forget("tiger")
    assert "tiger" not in jobs.path.read_text() and "cat" not in jobs.path.read_text()
    assert jobs.lessons[0].classes == {"dog": 2} and "dog" in jobs.path.read_text()


def test_a_lesson_that_waits_keeps_its_names(jobs: Jobs) -> None:
    jobs.change(jobs.add({"cat": 3}), status="done")
    waiting = jobs.add({"cat": 2})
    jobs.rename("cat", "tiger")
    assert jobs.lessons[0].classes == {"tiger": 3} and waiting.classes == {"cat": 2}
    jobs.forget("cat")
    assert waiting.classes == {"cat": 2}


def test_undoing(jobs: Jobs) -> None:
    first, second = jobs.add({"cat": 3}), jobs.add({"dog": 2})
    for lesson in (first, second):
        jobs.change(lesson, status="done")
    lessons: list[dict[str, Any]] = [{"classes": {"cat": 3}}, {"classes": {"dog": 2}}]
    jobs.rename("dog", "wolf")
    renamed = [{"classes": {"cat": 3}}, {"classes": {"wolf": 2}}]
    jobs.undo(Taught(["cat", "wolf"], renamed), Taught(["cat", "dog"], lessons))
    assert second.classes == {"dog": 2} and not second.undone
    lessons[1]["classes"]["dog"] = 1  # the other photo was held out
    jobs.undo(Taught(["cat", "dog"], lessons), Taught(["cat"], lessons[:1]))
    assert second.undone and not first.undone
    jobs.change(jobs.add({"cow": 1}), status="done")
    jobs.forget("cow")
    jobs.undo(Taught(["cat"], lessons[:1]), Taught([], []))
    assert first.undone


def test_the_list_does_not_grow_for_ever(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    for _ in range(5):
        jobs.change(jobs.add({"cat": 1}), status="done")
    assert len(jobs.lessons) == 3 and jobs.total == restarted(tmp_path, []).total == 5


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"earlier": 0, "lessons": [{"id": 1}]}', "\udcff"])
def test_a_damaged_list_is_one_sentence(tmp_path: Path, damage: str) -> None:
    (tmp_path / "pets.efcil.lessons.json").write_bytes(damage.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match="move it away"):
        restarted(tmp_path, [])


def test_who_waits_is_woken(jobs: Jobs) -> None:
    async def waits() -> tuple[bool, bool]:
        waiting = asyncio.create_task(jobs.changed(10))
        await asyncio.sleep(0)
        jobs.wake()
        return await waiting, await jobs.changed(0.01)

    assert asyncio.run(waits()) == (True, False)


def test_no_name_of_a_file_has_a_place_in_it(jobs: Jobs) -> None:
    jobs.add({"cat": 1})
    kept = json.loads(jobs.path.read_text())["lessons"][0]
    assert set(kept) == {"id", "status", "classes", "time", "progress", "report", "error", "undone", "place"}
