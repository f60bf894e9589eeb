"""The classifier as it was after every step, which some figures look at; kept only when asked for."""

from __future__ import annotations

from pathlib import Path

from efcil.errors import UserError

FOLDER = "states"


def state_path(run: Path, step: int) -> Path:
    """Where a run keeps the classifier after this step, numbered as in its metrics."""
    return run / FOLDER / f"step-{step}.efcil"


def kept_states(run: Path, first_step: int, steps: int) -> list[Path]:
    """The states after all steps of a run, or a sentence on how to make them."""
    paths = [state_path(run, first_step + index) for index in range(steps)]
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise UserError(
            f"The run in {run} has not kept {missing[0].relative_to(run)}; remove the folder, or choose another --out, "
            "and run it anew with --keep-states."
        )
    return paths


def states_size(run: Path) -> tuple[int, float]:
    """How many states there are, and their megabytes."""
    paths = list((run / FOLDER).glob("step-*.efcil"))
    return len(paths), sum(path.stat().st_size for path in paths) / 1e6
