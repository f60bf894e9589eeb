"""A model outlives its photos: files of every format version since the first load, and say what they said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from efcil import IncrementalClassifier
from efcil.engine import state

FORMATS = Path(__file__).parent.parent / "formats"
CASES = [(name, case) for path in sorted(FORMATS.glob("*.json")) for name, case in json.loads(path.read_text()).items()]


def blobs() -> np.ndarray:
    """The images whose scores were written down beside the files."""
    rng = np.random.default_rng(3)
    colours = [[200, 60, 60], [60, 200, 60], [60, 60, 200], [200, 200, 60]]
    parts = [np.array(colour) + rng.normal(0, 20, (6, 8, 8, 3)) for colour in colours]
    return np.concatenate([part.clip(0, 255).astype(np.uint8) for part in parts])


def test_there_is_a_file_of_every_version() -> None:
    versions = {int(name.partition("-")[0].removeprefix("version")) for name, _ in CASES}
    assert versions == set(range(1, state.VERSION + 1))


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_every_version_loads_and_says_the_same(name: str, case: dict[str, list[list[float]]]) -> None:
    classifier = IncrementalClassifier.load(FORMATS / name)
    assert classifier.classes_.tolist() == case["classes"]
    assert np.allclose(classifier.decision_function(blobs()), case["scores"], rtol=1e-4, atol=1e-5)
    fresh = np.full((4, 8, 8, 3), 128, np.uint8)
    classifier.partial_fit(fresh, ["grey"] * 4)  # and goes on learning
    assert classifier.classes_.tolist() == [*case["classes"], "grey"]
