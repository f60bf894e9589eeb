"""The folder of a run: finished, at work, begun in vain, broken or of another time, and what each lets happen next."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import test_runs
from test_runs import QUICK, Quiet, arguments, folder_in, metrics_in, quick_run, sets, without_seconds

from conftest import cli_command, cli_environment, run_cli
from efcil.bench.run_folder import run_name
from efcil.bench.runs import Unwatched, run
from efcil.bench.scenarios import resolve
from efcil.cli import main
from efcil.engine import numerics
from efcil.engine.progress import Step
from efcil.errors import UserError

unbroken, quick = test_runs.unbroken, test_runs.quick  # fixtures, made anew for this file


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def finished(unbroken: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may change."""
    return Path(shutil.copytree(unbroken, tmp_path / "out" / unbroken.name))


# Finished runs


def test_a_finished_run_is_not_written_over(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(finished)
    assert main(arguments(finished.parent)) == 2
    assert "already finished" in capsys.readouterr().err
    assert contents(finished) == before


def test_resuming_a_finished_run_reports_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(finished)
    assert main(arguments(finished.parent, "--resume", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["accuracy_matrix"] == metrics_in(finished)["accuracy_matrix"]
    assert contents(finished) == before


def test_a_run_is_resumed_with_its_own_settings_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset, out = tmp_path / "own.yaml", tmp_path / "out"
    text = "data: {name: digits, images_per_class: 2}\nstream: {steps: 2}\n"
    text += "classifier: {width: 4, stem_stride: 2, first: {epochs: 1}, incremental: {epochs: 1}}"
    preset.write_text(text)
    command = ["run", str(preset), "--method", "finetune", "--out", str(out)]
    assert main(command) == 0
    before = contents(folder_in(out))
    preset.write_text(text.replace("width: 4", "width: 5"))
    assert main([*command, "--resume"]) == 2
    assert "begun with classifier.width = 4, not 5" in capsys.readouterr().err
    preset.write_text(text)
    assert main([*command, "--resume", "--set", "workers=0"]) == 0
    config = folder_in(out) / "config.yaml"
    settings = config.read_text()
    config.write_text(settings.replace("  tasks: null\n", ""))  # as before there was this setting
    assert main([*command, "--resume"]) == 0
    config.write_text(settings.replace("  tasks: null\n", "  tasks: 1\n"))
    assert main([*command, "--resume"]) == 2
    assert "begun with stream.tasks = 1, not None" in capsys.readouterr().err
    config.write_text(settings)
    assert contents(folder_in(out)) == before


# One run per folder, and starts that fail


def tiny_command(out: Path, *more: str) -> list[str]:
    tiny = ["width=4", "stem_stride=2", "data.images_per_class=4", "stream.steps=2", "first.epochs=1"]
    return [
        "run",
        "digits-cold5",
        "--method",
        "finetune",
        *sets([*tiny, "incremental.epochs=1"]),
        "--out",
        str(out),
        *more,
    ]


class Stopped(Quiet):
    """Stops a run at its first step, whichever that is."""

    def step(self, step: Step) -> None:
        raise KeyboardInterrupt


def test_a_second_process_on_the_same_folder_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    long = ["run", "digits-cold5", "--method", "finetune", "--set", "first.epochs=100000", "--out", str(tmp_path)]
    first = subprocess.Popen(cli_command(*long), stdout=subprocess.DEVNULL, env=cli_environment())
    try:
        deadline = time.monotonic() + 600
        while not any(tmp_path.glob("*/.lock")):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        folder = folder_in(tmp_path)
        while not (folder / "metrics.json").exists():
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        for how in ([], ["--resume"]):
            second = run_cli(*long, *how)
            assert second.returncode == 2 and f"Another process is at work on the run in {folder};" in second.stderr
            assert second.stderr.count("\n") == 1
    finally:
        first.kill()  # -9: the lock dies with it
        first.wait()
    again = resolve("digits-cold5", "finetune", 0, ["first.epochs=100000"])
    with pytest.raises(KeyboardInterrupt):
        run(again, "digits-cold5", folder, Stopped(), resume=True)


def test_a_folder_is_named_after_what_moves_numbers() -> None:
    changes = ["workers=8", "data.packed=/tmp/packed", "first.epochs=3", "worker_processes=true", "options.eta=0.2"]
    config = resolve("digits-cold5", "efc++", 0, changes)
    assert run_name("digits-cold5", config, changes) == "digits-cold5_efc++_seed0_first.epochs=3_options.eta=0.2"


@pytest.mark.parametrize("shared", [[], ["--first-tasks"]])
def test_a_start_that_failed_is_not_begun(
    shared: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shared = [*shared, *([str(tmp_path / "first")] if shared else [])]
    if shared:  # the first task waits there, trained
        assert main(tiny_command(tmp_path / "other", *shared)) == 0
    assert main(tiny_command(out, "--tensorboard", "--set", "device=cuda:77", *shared)) == 2
    assert "cuda:77" in capsys.readouterr().err
    assert not out.exists()
    assert main(tiny_command(out, *shared)) == 0


class Slow(Unwatched):
    """Has a file open in the folder, as a tracker has, and writes it once more at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.heard = folder, []

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        (self.folder / "tensorboard").mkdir()

    def ended(self, finished: bool) -> None:
        (self.folder / "tensorboard" / "events").write_text("the last ones")
        self.heard.append(finished)


def test_whoever_watches_a_start_that_fails_is_done_before_the_folder_goes(tmp_path: Path) -> None:
    watcher = Slow(tmp_path / "run")
    with pytest.raises(UserError, match="cuda:77"):
        run(resolve("digits-cold5", "finetune", 0, ["device=cuda:77"]), "digits-cold5", tmp_path / "run", watcher)
    assert watcher.heard == [False] and not (tmp_path / "run").exists()
    run(resolve("digits-cold5", "finetune", 0, QUICK[:-1]), "digits-cold5", tmp_path / "run", watcher)
    assert watcher.heard == [False, True]


def test_a_start_that_failed_in_a_folder_with_other_things_takes_only_its_own(tmp_path: Path) -> None:
    config = resolve("digits-cold5", "finetune", 0, [*QUICK[:-1], "device=cuda:77"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "output.txt").write_text("mine")
    with pytest.raises(UserError, match="cuda:77"):
        run(config, "digits-cold5", tmp_path / "run", Quiet())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "output.txt"]


# Broken files of a run


def drop(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda metrics: {key: value for key, value in metrics.items() if key != name}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.json", b"{"),
        ("metrics.json", b"[]"),
        ("metrics.json", b"\xff\xfe"),
        ("metrics.json", b'{"finished": false}'),
        ("config.yaml", b"classifier: ["),
        ("config.yaml", b"- a"),
        ("config.yaml", b"\xff\xfe\x00"),
        ("config.yaml", None),
        ("run.json", b"{"),
        ("run.json", None),
    ],
)
def test_a_broken_file_of_a_run_gets_one_sentence(
    name: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        quick_run(tmp_path / "digits-cold5_efc++_seed0", watcher=Quiet(("step", 1, 1)))
    path = tmp_path / "digits-cold5_efc++_seed0" / name
    path.write_bytes(content) if content is not None else path.unlink()
    with pytest.raises(UserError) as caught:
        quick_run(path.parent, resume=True)
    assert str(path) in str(caught.value) and "is damaged" in str(caught.value) and "\n" not in str(caught.value)
    assert (path.parent / "state.efcil").exists()  # nothing is lost


@pytest.mark.parametrize(
    "change",
    [
        drop("steps"),
        drop("finished"),
        drop("per_step_accuracy"),
        lambda metrics: {**metrics, "steps": metrics["steps"][:-1]},
        lambda metrics: {**metrics, "steps": ["?"] * len(metrics["steps"])},
        lambda metrics: {**metrics, "accuracy_matrix": [1.0, 2.0, 3.0]},
        lambda metrics: {**metrics, "classes_per_task": [2]},
        lambda metrics: {**metrics, "classes_per_task": ["two"] * len(metrics["classes_per_task"])},
        lambda metrics: {**metrics, "accuracy_matrix": [[*row[:-1], "?"] for row in metrics["accuracy_matrix"]]},
        lambda metrics: {**metrics, "accuracy_matrix": [[None] * len(row) for row in metrics["accuracy_matrix"]]},
        *map(drop, ("preset", "method", "seed")),
    ],
)
def test_metrics_edited_by_hand_get_one_sentence(
    change: Callable[[dict[str, Any]], Any], quick: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(quick, tmp_path / "run"))
    (folder / "metrics.json").write_text(json.dumps(change(metrics_in(folder))))
    with pytest.raises(UserError, match=r"metrics.json is damaged") as caught:
        quick_run(folder, resume=True)
    assert "\n" not in str(caught.value)


# What a run was made with


def test_a_run_of_other_numerics_is_not_gone_on_with(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(quick, tmp_path / "run"))
    assert metrics_in(folder)["numerics"] == numerics.VERSION
    monkeypatch.setattr(numerics, "VERSION", numerics.VERSION + 1)
    with pytest.raises(UserError, match=rf"{folder} was made with numerics version {numerics.VERSION - 1}"):
        quick_run(folder, resume=True)


def test_settings_that_move_no_number_may_change_when_resuming(quick: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        quick_run(tmp_path / "run", watcher=Quiet(("step", 1, 1)))
    config = resolve("digits-cold5", "efc++", 0, [*QUICK, "workers=0", "checkpoint_seconds=0", "device=cpu"])
    run(config, "digits-cold5", tmp_path / "run", Quiet(), resume=True)
    assert without_seconds(metrics_in(tmp_path / "run")) == without_seconds(metrics_in(quick))


def test_a_first_task_of_other_numerics_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "first"
    for version in (numerics.VERSION, numerics.VERSION + 1):
        monkeypatch.setattr(numerics, "VERSION", version)
        quick_run(tmp_path / f"run{version}", first_tasks=shared)
    assert len(list(shared.iterdir())) == 2
