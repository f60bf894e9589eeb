"""Where runs go, and which are meant: folders of runs, or folders that hold them, however deep."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from efcil.errors import UserError

T = TypeVar("T")


def finished_runs(given: Sequence[Path], read: Callable[[Path], T], kind: str = "run") -> tuple[list[T], list[str]]:
    """The runs in these folders as ``read`` reads them, each once, and a sentence on each that was left out.

    A run that is named must be finished; of a folder of runs those that are are taken. ``kind`` is what could have been
    given.
    """
    runs: dict[Path, T] = {}
    left_out: list[str] = []
    for place in given:
        if (place / "metrics.json").is_file():
            runs[place.resolve()] = read(place)
            continue
        folders = sorted(path.parent for path in place.rglob("metrics.json")) if place.is_dir() else []
        if not folders:
            raise UserError(missing(place, kind))
        for folder in folders:
            try:
                runs.setdefault(folder.resolve(), read(folder))
            except UserError as error:
                left_out.append(str(error))
    if not runs:
        more = f", nor of the {len(left_out) - 1} others" if len(left_out) > 1 else ""
        raise UserError(f"No run here is finished{more}. {left_out[0]}")
    return list(runs.values()), left_out


def missing(place: Path, kind: str) -> str:
    """What to say of a place that holds no run."""
    if place.exists():
        return f"{place} holds no run; give the folder of a run or a folder of such folders, which `efcil run` writes."
    beside = [path.name for path in place.parent.iterdir()] if place.parent.is_dir() else []
    near = difflib.get_close_matches(place.name, beside, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(str(place.parent / name) for name in near)}?" if near else "check its name."
    return f"There is no {kind} {place}; {hint}"


def check_out(out: Path) -> None:
    """Runs go to a folder; said before anything takes long."""
    for place in (out, *out.parents):
        if place.is_file():
            raise UserError(f"{place} is a file; give a folder for the runs, with --out.")
