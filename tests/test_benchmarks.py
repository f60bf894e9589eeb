"""The scripts of benchmarks/ still fit the package: each can be imported, so no name that it uses is gone."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_can_be_imported(script: Path) -> None:
    assert runpy.run_path(str(script), run_name="imported")["__doc__"]
