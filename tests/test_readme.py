"""The README's blocks run as they stand: a stranger who copies them gets what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_block_runs_and_learns(tmp_path: Path) -> None:
    (code,) = blocks("python")
    assert len(code.strip().splitlines()) <= 12
    output = run([sys.executable, "-c", code], tmp_path)
    assert float(output.split()[-1]) > 0.3  # ten classes: chance is 0.1, plain fine-tuning 0.2
    assert (tmp_path / "digits.efcil").exists()


@pytest.mark.slow
def test_the_shell_block_runs(tmp_path: Path) -> None:
    (code,) = blocks("sh")
    lines = [line for line in code.splitlines() if line.startswith("efcil ")]
    assert len(lines) == 5
    short = "--set width=8 --set first.epochs=1 --set incremental.epochs=1"  # the real epochs are the demo's business
    for line in lines:
        run(["bash", "-c", f"{line.partition('#')[0]} {short if line.startswith('efcil run') else ''}"], tmp_path)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", "\n".join(blocks("console")), re.MULTILINE))
def test_the_make_targets_exist(target: str) -> None:
    run(["make", "--dry-run", target], ROOT)


def test_pictures_exist() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", (ROOT / "README.md").read_text())
    assert pictures
    assert all((ROOT / picture).exists() for picture in pictures)
