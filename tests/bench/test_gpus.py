"""Every run of a campaign on a GPU of its own, without the campaign touching any."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from efcil.bench.campaign import Job, campaign, cells
from efcil.bench.gpus import gpu_environment, visible_gpus

TINY = "width=4,stem_stride=2,data.images_per_class=4,first.epochs=1,incremental.epochs=1,stream.steps=2"


@pytest.mark.parametrize(
    ("slot", "gpus", "device", "chosen"),
    [
        (0, ["0", "1"], "auto", "0"),
        (1, ["0", "1"], "cuda", "1"),
        (2, ["0", "1"], "auto", "0"),
        (3, ["5", "GPU-8a"], "auto", "GPU-8a"),
        (1, ["0", "1"], "cuda:0", None),  # whoever names a device has chosen
        (1, ["0", "1"], "cpu", None),
        (1, [], "auto", None),
    ],
)
def test_slots_take_gpus_in_turn(slot: int, gpus: list[str], device: str, chosen: str | None) -> None:
    assert gpu_environment(slot, gpus, device).get("CUDA_VISIBLE_DEVICES") == chosen


@pytest.mark.parametrize(
    ("named", "gpus"), [("2,0", ["2", "0"]), ("", []), ("-1", []), (" 1 , GPU-8a", ["1", "GPU-8a"]), ("0,-1,1", ["0"])]
)
def test_gpus_that_are_named_are_taken_as_they_are(named: str, gpus: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": named}) == gpus


@pytest.fixture
def three_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver lists three."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    lines = "\\n".join(f"GPU {n}: Some name (UUID: GPU-{n})" for n in range(3))
    program.write_text(f"#!{sys.executable}\nprint('{lines}')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("three_gpus")
def test_the_driver_is_asked_when_nothing_is_named(tmp_path: Path) -> None:
    assert visible_gpus(os.environ) == ["0", "1", "2"]
    assert visible_gpus({"PATH": str(tmp_path)}) == []  # no driver


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.usefixtures("three_gpus")
def test_a_started_run_has_its_gpu_in_its_environment(tmp_path: Path) -> None:
    seen: dict[int, str] = {}

    def look(jobs: list[Job]) -> None:
        for job in jobs:
            if job.process is None:
                continue
            with contextlib.suppress(ProcessLookupError):  # it may have ended since it was last asked for
                for variable in Path(f"/proc/{job.process.pid}/environ").read_text().split("\0"):
                    if variable.startswith("CUDA_VISIBLE_DEVICES="):  # one that has not begun has its parent's, without
                        seen[job.cell.seed] = variable

    todo = cells(["digits-cold5"], [f"finetune:{TINY}"], [0, 1])
    jobs = campaign(todo, tmp_path / "runs", tmp_path / "runs.csv", None, workers=2, watch=look)
    assert [job.status for job in jobs] == ["done", "done"]
    assert seen == {0: "CUDA_VISIBLE_DEVICES=0", 1: "CUDA_VISIBLE_DEVICES=1"}
