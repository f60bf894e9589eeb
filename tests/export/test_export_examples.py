"""The examples answer as the model does: Python without PyTorch, and a page in a real browser without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import exported_bytes, looks, network
from PIL import Image

from conftest import cli_environment, missing, real_data
from efcil import IncrementalClassifier
from efcil.data.images import files
from efcil.export import export_classifier

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHOUT_TORCH = """
import runpy, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "efcil"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
assert "torch" not in sys.modules and "efcil" not in sys.modules
"""


def run_example(*arguments: Any) -> dict[str, tuple[bool, str, float]]:
    """For each photo whether it is unknown, the best class and its probability, as the example prints them."""
    command = [sys.executable, "-c", WITHOUT_TORCH, EXAMPLES / "onnx_predict.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=cli_environment(), check=False)
    assert done.returncode == 0, done.stderr
    rows = [re.fullmatch(r"(.*): (unknown, at best )?(.*) ([\d.]+)", line) for line in done.stdout.splitlines()]
    return {row[1]: (bool(row[2]), row[3], float(row[4])) for row in rows if row}


def test_python_without_torch(tmp_path: Path) -> None:
    """On images that need not be resized it says what the model says."""
    classifier = network()
    (tmp_path / "pets.onnx").write_bytes(exported_bytes("onnx"))
    images = looks(16, 18)
    paths = [tmp_path / f"{place}.png" for place in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    told, answers = run_example(tmp_path / "pets.onnx", *paths), classifier.answers(images)
    assert {unknown for unknown, _, _ in told.values()} == {True, False}
    for place, path in enumerate(paths):
        unknown, name, probability = told[str(path)]
        assert unknown == answers.unknown[place]
        assert name == classifier.classes_[answers.probabilities[place].argmax()]
        assert probability == pytest.approx(answers.probabilities[place].max(), abs=2e-4)


# Real photos


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> tuple[IncrementalClassifier, Path, list[Path]]:
    """A model of real things, its file, and photos that it has not seen."""
    folder = real_data("office") / "amazon"
    names = ["backpack", "bike", "mug"]
    photos = {name: sorted((folder / name).iterdir()) for name in names}
    classifier = IncrementalClassifier("lda", backbone="efficientnet-lite0", progress=False)
    classifier.partial_fit([path for name in names for path in photos[name][:8]], np.repeat(names, 8))
    path = tmp_path_factory.mktemp("office") / "things.onnx"
    assert export_classifier(classifier, path).largest_difference < 1e-4
    return classifier, path, [path for name in names for path in photos[name][8:12]]


@pytest.mark.slow
def test_python_with_real_photos(office: tuple[IncrementalClassifier, Path, list[Path]]) -> None:
    classifier, model, photos = office
    told, answers = run_example(model, *photos), classifier.answers(photos)
    for place, photo in enumerate(photos):
        _, name, probability = told[str(photo)]
        assert name == classifier.classes_[answers.probabilities[place].argmax()]
        assert probability == pytest.approx(answers.probabilities[place].max(), abs=0.02)  # resized nearly alike


@pytest.mark.slow
def test_eight_bits_keep_the_answers(office: tuple[IncrementalClassifier, Path, list[Path]], tmp_path: Path) -> None:
    classifier, model, photos = office
    folder = photos[0].parents[1]
    others = [path for name in ("backpack", "bike", "mug") for path in sorted((folder / name).iterdir())[12:32]]
    given, small = files([str(path) for path in others], 256, "bicubic"), tmp_path / "small.onnx"
    made = export_classifier(classifier, small, photos=given, int8=True)
    assert made.same_answers is not None and made.same_answers >= 0.95 and made.photos == 30
    assert 0 < made.largest_difference < 0.5
    assert small.stat().st_size == made.bytes < 0.6 * model.stat().st_size
    told = run_example(small, *photos)
    assert np.mean([name == Path(path).parent.name for path, (_, name, _) in told.items()]) > 0.9


@pytest.fixture(scope="module")
def site(office: tuple[IncrementalClassifier, Path, list[Path]]) -> Iterator[str]:
    """The folder of the example as its page says, served on this machine; returns its address."""
    folder = office[1].parent
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed, which brings onnxruntime-web")
    asked = [str(npm), "install", "--no-audit", "--no-fund", "--prefix", str(folder), "onnxruntime-web@1.30"]
    asked += ["--prefer-offline", "--fetch-retries=6"]  # a network that fails once is no failure
    done = subprocess.run(asked, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        missing(f"npm cannot install onnxruntime-web: {done.stderr.strip()[-200:]}")
    shutil.copy(EXAMPLES / "onnx_predict.html", folder / "index.html")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.slow
def test_a_page_in_the_browser(
    office: tuple[IncrementalClassifier, Path, list[Path]], site: str, browser: Any, tmp_path: Path
) -> None:
    """Every probability that the page shows is the one of Python, for the same pixels; nothing comes from elsewhere."""
    classifier, _, photos = office
    side = int(classifier._fitted()[1].stored)
    same = []  # photos of the stored side, in a format that loses nothing: no two programs resize alike
    for place, photo in enumerate(photos[::3]):
        same.append(tmp_path / f"{place}.png")
        Image.open(photo).convert("RGB").resize((side, side)).save(same[-1])
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    same.append(tmp_path / "noise.png")
    Image.fromarray(noise).save(same[-1])

    troubles: list[str] = []
    requests: list[str] = []
    told: dict[Path, str] = {}
    page = browser.new_page()
    page.set_default_timeout(600_000)  # milliseconds, on a machine that has much else to do
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(site)
    page.wait_for_function("document.querySelector('pre').textContent == '3 classes are known'")
    for photo in (*same, *photos[:2]):
        page.evaluate("document.querySelector('pre').textContent = 'waiting'")
        page.set_input_files("input", photo)
        page.wait_for_function("document.querySelector('pre').textContent != 'waiting'")
        told[photo] = page.inner_text("pre")
    page.close()
    assert troubles == [] and all(url.startswith(site) for url in requests)
    assert any(url.endswith(".wasm") for url in requests)

    for photos_given, within in ((same, 6e-5), (photos[:2], 0.05)):
        answers = classifier.answers([str(photo) for photo in photos_given])
        for place, photo in enumerate(photos_given):
            lines = told[photo].splitlines()
            shown = {line.partition(" ")[2]: float(line.partition(" ")[0]) for line in lines if line != "unknown"}
            assert list(shown.values()) == sorted(shown.values(), reverse=True)
            expected = dict(zip(classifier.classes_.tolist(), answers.probabilities[place].tolist(), strict=True))
            assert shown == pytest.approx(expected, abs=within)
            if photos_given is same:
                assert (lines[0] == "unknown") == answers.unknown[place]
    assert told[same[-1]].startswith("unknown")
