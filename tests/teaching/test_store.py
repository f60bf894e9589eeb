"""A taught model on disk: whole versions, undo, one writer at a time, and forgetting that reaches every version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.errors import UserError
from efcil.teaching.store import KEPT, Store
from efcil.teaching.undone import AfterForgetting


def store_of(folder: Path, *lessons: list[str]) -> Store:
    """A model that was taught these lessons, each a version."""
    store = Store(folder / "model.efcil")
    for classes in lessons:
        learner = store.load() if store.exists else make_learner("freeze")
        store.replace(learner.partial_fit(*make_blobs(classes)))
    return store


def classes(store: Store) -> list[str]:
    return [str(name) for name in store.load().classes_]


def test_undo_goes_back_lesson_by_lesson(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c"], ["d"])
    assert [path.name for path in store.versions()] == ["0001.efcil", "0002.efcil"]
    before = IncrementalClassifier.load(store.versions()[-1]).decision_function(make_blobs(["a"])[0])
    assert store.undo() == "the lesson of d (6)" and classes(store) == ["a", "b", "c"]
    assert np.array_equal(store.load().decision_function(make_blobs(["a"])[0]), before)
    store.undo()
    assert classes(store) == ["a", "b"]
    with pytest.raises(UserError, match="no earlier version"):
        store.undo()
    assert classes(store) == ["a", "b"]


def test_a_change_that_was_cut_off_before_the_model_was_replaced_is_no_version(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c"])
    (store.folder / "0002.efcil").write_bytes(store.path.read_bytes())  # kept, then killed
    assert store.undo() == "the lesson of c (6)" and classes(store) == ["a", "b"]


def test_undo_names_what_it_takes_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "model.efcil")
    store.replace(make_learner("lda").partial_fit(*make_blobs(["a", "b", "c"])))
    store.replace(store.load().rename("a", "z"))
    store.replace(store.load().merge("b", "c"))
    assert store.undo() == "the merging of c into another class"
    assert store.undo() == "the renaming of a to z"
    assert classes(store) == ["a", "b", "c"]


def test_undo_goes_back_beyond_a_forgotten_class_only_when_that_is_wished(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c", "d"], ["e"])
    store.forget("b")
    store.replace(store.load().partial_fit(*make_blobs(["f"])))
    store.forget("d")
    for lost, left in (("f (6)", ["a", "c", "e"]), ("e (6)", ["a", "c"])):  # behind each is another forgetting
        before = classes(store)
        with pytest.raises(AfterForgetting, match=r"--further .* takes back the lesson of " + lost[0]):
            store.undo()
        assert classes(store) == before
        assert store.undo(further=True) == f"the lesson of {lost}" and classes(store) == left
    assert store.undo() == "the lesson of c (6)" and classes(store) == ["a"]  # no class was forgotten in between
    assert list(store.folder.iterdir()) == []


def test_a_lesson_of_nothing_but_a_forgotten_class_is_not_taken_back_again(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c"])
    store.forget("c")
    with pytest.raises(UserError, match="no earlier version"):  # the one before the lesson knows the same as the model
        store.undo(further=True)
    assert classes(store) == ["a", "b"]


def test_a_folder_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", "..", "/", tmp_path):
        with pytest.raises(UserError, match="is a folder; give a model file"):
            Store(folder)


def test_versions_are_limited(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"], *([str(place)] for place in range(KEPT + 2)))
    assert len(store.versions()) == KEPT
    store.undo()
    store.replace(store.load().partial_fit(*make_blobs(["z"])))
    names = [path.name for path in store.versions()]
    assert names == sorted(names) and len(set(names)) == KEPT


def test_forgetting_reaches_every_version(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"], ["b"], ["c"])
    assert store.forget("a") == (1, 1)
    for path in [store.path, *store.versions()]:
        assert b'"a"' not in path.read_bytes()
        assert "a" not in IncrementalClassifier.load(path).classes_
    assert classes(store) == ["b", "c"] and len(store.versions()) == 1  # the version that knew nothing else is gone
    with pytest.raises(UserError, match="no class called 'a'"):
        store.forget("a")


@pytest.mark.parametrize("change", ["rename", "merge"])
def test_forgetting_reaches_a_class_that_had_another_name(change: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "model.efcil")
    store.replace(make_learner("lda").partial_fit(*make_blobs(["a", "b", "c"])))
    store.replace(store.load().rename("a", "z") if change == "rename" else store.load().merge("b", "a"))
    store.replace(store.load().partial_fit(*make_blobs(["d"])))
    store.forget("z" if change == "rename" else "b")
    for path in [store.path, *store.versions()]:
        assert not {"a", "z" if change == "rename" else "b"} & set(IncrementalClassifier.load(path).classes_.tolist())
    assert len(store.versions()) == 1  # the one from after the change


def test_the_only_class_is_not_forgotten(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"])
    with pytest.raises(UserError, match="only class"):
        store.forget("a")
    assert classes(store) == ["a"]


def test_one_command_at_a_time(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"])
    with store.changing(), pytest.raises(UserError, match="being changed by another"), Store(store.path).changing():
        pass
    with pytest.raises(UserError, match="no folder"), Store(tmp_path / "nowhere" / "m.efcil").changing():
        pass
    with pytest.raises(UserError, match="efcil learn"):
        Store(tmp_path / "none.efcil").load()


def test_what_killed_processes_left_goes_with_the_next_change(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"], ["b"])
    left = [tmp_path / ".model.efcil.12.partial", store.folder / ".0002.efcil.3.partial"]
    left.append(store.folder / ".0002.forgotten.12.partial")
    others = [tmp_path / f".{name}.12.partial" for name in ("model.efcil.lessons.json", "model.efcil.2", "other.efcil")]
    others += [store.folder / ".notes.partial", tmp_path / ".model.efcil.partial"]
    for path in [*left, *others]:
        path.write_bytes(b"b")
    with store.changing():
        store.forget("b")
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_what_another_command_is_writing_is_left_to_it(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a"])
    with store.changing():
        written = tmp_path / ".model.efcil.12.partial"
        written.write_bytes(b"a")
        with pytest.raises(UserError, match="being changed by another"), Store(store.path).changing():
            pass
        assert written.exists()


def test_times_are_no_part_of_what_makes_two_models_equal(tmp_path: Path) -> None:
    learner = make_learner("freeze").partial_fit(*make_blobs(["a", "b"]))
    checksums = []
    for when in ("2026-01-01 10:00", "2027-01-01 10:00"):
        learner.lessons_[-1]["time"] = when
        learner.save(tmp_path / "model.efcil")
        assert IncrementalClassifier.load(tmp_path / "model.efcil").lessons_[-1]["time"] == when
        content = (tmp_path / "model.efcil").read_bytes()
        checksums.append(content.split(b'checksum\\": \\"')[1][:64])
    assert checksums[0] == checksums[1]


def test_strange_files_beside_the_versions_are_left_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c"])
    strange = [store.folder / name for name in ("backup.efcil", "0001 (copy).efcil", "٣٣٣٣.efcil", "12.efcil", "notes")]
    for path in strange:
        path.write_bytes(b"mine")
    for name in range(KEPT + 1):
        store.replace(store.load().partial_fit(*make_blobs([str(name)])))
    store.undo()
    assert classes(store)[-1] == str(KEPT - 1)
    store.forget("a")
    assert all(path.read_bytes() == b"mine" for path in strange)


def test_versions_beyond_four_digits_come_last(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"], ["c"])
    (store.folder / "0001.efcil").rename(store.folder / "9999.efcil")
    for name in "de":
        store.replace(store.load().partial_fit(*make_blobs([name])))
    assert [path.name for path in store.versions()] == ["9999.efcil", "10000.efcil", "10001.efcil"]


def test_a_version_that_cannot_be_written_is_told_and_changes_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a", "b"])
    store.folder.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"0001.efcil cannot be written"):
        store.replace(store.load().partial_fit(*make_blobs(["c"])))
    assert classes(store) == ["a", "b"]
