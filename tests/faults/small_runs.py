"""What the tests of faults share: a run of a second, whether two ended equal, and disks that are full or read-only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from conftest import missing
from efcil.engine import state

SETTINGS = ["width=4", "stem_stride=2", "data.images_per_class=6", "stream.steps=3", "checkpoint_seconds=0"]
SETTINGS += ["first.epochs=2", "incremental.epochs=2", "options.rebalancing.epochs=2", "workers=0"]


def arguments(out: Path, *more: str) -> list[str]:
    """A run of EFC++ in three steps, with a checkpoint after every epoch and a state kept of every step."""
    changes = [word for change in SETTINGS for word in ("--set", change)]
    return ["run", "digits-cold5", *changes, "--keep-states", "--out", str(out), *more]


def folder_in(out: Path) -> Path:
    (folder,) = (path for path in out.iterdir() if path.name.startswith("digits"))
    return folder


def metrics_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())  # type: ignore[no-any-return]


def untimed(metrics: dict[str, Any]) -> dict[str, Any]:
    steps = [{**step, "seconds": None, "phase_seconds": None} for step in metrics["steps"]]
    return {**metrics, "seconds": None, "steps": steps}


def assert_equal_runs(folder: Path, other: Path) -> None:
    """The same metrics, the same tensors in every state, and nothing left over."""
    assert untimed(metrics_in(folder)) == untimed(metrics_in(other))
    assert metrics_in(folder)["finished"]
    for name in ["state.efcil", *(f"states/step-{step}.efcil" for step in (1, 2, 3))]:
        (tensors, meta), (expected, other_meta) = (state.read(run / name, "classifier") for run in (folder, other))
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors.items())
        assert {**meta, "times": None} == {**other_meta, "times": None}
    names = {str(path.relative_to(other)) for path in other.rglob("*")}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == names


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size in memory, at the folder."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """The folder as a disk that nobody may write to, not even root."""
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def mount(*words: str) -> None:
    if os.geteuid() != 0:
        missing("only root can mount the disk that this test fills or locks")
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"this machine does not let root mount a file system: {done.stderr.strip()}")


def one_sentence(said: str) -> str:
    """What the command line said of a fault: one line, and no traceback."""
    assert said.startswith("efcil: ") and said.count("\n") == 1 and "Traceback" not in said, said
    return said.removeprefix("efcil: ").strip()
