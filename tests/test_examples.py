"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import cli_environment, real_data

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_office_photos(tmp_path: Path) -> None:
    office = real_data("office") / "amazon"
    for name in ("backpack", "bike", "calculator", "mug"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for photo in sorted((office / name).iterdir())[:10]:
            (tmp_path / "photos" / name / photo.name).symlink_to(photo)
    command = [sys.executable, str(EXAMPLES / "office_photos.py"), "photos", "5"]
    done = subprocess.run(command, cwd=tmp_path, env=cli_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "never taught: calculator, mug" in lines[0]
    accuracy = float(next(line for line in lines if line.startswith("accuracy")).split()[-1].rstrip("%"))
    unknown = float(next(line for line in lines if "never taught classes" in line).split()[-1].rstrip("%"))
    assert accuracy >= 90 and unknown >= 50
    assert (tmp_path / "things.efcil").exists()
