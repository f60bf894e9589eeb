"""Figures from results and runs, as commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import make_blobs, make_learner
from efcil.analysis.curves import apart, curves
from efcil.cli import main

RESULTS = Path(__file__).parent.parent.parent / "results" / "runs.csv"


def test_curves_are_the_rows_of_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = curves("digits-cold5", ["efc++", "finetune"], RESULTS)
    assert found.keys() == {"efc++", "finetune"} and found["efc++"].shape == (3, 5)
    assert found["efc++"].mean(0)[-1] > found["finetune"].mean(0)[-1] + 20
    assert said.splitlines()[0].startswith("efc++: 3 seeds")
    out = tmp_path / "curves.png"
    assert (
        main(["figure", "curves", "digits-cold5", "efc++", "finetune", "--results", str(RESULTS), "--out", str(out)])
        == 0
    )
    with Image.open(out) as picture:
        assert picture.width > 500 and len(picture.convert("RGB").getcolors(1 << 20) or []) > 20
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("preset", "out", "sentence"), [("cifar100-cold20", "a.png", "no run"), ("digits-cold5", "a.xyz", "drawn")]
)
def test_what_cannot_be_drawn(
    preset: str, out: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "curves", preset, "efc++", "--results", str(RESULTS), "--out", str(tmp_path / out)]) == 2
    assert sentence in capsys.readouterr().err


def test_labels_are_set_apart() -> None:
    heights = apart([1.0, 1.01, 1.02, 5.0], 0.5)
    assert np.all(np.diff(heights) >= 0.5 - 1e-9) and heights[3] == 5.0 and np.mean(heights[:3]) == pytest.approx(1.01)


def test_the_rank_is_one_less_than_the_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = make_learner("efc++", options={"rebalancing": {"epochs": 1}}, width=8)
    learner.partial_fit(*make_blobs(["a", "b", "c", "d"])).save(tmp_path / "run" / "state.efcil")
    assert main(["figure", "spectrum", str(tmp_path / "run"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["non-zero"] == 3 and row["features"] == 64 and row["greatest"] >= row["mean"] > 0
    make_learner("freeze").partial_fit(*make_blobs(["a", "b"])).save(tmp_path / "other" / "state.efcil")
    assert main(["figure", "spectrum", str(tmp_path / "other")]) == 2
    assert "no Empirical Feature Matrix" in capsys.readouterr().err
