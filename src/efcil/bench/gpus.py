"""One GPU for each run of a campaign, counted without touching any: a context made here would take memory of theirs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from itertools import takewhile


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The GPUs that a process may use, by the names that CUDA_VISIBLE_DEVICES takes; none without NVIDIA's driver."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = [name.strip() for name in named.split(",")]
        return list(takewhile(lambda name: name not in ("", "-1"), names))  # CUDA stops at the first that is not there
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in listed.stdout.splitlines()))]


def gpu_environment(slot: int, gpus: Sequence[str], device: str) -> dict[str, str]:
    """What puts the run in this slot on a GPU of its own, in turn; a run that names its device has chosen already."""
    if not gpus or device not in ("auto", "cuda"):
        return {}
    return {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]}
