"""The report on a taught model: what can be known from the file alone, and what photos add."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_page import Page

from conftest import make_blobs, write_class_folders
from efcil import IncrementalClassifier
from efcil.cli import main
from efcil.report.model import Judged
from efcil.teaching.kept import bytes_per_class, tensors_inside

SMALL = ["--backbone", "resnet18", "--set", "width=4", "--set", "image_size=8", "--set", "first.epochs=1"]
WICKED = '<b>cat & "dog"'


def photos(folder: Path, *classes: str, count: int = 6, seed: int = 0) -> Path:
    return write_class_folders(folder, *make_blobs(list(classes), count, seed=seed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was taught a class with markup in its name and dog, then bird, then dog once more."""
    folder = tmp_path_factory.mktemp("model")
    lessons = [(WICKED, "dog"), ("bird",), ("dog",)]
    for place, classes in enumerate(lessons):
        source = photos(folder / f"lesson{place}", *classes, count=6 + place, seed=place)
        assert main(["learn", str(folder / "pets.efcil"), str(source), *([] if place else SMALL)]) == 0
    return folder / "pets.efcil"


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made.with_name("pets.efcil.versions"), tmp_path / "pets.efcil.versions")
    return Path(shutil.copy(made, tmp_path))


def page_of(model: Path, *more: Any) -> Page:
    out = model.with_name("r.html")
    assert main(["report", str(model), "--out", str(out), *map(str, more)]) == 0
    return Page(out)


def told(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Any:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_lessons_and_classes_are_those_of_the_file(model: Path) -> None:
    page = page_of(model)
    assert page.column("Lessons", "new classes") == [f"{WICKED}, dog", "bird", ""]
    assert page.column("Lessons", "refined") == ["", "", "dog"]
    assert page.column("Lessons", "photos") == ["12", "7", "8"]
    assert page.column("Lessons", "classes then known") == ["2", "3", "3"]
    assert page.column("Classes", "class") == [WICKED, "dog", "bird"]
    assert page.column("Classes", "photos taught") == ["6", "14", "7"]
    kept = [int(value) for value in page.column("Classes", "kept")]
    assert kept == bytes_per_class(IncrementalClassifier.load(model)) and kept[1] > kept[2] > kept[0] > 0
    assert not [tag for tag, _ in page.elements if tag == "b"]
    assert "no image is inside the file" in page.text and "3 earlier" not in page.text


def test_columns_that_no_row_fills_are_not_there(model: Path, tmp_path: Path) -> None:
    learner = IncrementalClassifier.load(model)
    del learner.lessons_[2:]  # which refined a class
    for lesson in learner.lessons_:
        lesson.pop("time")
        lesson["classes"] = dict.fromkeys(lesson["classes"], 0)
    learner.save(tmp_path / "bare.efcil")  # as a run leaves it, which notes no time and counts no photos
    page = page_of(tmp_path / "bare.efcil")
    assert page.headings["Lessons"] == ["lesson", "new classes", "classes then known"]
    assert not {"last taught", "photos taught"} & set(page.headings["Classes"])
    assert {"time", "refined", "photos"} <= set(page_of(model).headings["Lessons"])


def test_mistakes_are_told_with_how_often_they_were_made() -> None:
    said = np.array(["7", "7", "3", "8", "8"])
    assert Judged(np.array(["8"] * 5), said, None).taken_for() == "7 (2×), 3 (1×)"


def test_the_file_is_listed_whole(model: Path) -> None:
    page = page_of(model)
    rows = tensors_inside(model)
    assert page.column("Tensors", "name") == [row["name"] for row in rows]
    classifier = IncrementalClassifier.load(model)
    assert sum(row["bytes"] for row in rows) == classifier.network_bytes + classifier.kept_bytes
    assert page.column("Tensors", "size") == [str(row["bytes"]) for row in rows]


def test_without_photos_it_is_an_estimate_from_draws(model: Path) -> None:
    page, classifier = page_of(model), IncrementalClassifier.load(model)
    estimate = classifier.estimated_accuracy()
    assert estimate is not None and f"it names {100 * estimate:.1f} % rightly" in page.text
    counts = page.matrix("taken for")
    right = sum(int(counts["text"][place][place] or 0) for place in range(3))
    assert right / 150 == pytest.approx(estimate) and counts["rows"] == [WICKED, "dog", "bird"]
    estimated = classifier.estimated_answers()
    assert estimated is not None and estimated[0].familiarity is not None
    usual = estimated[0].familiarity
    curve = page.chart("Called unknown, by threshold of familiarity")["series"][0]
    assert curve["text"] == [f"{100 * float((usual < place / 100).mean()):.1f}" for place in range(101)]
    assert "photos right, %" not in page.headings["Classes"]


def test_photos_are_measured_as_evaluate_does(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path / "test", WICKED, "dog", "bird", count=9, seed=7)
    found = told(capsys, "evaluate", model, folder)
    page = page_of(model, "--photos", folder)
    assert f"Of 27 photos that were given it names {100 * found['accuracy']:.1f} % rightly" in page.text
    shares = dict(zip(page.column("Classes", "class"), page.column("Classes", "photos right, %"), strict=True))
    assert {row["class"]: row["accuracy"] * 100 for row in found["classes"]} == pytest.approx(
        {name: float(value) for name, value in shares.items()}
    )
    pairs = [
        (row[0][0], row[1][0], int(row[2][1])) for row in page.tables["Photos given: most often taken for another"]
    ]
    assert sorted(pairs) == sorted((row["class"], row["taken_for"], row["photos"]) for row in found["confusions"])
    versions = page.column("Accuracy of the versions kept", "photos, percent")
    assert len(versions) == 3 and float(versions[-1]) == pytest.approx(100 * found["accuracy"])


def test_photos_of_other_classes_have_a_curve_of_their_own(model: Path, tmp_path: Path) -> None:
    folder = photos(photos(tmp_path / "test", "dog", "bird", count=5, seed=7), "stranger", count=8, seed=7)
    page = page_of(model, "--photos", folder)
    series = {s["name"]: s["text"] for s in page.chart("Called unknown, by threshold of familiarity")["series"]}
    answers = IncrementalClassifier.load(model).answers(folder / "stranger")
    assert answers.familiarity is not None
    shares = [f"{100 * float(np.mean(answers.familiarity < place / 100)):.1f}" for place in range(101)]
    assert series["photos of other classes (rightly rejected)"] == shares
    assert "Of 10 photos that were given" in page.text and "8 more are of classes that it was never taught" in page.text


def test_photos_of_other_classes_alone_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos(tmp_path / "test", "stranger")
    assert main(["report", str(model), "--photos", str(folder), "--out", str(tmp_path / "r.html")]) == 2
    assert "No class of the photos was ever taught" in capsys.readouterr().err


def test_reports_on_models_and_on_runs_have_names_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = photos(tmp_path / "a", "cat", "dog", count=4)
    assert main(["learn", "pets.efcil", str(folder), *SMALL]) == 0
    (tmp_path / "report.html").write_text("on runs")
    capsys.readouterr()
    assert main(["report", "pets.efcil"]) == 0
    assert capsys.readouterr().out == "pets.report.html: open it in a browser\n"
    assert (tmp_path / "pets.report.html").exists() and (tmp_path / "report.html").read_text() == "on runs"


def test_a_method_that_keeps_too_little_says_so(tmp_path: Path) -> None:
    folder, model = photos(tmp_path / "a", "cat", "dog", count=10), tmp_path / "m.efcil"
    assert main(["learn", str(model), str(folder), "--method", "freeze", *SMALL]) == 0
    page = page_of(model)
    assert "too little for an estimate" in page.text and "it never answers unknown" in page.text
    assert [int(value) for value in page.column("Classes", "kept")] == [4 * 32, 4 * 32]  # a mean of 32 features


def test_the_last_version_of_a_run_is_a_model_too(tmp_path: Path) -> None:
    """A model of efc++ has factors whose rows are noted, and one matrix that belongs to no class."""
    classifier = IncrementalClassifier("efc++", width=4, epochs=1, options={"rebalancing": {"epochs": 1}})
    classifier.partial_fit(*make_blobs(["a", "b"], 5)).save(tmp_path / "m.efcil")
    page = page_of(tmp_path / "m.efcil")
    kept = [int(value) for value in page.column("Classes", "kept")]
    state = classifier._method.state()
    assert sum(kept) == classifier.kept_bytes - state["efm"].nbytes and kept[0] == kept[1]


def test_what_is_no_model_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.efcil").write_text("nonsense")
    assert main(["report", str(tmp_path / "m.efcil"), "--out", str(tmp_path / "r.html")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert not (tmp_path / "r.html").exists()
