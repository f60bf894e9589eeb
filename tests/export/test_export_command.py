"""`efcil export` as a person runs it: what it prints, what it leaves, and the sentences on what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from exported import network

from conftest import cli_environment, make_blobs, write_images
from efcil.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "pets.efcil"
    network().save(path)
    return path


def test_a_model_beside_which_its_files_are_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = shutil.copy(model, tmp_path / "pets.efcil")
    photos = write_images(tmp_path / "photos", make_blobs(["cat", "bat"], 3, size=40)[0])
    assert main(["export", str(own), "--check", str(tmp_path / "photos")]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{tmp_path / 'pets.onnx'}: ") and "3 classes, no image inside" in told
    assert "images, uint8 (batch, 16, 16, 3); outputs: probabilities, familiarity, unknown" in told
    assert f"largest difference to {own}: " in told and f"on 8 made-up images and {len(photos)} photos" in told
    assert main(["export", str(own), "--format", "torch", "--json", "--out", str(tmp_path / "new" / "my.pt2")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["file"] == str(tmp_path / "new" / "my.pt2") and made["largest_difference"] < 1e-5
    assert made["bytes"] == Path(made["file"]).stat().st_size and made["about"]["classes"] == ["cat", "dog", "elk"]
    assert {path.name for path in tmp_path.iterdir()} == {"pets.efcil", "pets.onnx", "photos", "new"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--format", "onyx"], "There is no format called 'onyx'; did you mean onnx?"),
        (["--check", "nowhere"], "There is no file or folder nowhere."),
        (["--check", "empty"], "There is no image in the folder empty."),
        (["--check", "empty.zip"], "There is no photo in empty.zip."),
        (["--check", "broken.png"], "'broken.png' cannot be read as an image"),
        (["--out", "pets.efcil"], "pets.efcil is the model itself; give another --out."),
        (["--out", "empty"], "empty is a folder; give a file such as empty/model.pt2."),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str],
    sentence: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "pets.efcil")
    Path("empty").mkdir()
    Path("broken.png").write_bytes(b"no picture")
    zipfile.ZipFile("empty.zip", "w").close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main(["export", "pets.efcil", "--format", "torch", *words]) == 2
    told = capsys.readouterr()
    assert sentence in told.err and told.err.count("\n") == 1 and told.out == ""
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "nothing.efcil"]) == 2
    assert "There is no model nothing.efcil" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_a_sentence_says_what_to_install(
    package: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert main(["export", str(model), "--out", str(tmp_path / "pets.onnx")]) == 2
    assert f"An ONNX file needs {package}; run: pip install 'efcil[export]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_format_torch_needs_no_extra(model: Path, tmp_path: Path) -> None:
    """In a process where none of its packages can be imported."""
    out = tmp_path / "pets.pt2"
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['onnx', 'onnxscript', 'onnxruntime'])); "
        "from efcil.cli import main; "
        f"sys.exit(main(['export', {str(model)!r}, '--out', {str(out)!r}, '--format', 'torch']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=cli_environment(), check=False
    )
    assert done.returncode == 0 and out.exists(), done.stderr
