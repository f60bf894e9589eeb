"""docs/serve.md says what the server does: its curl lines run, and its limits are those of the program."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import missing
from efcil.serve.limits import Limits
from serving import RealServer, photo, zip_of

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
SMALL = ["--backbone", "resnet18", "--set", "width=4", "--set", "image_size=16", "--set", "first.epochs=1"]


def test_limits_are_documented() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in told.items()} == dataclasses.asdict(Limits())


@pytest.mark.slow
def test_every_curl_line_runs(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl is not installed")
    for name in ("mug-1", "mug-2", "mug-3", "bike-1", "bike-2", "desk"):
        (tmp_path / f"{name}.jpg").write_bytes(photo(name[:3], int(name[-1], 36), "JPEG"))
    (tmp_path / "lesson.zip").write_bytes(zip_of({f"pen/{k}.jpg": photo("pen", k, "JPEG") for k in range(3)}))
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    called = {"/lessons", "/predict", "/classes", "/undo", "/model", "/healthz", "/metrics", "/openapi.json"}
    assert all(f"8000{path}" in commands for path in called)
    with RealServer(tmp_path / "things.efcil", *SMALL) as server:
        script = commands.replace("http://127.0.0.1:8000", server.address).replace(
            "curl ", "curl --fail-with-body -sS "
        )
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert '"status": "done"' in done.stdout and "efcil_classes 2.0" in done.stdout
        lessons = server.client.get("/lessons").json()["lessons"]
        assert [lesson["status"] for lesson in lessons] == ["done"] * 3
        assert [row["class"] for row in server.client.get("/classes").json()["classes"]] == ["mug", "pen"]
    assert (
        json.loads((tmp_path / "answer.json").read_text())["classes"] == {"bike": 2}
        and (tmp_path / "copy.efcil").exists()
    )
