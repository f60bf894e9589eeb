"""Made-up requests, and lessons and predictions at once: a short run of what benchmarks/serving.py does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import real_data

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serving.py"
REQUESTS = os.environ.get("EFCIL_FUZZ_REQUESTS", "400")
MINUTES = os.environ.get("EFCIL_SOAK_MINUTES", "0.3")


def run(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_no_made_up_request_breaks_it() -> None:
    """Answers are as openapi.json says, none is a 5xx, and memory grows by no more than the script allows."""
    said = run("--fuzz", REQUESTS)
    assert "; 0 of them 5xx" in said and int(re.findall(r"(\d+) requests: answers", said)[0]) >= int(REQUESTS)


@pytest.mark.slow
def test_nothing_is_lost_when_lessons_and_predictions_come_at_once() -> None:
    root = real_data("pacs").parent
    said = run("--data-root", str(root), "--soak", MINUTES)
    assert "all answered" in said and re.search(r"lessons {'done': [1-9]\d*}", said) and "exit code 0" in said
