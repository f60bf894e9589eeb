"""A person with folders of photos: teach, ask, measure, look inside, rename, merge, forget, undo, compare."""

from __future__ import annotations

import json
import subprocess
import time
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import cli_command, cli_environment, make_blobs, real_data
from efcil import IncrementalClassifier
from efcil.cli import main
from efcil.commands.predict import show
from efcil.data import images
from efcil.data.images import Bounds
from efcil.data.sets import folder as folder_reader
from efcil.data.zips import image_members
from efcil.errors import UserError
from efcil.teaching import photos as teaching_photos
from efcil.teaching.store import Store

SMALL = ["--backbone", "resnet18", "--set", "width=4", "--set", "image_size=8", "--set", "first.epochs=1"]


def photos(folder: Path, *classes: str, count: int = 6, seed: int = 0) -> Path:
    """Class folders of small images, one colour per class."""
    images, labels = make_blobs(list(classes), count, seed=seed)
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / label / f"{place}.png")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that was taught cat and dog, then bird."""
    path = tmp_path / "pets.efcil"
    assert main(["learn", str(path), str(photos(tmp_path / "first", "cat", "dog")), *SMALL]) == 0
    assert main(["learn", str(path), str(photos(tmp_path / "later", "bird"))]) == 0
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Any:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one sentence of a command that bad input ends."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("efcil: ") and "Traceback" not in error
    return error


def test_a_lesson_says_how_well_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "learn", tmp_path / "m.efcil", photos(tmp_path / "a", "cat", "dog", count=8), *SMALL)
    assert [row["class"] for row in report["classes"]] == ["cat", "dog"]
    assert all(row["photos"] == 8 and 0 <= row["accuracy"] <= 1 for row in report["classes"])
    assert "which was not taught by then" in report["how"] and report["old_before"] is None  # the network learnt it
    assert IncrementalClassifier.load(tmp_path / "m.efcil").lessons_[0]["classes"] == {"cat": 8, "dog": 8}
    later = told(capsys, "learn", tmp_path / "m.efcil", photos(tmp_path / "b", "bird"))
    assert "leave-one-out" in later["how"]
    assert 0 <= later["old_after"] <= 1 and 0 <= later["old_before"] <= 1 and later["seconds"] > 0


def test_methods_that_cannot_leave_one_out_keep_photos_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path / "a", "cat", "dog", count=10)
    report = told(capsys, "learn", tmp_path / "m.efcil", folder, "--method", "freeze", *SMALL)
    assert "which was not taught" in report["how"] and report["classes"][0]["photos"] == 10
    taught = IncrementalClassifier.load(tmp_path / "m.efcil").lessons_[0]["classes"]
    assert taught == {"cat": 8, "dog": 8}


@pytest.mark.parametrize("count", [1, 4, 5, 6])
@pytest.mark.parametrize("method", ["freeze", "lda", "acil"])
def test_few_photos_of_one_class_are_a_lesson(
    method: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options = photos(tmp_path / "a", "cat", count=count), ["--set", "options.expansion=16"]
    more = options if method == "acil" else []
    report = told(capsys, "learn", tmp_path / "m.efcil", folder, "--method", method, *SMALL, *more)
    assert report["classes"] == [{"class": "cat", "photos": count, "accuracy": 1.0 if count >= 5 else None}]
    taught = IncrementalClassifier.load(tmp_path / "m.efcil").lessons_
    assert [lesson["classes"] for lesson in taught] == [{"cat": count - (method == "freeze") * (count >= 5)}]


def test_what_is_on_photos(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = told(capsys, "predict", model, tmp_path / "first", tmp_path / "later" / "bird" / "0.png", "--top", 3)
    assert len(rows) == 13 and all(len(row["guesses"]) == 3 for row in rows)
    assert all(abs(sum(guess["probability"] for guess in row["guesses"]) - 1) < 1e-4 for row in rows)
    never = told(capsys, "predict", model, tmp_path / "first", "--no-unknown")
    assert all(row["answer"] == row["guesses"][0]["class"] and not row["unknown"] for row in never)
    assert main(["predict", str(model), str(tmp_path / "later"), "--csv", "--top", "2"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "photo,answer,class_1,probability_1,class_2,probability_2" and len(table) == 7
    assert "at least 1" in refused(capsys, "predict", model, tmp_path / "first", "--top", 0)
    assert f"no file or folder {tmp_path / 'emtpy'}." in refused(capsys, "predict", model, f"{tmp_path / 'emtpy'}/")


def test_what_an_unknown_photo_would_have_to_be_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"photo": "x.jpg", "answer": "unknown", "unknown": True, "guesses": [{"class": "mug", "probability": 0.99}]}
    show(Namespace(json=False, csv=False), [row])
    assert capsys.readouterr().out == "x.jpg  unknown (if it had to be one of them: mug 99%)\n"


def test_measuring_on_photos_with_names(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "evaluate", model, photos(tmp_path / "test", "cat", "bird", seed=3), "--worst", 2)
    right = sum(row["accuracy"] * row["photos"] for row in found["classes"])
    assert found["photos"] == 12 and found["accuracy"] == pytest.approx(right / 12)
    assert sum(row["photos"] for row in found["confusions"]) == round(12 * (1 - found["accuracy"]))
    assert len(found["worst"]) == min(2, round(12 * (1 - found["accuracy"])))
    assert found["never_taught"] == []
    more = told(capsys, "evaluate", model, photos(tmp_path / "test", "fish"), "--worst", 2)
    assert more == {**found, "never_taught": [{"class": "fish", "photos": 6}]}
    assert main(["evaluate", str(model), str(tmp_path / "test")]) == 0
    assert "never taught, so not measured: fish (6)" in capsys.readouterr().out
    sentence = refused(capsys, "evaluate", model, photos(tmp_path / "odd", "fish"))
    assert "never taught fish; name the folders after classes that it knows (cat, dog, bird), or teach it." in sentence


def test_looking_inside(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "inspect", model)
    assert [row["class"] for row in found["classes"]] == ["cat", "dog", "bird"]
    assert [row["photos"] for row in found["classes"]] == [6, 6, 6] and all(row["taught"] for row in found["classes"])
    assert found["bytes"] == model.stat().st_size and found["versions"] == ["0001.efcil"]
    assert len(found["history"]) == 2 and found["images_inside"] is False
    assert main(["inspect", str(model)]) == 0
    assert "no image inside" in capsys.readouterr().out


def test_changing_what_was_taught(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rename", str(model), "cat", "tiger"]) == 0
    assert main(["merge", str(model), "dog", "bird"]) == 0
    assert Store(model).load().classes_.tolist() == ["tiger", "dog"]
    capsys.readouterr()
    assert main(["undo", str(model)]) == 0
    said = f"Taken back: the merging of bird into another class; {model} now knows tiger, dog, bird.\n"
    assert capsys.readouterr().out == said
    assert Store(model).load().classes_.tolist() == ["tiger", "dog", "bird"]
    assert main(["forget", str(model), "dog"]) == 0
    assert "2 earlier versions removed" in capsys.readouterr().out
    assert "no earlier version to go back to" in refused(capsys, "undo", model)
    assert Store(model).load().classes_.tolist() == ["tiger", "bird"]
    for kept in Store(model).versions():
        assert b"dog" not in kept.read_bytes()
    assert main(["learn", str(model), str(photos(tmp_path / "more", "bird", seed=5))]) == 0  # known: refined
    assert told(capsys, "inspect", model)["classes"][1] | {"taught": ""} == {
        "class": "bird",
        "photos": 12,
        "taught": "",
    }
    for wrong in (("rename", model, "dog", "wolf"), ("forget", model, "dog"), ("merge", model, "bird", "dog")):
        assert "no class called 'dog'" in refused(capsys, *wrong)


def test_undo_after_forget_takes_no_other_lesson_unasked(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["forget", str(model), "dog"]) == 0
    assert capsys.readouterr().out == "dog is forgotten, which cannot be undone.\n1 earlier version kept without it.\n"
    assert "--further to go back beyond it, which takes back the lesson of bird (6)" in refused(capsys, "undo", model)
    assert Store(model).load().classes_.tolist() == ["cat", "bird"]
    assert main(["undo", str(model), "--further"]) == 0
    assert "Taken back: the lesson of bird (6)" in capsys.readouterr().out
    assert Store(model).load().classes_.tolist() == ["cat"]


@pytest.mark.parametrize("command", ["inspect", "learn", "serve", "export", "undo"])
def test_a_folder_in_the_place_of_the_model(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["photos"] if command == "learn" else []
    assert refused(capsys, command, ".", *given) == "efcil: . is a folder; give a model file, such as pets.efcil."


def test_another_file_in_the_place_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = photos(tmp_path, "cat") / "cat" / "0.png"
    sentence = f"efcil: {photo} is not an efcil model; give a file that `efcil learn` wrote."
    assert refused(capsys, "inspect", photo) == sentence


@pytest.mark.slow
def test_which_method_would_be_best(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    folder = photos(tmp_path / "all", "cat", "dog", "bird", count=10)
    rows = told(capsys, "compare", model, folder, "--methods", "lda", "freeze")
    assert {row["method"] for row in rows} == {"lda", "freeze"} and rows[0]["accuracy"] >= rows[1]["accuracy"]
    assert all(row["photos_tested"] == 6 and row["lessons"] == 2 and row["bytes"] > 1000 for row in rows)
    assert model.read_bytes() == before
    assert main(["compare", str(model), str(folder), "--methods", "lda"]) == 0
    said = capsys.readouterr().out
    (accuracy,) = (row["accuracy"] for row in rows if row["method"] == "lda")
    assert f"{round(6 * accuracy)} of 6" in said and "fewer than 20 photos" in said
    photos(photos(tmp_path / "few", "cat", "dog", count=10), "bird", count=1)  # a lesson of a single photo
    (row,) = told(capsys, "compare", model, tmp_path / "few", "--methods", "lda")
    assert row["lessons"] == 2 and row["photos_tested"] == 4
    assert "at least two classes" in refused(capsys, "compare", model, photos(tmp_path / "one", "cat"))


def test_bad_files_are_listed_and_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path / "a", "cat", "dog")
    (folder / "cat" / "text.jpg").write_text("not an image")
    (folder / "dog" / "empty.png").write_bytes(b"")
    whole = (folder / "dog" / "6.png").read_bytes()
    (folder / "dog" / "half.png").write_bytes(whole[: len(whole) // 2])
    capsys.readouterr()
    assert main(["learn", str(tmp_path / "m.efcil"), str(folder), *SMALL]) == 2
    said = capsys.readouterr()
    assert all(name in said.out for name in ("text.jpg", "empty.png", "half.png")) and "--skip-bad" in said.err
    assert not (tmp_path / "m.efcil").exists()
    assert main(["learn", str(tmp_path / "m.efcil"), str(folder), "--skip-bad", *SMALL]) == 0
    assert IncrementalClassifier.load(tmp_path / "m.efcil").lessons_[0]["classes"] == {"cat": 6, "dog": 6}


def test_photos_beside_bad_files_are_looked_at(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first" / "cat" / "text.jpg").write_text("not an image")
    capsys.readouterr()
    assert main(["predict", str(model), str(tmp_path / "first"), "--json"]) == 2
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == 12
    assert "1 of 13 files cannot be read" in said.err and "text.jpg" in said.err and "--skip-bad" in said.err
    assert main(["predict", str(model), str(tmp_path / "first"), "--skip-bad"]) == 0


def test_photos_in_a_zip_are_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for path in sorted((tmp_path / "first").rglob("*.png")):
            file.write(path, path.relative_to(tmp_path / "first"))
    zipped, folder = (told(capsys, "predict", model, tmp_path / name) for name in ("a.zip", "first"))
    assert [row["guesses"] for row in zipped] == [row["guesses"] for row in folder]
    assert zipped[0]["photo"] == "cat/0.png"


def test_photos_of_phones_without_the_plugin_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "a", "cat", "dog")
    (folder / "cat" / "IMG_1.HEIC").write_bytes(b"a photo")
    readable = images.extensions() - images.HEIF
    for module in (images, teaching_photos, folder_reader):
        monkeypatch.setattr(module, "extensions", lambda: readable)
    capsys.readouterr()
    assert main(["learn", str(tmp_path / "m.efcil"), str(folder), *SMALL]) == 2
    said = capsys.readouterr()
    assert "IMG_1.HEIC" in said.out and "efcil[heif]" in said.out and "left out" not in said.out
    assert main(["learn", str(tmp_path / "m.efcil"), str(folder), "--skip-bad", *SMALL]) == 0


@pytest.mark.parametrize("name", ["große Katze", "[red] apple", "🐱 x", "a,b;c", "-v"])
def test_class_names_of_any_kind(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, model = photos(tmp_path / "a", name, "dog"), tmp_path / "m [1].efcil"
    capsys.readouterr()
    assert main(["learn", str(model), str(folder), *SMALL]) == 0
    assert main(["inspect", str(model)]) == 0
    assert main(["evaluate", str(model), str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.count(name) >= 4 and said.count("m [1].efcil") >= 2
    assert {row["answer"] for row in told(capsys, "predict", model, folder, "--no-unknown")} <= {name, "dog"}
    assert main(["rename", str(model), "--", name, "other"]) == 0
    assert IncrementalClassifier.load(model).classes_.tolist() in (["dog", "other"], ["other", "dog"])


def test_a_lesson_of_one_photo_says_what_it_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["learn", str(tmp_path / "m.efcil"), str(photos(tmp_path / "a", "cat", count=1)), *SMALL]) == 0
    said = capsys.readouterr()
    assert "too few photos of each class to tell" in said.out and "leave-one-out" not in said.out
    assert "1 class from 1 image: 1 epoch " in said.err
    assert main(["inspect", str(tmp_path / "m.efcil")]) == 0
    said = capsys.readouterr()
    assert "1 class, " in said.out and "0 earlier versions kept\n" in said.out


def test_a_zip_in_the_place_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(tmp_path / "a", "cat", "dog")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for path in sorted(folder.rglob("*.png")):
            file.write(path, f"animals/{path.relative_to(folder)}")
        file.writestr("__MACOSX/animals/cat/._0.png", b"junk")
        file.writestr("animals/.DS_Store", b"junk")
    for name, source in (("zip", tmp_path / "a.zip"), ("folder", folder)):
        assert main(["learn", str(tmp_path / f"{name}.efcil"), str(source), *SMALL]) == 0
    images = make_blobs(["cat", "dog"])[0]
    from_zip, from_folder = (IncrementalClassifier.load(tmp_path / f"{name}.efcil") for name in ("zip", "folder"))
    assert np.array_equal(from_zip.decision_function(images), from_folder.decision_function(images))
    with zipfile.ZipFile(tmp_path / "escape.zip", "w") as file:
        file.writestr("../cat/0.png", (folder / "cat" / "0.png").read_bytes())
    assert "leads out of it" in refused(capsys, "learn", tmp_path / "m.efcil", tmp_path / "escape.zip", *SMALL)
    (tmp_path / "broken.zip").write_bytes(b"PK nonsense")
    assert "as a zip" in refused(capsys, "learn", tmp_path / "m.efcil", tmp_path / "broken.zip", *SMALL)
    with zipfile.ZipFile(tmp_path / "flat.zip", "w") as file:
        file.write(folder / "cat" / "0.png", "0.png")
    assert "class folders" in refused(capsys, "learn", tmp_path / "m.efcil", tmp_path / "flat.zip", *SMALL)


def test_damage_inside_a_zip_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("cat/0.png", bytes(range(256)) * 40)
    whole = (tmp_path / "a.zip").read_bytes()
    begin = 30 + len("cat/0.png")  # where the compressed bytes of the first member are
    (tmp_path / "a.zip").write_bytes(whole[:begin] + b"\xff" * 16 + whole[begin + 16 :])
    assert main(["learn", str(tmp_path / "m.efcil"), str(tmp_path / "a.zip"), *SMALL]) == 2
    assert "make the zip anew" in capsys.readouterr().out


def test_zip_limits(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for place in range(3):
            file.writestr(f"cat/{place}.png", bytes(1 << 20))
    too_narrow = {"3 files": {"members": 2}, "expands to": {"expanded": 1 << 20}, "holds a file": {"member": 1 << 19}}
    for sentence, bounds in too_narrow.items():
        with pytest.raises(UserError, match=sentence):
            image_members(tmp_path / "a.zip", Bounds(**bounds))
    unusual = Bounds(compressions=(zipfile.ZIP_STORED,))
    with pytest.raises(UserError, match="unusual way"):
        image_members(tmp_path / "a.zip", unusual)


def test_choices_belong_to_a_new_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "exists" in refused(capsys, "learn", model, tmp_path / "later", "--method", "freeze")
    new, later = tmp_path / "n.efcil", tmp_path / "later"
    assert "--tune means" in refused(capsys, "learn", new, later, "--tune", "--method", "efc++")
    assert "is for benchmarks" in refused(capsys, "learn", new, later, "--set", "data.held_out=5")
    assert "no folder or zip" in refused(capsys, "learn", tmp_path / "n.efcil", tmp_path / "none", *SMALL)
    assert not (tmp_path / "n.efcil").exists()


def test_a_second_lesson_at_the_same_time_is_refused(model: Path, tmp_path: Path) -> None:
    with Store(model).changing():
        command = cli_command("learn", model, photos(tmp_path / "fish", "fish"))
        done = subprocess.run(command, capture_output=True, text=True, env=cli_environment(), check=False)
    assert done.returncode == 2 and "being changed by another command" in done.stderr


def test_a_killed_lesson_leaves_the_model_before_it(model: Path, tmp_path: Path) -> None:
    before = model.read_bytes()
    folder = photos(tmp_path / "fish", "fish", "crab", count=40)
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(cli_command("learn", model, folder), env=cli_environment(), text=True, **pipes) as process:
        assert any("learning 2 classes" in line for line in process.stderr or ()), "the lesson does not begin"
        process.kill()
    assert model.read_bytes() == before or set(Store(model).load().classes_) == {"cat", "dog", "bird", "fish", "crab"}
    assert main(["learn", str(model), str(photos(tmp_path / "wolf", "wolf"))]) == 0  # the lock died with the process


@pytest.mark.slow
def test_office_photos_in_five_lessons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty photos of each of ten things on one core: nearly as good as all at once, small, quick, and not fooled."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    office = real_data("office") / "amazon"
    classes = sorted(path.name for path in office.iterdir())
    for place, name in enumerate(classes):
        for number, photo in enumerate(sorted((office / name).iterdir())[:40]):
            target = tmp_path / ("test" if number >= 20 else f"lesson{place // 2}") / name / photo.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(photo)
    model, begun = tmp_path / "things.efcil", time.process_time()  # of which other programs take none
    for lesson in range(5):
        told(capsys, "learn", model, tmp_path / f"lesson{lesson}")
    assert time.process_time() - begun < 240 and model.stat().st_size < 40e6
    ours = told(capsys, "evaluate", model, tmp_path / "test")["accuracy"]
    classifier = IncrementalClassifier.load(model)
    taught = [path for lesson in range(5) for path in sorted((tmp_path / f"lesson{lesson}").glob("*/*"))]
    tested = sorted((tmp_path / "test").glob("*/*"))
    x, y = (np.concatenate([part.numpy() for part in classifier._features(paths)]) for paths in (taught, tested))
    names = [[path.parent.name for path in paths] for paths in (taught, tested)]
    everything = LogisticRegression(C=30, max_iter=2000).fit(x / np.linalg.norm(x, axis=1, keepdims=True), names[0])
    best = everything.score(y / np.linalg.norm(y, axis=1, keepdims=True), names[1])
    assert ours >= best - 0.01 - 1e-9
    for stranger in classes[-3:]:
        classifier.forget(stranger)
    familiarity = classifier.answers([str(path) for path in tested]).familiarity
    assert familiarity is not None
    known = [path.parent.name not in classes[-3:] for path in tested]
    assert roc_auc_score(known, familiarity) >= 0.9
    assert np.mean(familiarity[np.array(known)] < 0.05) < 0.15


@pytest.mark.slow
def test_the_first_lesson_may_be_one_class_with_five_photos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    office = real_data("office") / "amazon"
    for photo in sorted((office / "mug").iterdir())[:5]:
        (tmp_path / "one" / "mug").mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / "mug" / photo.name).symlink_to(photo)
    assert main(["learn", str(tmp_path / "m.efcil"), str(tmp_path / "one")]) == 0
    others = [str(path) for path in sorted((office / "mug").iterdir())[5:25]]
    strangers = [str(path) for path in sorted((office / "bike").iterdir())[:20]]
    mugs = told(capsys, "predict", tmp_path / "m.efcil", *others)
    bikes = told(capsys, "predict", tmp_path / "m.efcil", *strangers)
    assert sum(row["answer"] == "mug" for row in mugs) >= 15 and sum(row["unknown"] for row in bikes) >= 15
