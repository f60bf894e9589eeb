"""Forgetting, renaming and merging classes, and what a classifier remembers of its lessons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.errors import UserError
from efcil.methods import METHODS
from test_contract import QUICK


def taught(method: str = "efc++") -> IncrementalClassifier:
    learner = make_learner(method, options=QUICK.get(method, {}))
    return learner.partial_fit(*make_blobs(["a", "b"])).partial_fit(*make_blobs(["c", "d"], per_class=4))


def forgets(name: str) -> bool:
    return not any("m" in shape.split()[1:] for shape in METHODS[name].shapes.values())


@pytest.mark.parametrize("method", [name for name in METHODS if forgets(name) and METHODS[name].exemplar_free])
def test_a_forgotten_class_leaves_the_scores_of_the_others(method: str, tmp_path: Path) -> None:
    images, _ = make_blobs(["a", "b", "c", "d"])
    learner = taught(method)
    before = learner.decision_function(images)
    learner.forget("b")
    assert learner.classes_.tolist() == ["a", "c", "d"] and learner.tasks_ == [1, 2]
    if method not in ("lda", "ranpac", "fetril"):  # whose other scores know of all classes
        assert np.allclose(learner.decision_function(images), before[:, [0, 2, 3]], rtol=1e-4, atol=1e-5)
    learner.save(tmp_path / "model.efcil")
    again = IncrementalClassifier.load(tmp_path / "model.efcil")
    assert np.array_equal(again.decision_function(images), learner.decision_function(images))
    again.partial_fit(*make_blobs(["e"]))  # and it goes on learning
    assert again.classes_.tolist() == ["a", "c", "d", "e"]


def test_a_head_goes_with_its_last_class() -> None:
    learner = taught()
    assert learner.forget("a").forget("b").tasks_ == [2]
    learner.forget("c")
    with pytest.raises(UserError, match="only class"):
        learner.forget("d")
    assert learner.classes_.tolist() == ["d"]


def test_lessons_tell_classes_and_counts(tmp_path: Path) -> None:
    learner = taught()
    assert [lesson["classes"] for lesson in learner.lessons_] == [{"a": 6, "b": 6}, {"c": 4, "d": 4}]
    learner.rename("a", "z").forget("c").save(tmp_path / "model.efcil")
    lessons = IncrementalClassifier.load(tmp_path / "model.efcil").lessons_
    assert [lesson["classes"] for lesson in lessons] == [{"z": 6, "b": 6}, {"d": 4}]


def test_a_lesson_goes_with_its_last_class() -> None:
    learner = taught().forget("c").forget("d")
    assert [lesson["classes"] for lesson in learner.lessons_] == [{"a": 6, "b": 6}]
    assert learner.partial_fit(*make_blobs(["e"])).tasks_ == [2, 1]


def test_what_the_last_lesson_validated_is_not_told_of_other_classes() -> None:
    learner = taught("lda")
    assert len(learner.validation()[0]) == 8
    assert len(learner.forget("c").validation()[0]) == 0


def test_a_new_name_changes_nothing_else() -> None:
    images, _ = make_blobs(["a", "b", "c", "d"])
    learner = taught()
    before = learner.decision_function(images)
    assert learner.rename("b", "a long new name").classes_.tolist() == ["a", "a long new name", "c", "d"]
    assert np.array_equal(learner.decision_function(images), before)


@pytest.mark.parametrize(
    ("old", "new", "sentence"), [("q", "r", "no class"), ("a", "b", "already"), ("a", " ", "empty")]
)
def test_names_that_do_not_work(old: str, new: str, sentence: str) -> None:
    learner = taught()
    with pytest.raises(UserError, match=sentence):
        learner.rename(old, new)
    assert learner.classes_.tolist() == ["a", "b", "c", "d"]


def test_a_method_that_cannot_says_so_and_stays_whole() -> None:
    learner = taught()
    with pytest.raises(UserError, match="cannot merge"):
        learner.merge("a", "b")
    with pytest.raises(UserError, match="already learnt: a"):
        learner.partial_fit(*make_blobs(["a", "e"]))
    with pytest.raises(UserError, match="itself"):
        learner.merge("a", "a")
    assert learner.classes_.tolist() == ["a", "b", "c", "d"]
    cannot = make_learner("acil").partial_fit(*make_blobs(["a", "b"]))
    with pytest.raises(UserError, match="cannot forget a single class"):
        cannot.forget("a")
    assert cannot.predict(make_blobs(["a"])[0]).shape == (6,)
