"""The folder of a run, which tells everything about it: what is in it, who works on it, and whether it can go on.

config.yaml      every setting, resolved
run.json         preset, method, seed, class order of each step, versions
metrics.json     accuracy matrix and the paper's numbers, rewritten after every step (metrics.csv: one row per step)
state.efcil      the classifier after the last finished step
states/          the classifier after every step, when asked for
log.txt          one line per epoch and step, and per minute of a long stage
checkpoint.efcil the step being learnt as it was some epochs ago, while there is one
tracking.json    what experiment trackers call the run, with --track (tensorboard/ and wandb/: their files)
.lock            held by the process that works on the folder
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from efcil import __version__
from efcil.bench.metrics import NAMES
from efcil.bench.scenarios import config_digest, flat, number_settings
from efcil.bench.states import FOLDER as STATES
from efcil.config import RunConfig, to_dict
from efcil.data.stream import Stream
from efcil.engine import numerics
from efcil.engine.locks import locked
from efcil.engine.state import remove_partial, write_bytes, write_text
from efcil.errors import UserError

GOES_ON = "the same `efcil run` with --resume goes on, and so does the same `efcil bench`"
LONGEST_NAME = 150  # characters of a folder name; file systems take 255 bytes
LOCK = ".lock"
UNTIMED: dict[str, Any] = {"seconds": 0.0, "phase_seconds": {}}
# What a run writes before it has learnt.
BEGUN = ("metrics.json", "metrics.csv", "run.json", "config.yaml", "log.txt", "tracking.json")


def run_name(preset: str, config: RunConfig, changes: Sequence[str] = ()) -> str:
    """A readable folder name that says what was run; what moves no number may change on the way and is not in it."""
    free = flat(to_dict(config)).keys() - flat(number_settings(config)).keys()
    free |= {name.removeprefix("classifier.") for name in free}  # as it may be written in a change
    counting = [change for change in changes if change.partition("=")[0] not in free]
    parts = [Path(preset).stem, config.classifier.method, f"seed{config.classifier.seed}", *counting]
    name = "_".join(re.sub(r"[/:]", "-", part).replace(" ", "") for part in parts)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder for this process alone; a run that failed before it had learnt anything was never begun."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    busy = f"Another process is at work on the run in {folder}; wait for it, or choose another --out."
    with locked(folder / LOCK, busy):
        remove_partial(folder)
        remove_partial(folder / STATES)
        try:
            yield
        except Exception:
            if not any((folder / name).exists() for name in ("state.efcil", "checkpoint.efcil")):
                remove_beginning(folder)
            raise
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                for place in made:
                    with suppress(OSError):  # somebody else has put something there
                        place.rmdir()


def remove_beginning(folder: Path) -> None:
    if (folder / "metrics.json").exists():  # the sign that the folder is a run
        for name in BEGUN:
            (folder / name).unlink(missing_ok=True)
        for name in ("tensorboard", "wandb"):
            shutil.rmtree(folder / name, ignore_errors=True)


def copy(source: Path, target: Path) -> None:
    """Copy a file that is there to a place where there is none."""
    if source.exists() and not target.exists():
        write_bytes(target, source.read_bytes())


def unfinished(folder: Path) -> bool:
    path = folder / "metrics.json"
    return path.exists() and not read_metrics(path)["finished"]


def existing_metrics(folder: Path, config: RunConfig, resume: bool) -> dict[str, Any]:
    """What an earlier run left in the folder; refuses to mix two runs or to write over a finished one."""
    path = folder / "metrics.json"
    if not path.exists():
        if (folder / "state.efcil").exists():
            raise UserError(
                f"{folder} holds a classifier but no metrics.json; remove the folder or choose another --out."
            )
        return {}
    metrics = read_metrics(path)
    if not resume:
        how = "is already finished" if metrics["finished"] else "was begun before; add --resume to go on"
        raise UserError(f"The run in {folder} {how}. To run it anew, remove the folder or choose another --out.")
    version = metrics.get("numerics", 1)
    if version != numerics.VERSION:
        raise UserError(
            f"The run in {folder} was made with numerics version {version}, this efcil has {numerics.VERSION}; "
            "remove the folder to run it anew, or choose another --out."
        )
    before, now = read_config(folder / "config.yaml"), flat(to_dict(config))
    counted = {"classifier.seed", *flat(number_settings(config))}
    counted |= flat(number_settings(config, complete=True)).keys() & before.keys()  # older runs did not write them all
    free = now.keys() - counted  # such as workers, which may change on the way
    for name in sorted((before.keys() | now.keys()) - free):
        if before.get(name) != now.get(name):
            raise UserError(
                f"The run in {folder} was begun with {name} = {before.get(name)}, not {now.get(name)}; "
                "resume it with the same settings, or choose another --out."
            )
    return metrics


def damaged(path: Path, why: object) -> UserError:
    return UserError(f"{path} is damaged ({' '.join(str(why).split())}); remove the folder to run it anew.")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a run."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None
    if not isinstance(content, dict):
        raise damaged(path, "it is not a list of named values")
    return content


def read_metrics(path: Path) -> dict[str, Any]:
    """The metrics of a run, whole enough to go on with and to be shown."""
    metrics = read_json(path)
    kinds = {"finished": bool, "steps": list, "accuracy_matrix": list, "classes_per_task": list, "first_step": int}
    kinds |= {"preset": str, "method": str, "seed": int, "kept_bytes": int}
    for name, kind in {**kinds, "seconds": int | float}.items():
        if not isinstance(metrics.get(name), kind):
            raise damaged(path, f"{name} is missing or of the wrong kind")
    if any(type(count) is not int for count in metrics["classes_per_task"]):
        raise damaged(path, "classes_per_task is not a list of whole numbers")
    numbers = (*NAMES, "step", "seconds")
    whole = [
        isinstance(step, dict) and all(_is_number(step.get(name)) for name in numbers) for step in metrics["steps"]
    ]
    rows = [
        isinstance(row, list)
        and len(row) == len(whole)
        and all(_is_number(value) or (value is None and task > step) for task, value in enumerate(row))
        for step, row in enumerate(metrics["accuracy_matrix"])
    ]
    if not all(whole) or not all(rows) or len(rows) != len(whole) or len(whole) > len(metrics["classes_per_task"]):
        raise damaged(path, "its steps and its accuracy matrix do not fit each other")
    learnt = metrics.get("learnt", UNTIMED)
    times = [learnt.get("seconds"), *_values(learnt.get("phase_seconds"))] if isinstance(learnt, dict) else [None]
    if not all(map(_is_number, times)):
        raise damaged(path, "the time that the last step took is not a number")
    if whole and not all(_is_number(metrics.get(name)) for name in NAMES):
        raise damaged(path, "its last numbers are missing")
    return metrics


def _values(section: object) -> list[object]:
    return list(section.values()) if isinstance(section, dict) else [None]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_config(path: Path) -> dict[str, Any]:
    """The settings that a run was begun with, by their dotted names."""
    return flat(read_settings(path))


def read_settings(path: Path) -> dict[str, Any]:
    """The same, section within section."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise damaged(path, error) from None
    if not isinstance(content, dict):
        raise damaged(path, "it is not a list of sections")
    return content


def describe(config: RunConfig, preset: str, folder: Path, stream: Stream) -> dict[str, Any]:
    """Write down what is going to be run; metrics.json comes last, as the sign that the folder is a run."""
    import numpy
    import torch

    versions = {"efcil": __version__, "torch": torch.__version__, "numpy": numpy.__version__}
    about = {
        "preset": preset,
        "method": config.classifier.method,
        "seed": config.classifier.seed,
        "config_digest": config_digest(config),
        "numerics": numerics.VERSION,
        "class_order": stream.splits,
        "first_step": stream.first_step,
        "data_sources": stream.data.sources,
        "versions": {**versions, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    write_text(folder / "config.yaml", yaml.safe_dump(to_dict(config), sort_keys=False))
    write_text(folder / "run.json", json.dumps(about, indent=2))
    metrics = {
        **dict.fromkeys(NAMES),
        "unit": "percent",
        "accuracy_matrix": [],
        "steps": [],
        "classes_per_task": stream.classes_per_task,
        "first_step": stream.first_step,
        "method": config.classifier.method,
        "preset": preset,
        "seed": config.classifier.seed,
        "config_digest": config_digest(config),
        "numerics": numerics.VERSION,
        "seconds": 0.0,
        "kept_bytes": 0,
        "finished": False,
    }
    write_metrics(folder, metrics)
    return metrics


def check_same_stream(folder: Path, stream: Stream) -> None:
    """The images on disk may have changed since the run was begun."""
    if read_json(folder / "run.json").get("class_order") != stream.splits:
        raise UserError(f"The data now has other classes than when the run in {folder} was begun; check --data-root.")


def check_in_step(folder: Path, learnt: int, measured: int) -> None:
    """A run is cut off at most between learning a step and measuring it; anything else was tampered with."""
    if learnt - measured not in (0, 1):
        raise UserError(
            f"{folder} holds a classifier of {learnt} steps but metrics of {measured}; remove it and run anew."
        )


def write_metrics(folder: Path, metrics: dict[str, Any]) -> None:
    """As JSON, and as a table with one row per step."""
    table = io.StringIO()
    tasks = [metrics["first_step"] + i for i in range(len(metrics["classes_per_task"]))]
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["step", *NAMES, "seconds", *(f"accuracy_task_{task}" for task in tasks)])
    for step, row in zip(metrics["steps"], metrics["accuracy_matrix"], strict=True):
        writer.writerow([step["step"], *(f"{step[name]:.4f}" for name in NAMES), step["seconds"], *row])
    write_text(folder / "metrics.csv", table.getvalue())
    write_text(folder / "metrics.json", as_json(metrics))


def as_json(value: Any, indent: str = "") -> str:
    """JSON with a line per entry, but lists of numbers on one line: a matrix looks like one."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        entries = [f"{inner}{json.dumps(name)}: {as_json(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        return "[\n" + ",\n".join(f"{inner}{as_json(item, inner)}" for item in value) + f"\n{indent}]"
    return json.dumps(value)
