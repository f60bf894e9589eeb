"""Whole runs through the real command line: what they write, and that a killed one ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

import efcil.bench.runs
from conftest import cli_command, cli_environment, make_blobs, run_cli
from efcil import IncrementalClassifier, data
from efcil.bench.metrics import NAMES, summarize
from efcil.bench.runs import Unwatched, run
from efcil.bench.scenarios import resolve
from efcil.cli import main
from efcil.data.stream import Stream
from efcil.engine import state
from efcil.engine.progress import Step
from efcil.errors import UserError

TINY = ["width=4", "stem_stride=2", "data.images_per_class=20", "stream.steps=3", "first.epochs=2"]
TINY += ["checkpoint_seconds=0"]  # a checkpoint after every epoch
LATER_EPOCHS = 24  # enough of them that a task can be caught in its middle
CHANGES = [*TINY, f"incremental.epochs={LATER_EPOCHS}", "options.rebalancing.epochs=5"]
FILES = {"config.yaml", "run.json", "metrics.json", "metrics.csv", "log.txt", "state.efcil", ".lock"}


def sets(changes: list[str]) -> list[str]:
    return [argument for change in changes for argument in ("--set", change)]


def arguments(out: Path, *more: str) -> list[str]:
    return ["run", "digits-cold5", *sets(CHANGES), "--out", str(out), *more]


def folder_in(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def metrics_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())  # type: ignore[no-any-return]


def without_seconds(metrics: dict[str, Any]) -> dict[str, Any]:
    steps = [{**step, "seconds": None, "phase_seconds": None} for step in metrics["steps"]]
    return {**metrics, "seconds": None, "steps": steps}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run from beginning to end."""
    out = tmp_path_factory.mktemp("unbroken")
    assert main(arguments(out)) == 0
    return folder_in(out)


# What a run writes


def test_a_run_in_a_process_of_its_own_writes_everything(unbroken: Path, tmp_path: Path) -> None:
    done = run_cli(*arguments(tmp_path, "--json", "--tensorboard"))
    assert done.returncode == 0, done.stderr
    folder = folder_in(tmp_path)
    assert {path.name for path in folder.iterdir()} == FILES | {"tensorboard"}
    assert any("tfevents" in path.name and path.stat().st_size > 100 for path in (folder / "tensorboard").iterdir())
    assert json.loads(done.stdout) == {"folder": str(folder), **metrics_in(folder)}
    assert_equal_runs(folder, unbroken)


def test_metrics_hold_the_promised_names_and_agree_with_their_matrix(unbroken: Path) -> None:
    metrics = metrics_in(unbroken)
    assert metrics["classes_per_task"] == [4, 3, 3] and metrics["first_step"] == 1
    assert (metrics["method"], metrics["preset"], metrics["seed"]) == ("efc++", "digits-cold5", 0)
    assert metrics["finished"] is True and metrics["seconds"] > 0
    matrix = metrics["accuracy_matrix"]
    assert np.shape(matrix) == (3, 3)
    assert all(
        (value is None) == (column > row) for row, line in enumerate(matrix) for column, value in enumerate(line)
    )
    assert all(0 <= value <= 100 for line in matrix for value in line if value is not None)
    for count in (1, 2, 3):
        expected = summarize([line[:count] for line in matrix[:count]], metrics["classes_per_task"][:count])
        step = metrics["steps"][count - 1]
        assert {name: step[name] for name in NAMES} == pytest.approx(expected) and step["step"] == count
    assert {name: metrics[name] for name in NAMES} == pytest.approx(expected)


def test_every_step_tells_its_time_by_phase_its_memory_and_its_spectrum(unbroken: Path) -> None:
    metrics = metrics_in(unbroken)
    for count, step in enumerate(metrics["steps"], start=1):
        phases = step["phase_seconds"]
        assert sum(phases.values()) == pytest.approx(step["seconds"], abs=0.02)
        assert phases.keys() >= {"training", "statistics", "evaluation", "other"} and phases["training"] > 0
        assert phases.keys() >= {"drift", "re-balancing"} if count > 1 else "drift" not in phases
        classes = sum(metrics["classes_per_task"][:count])
        assert len(step["spectrum"]) == classes - 1  # the rank of E_t
        assert step["spectrum"] == sorted(step["spectrum"], reverse=True) and step["spectrum"][-1] > 0
    kept = [step["kept_bytes"] for step in metrics["steps"]]
    assert kept == sorted(kept) and kept[-1] == metrics["kept_bytes"] and kept[0] < kept[1]


def test_the_confusion_matrix_counts_every_test_image_where_it_was_put(unbroken: Path) -> None:
    metrics, about = metrics_in(unbroken), json.loads((unbroken / "run.json").read_text())
    config = resolve("digits-cold5", "efc++", 0, CHANGES)
    stream = Stream(data.load(config.data, None), config.stream, 0)
    classifier = IncrementalClassifier.load(unbroken / "state.efcil")
    order = [name for split in about["class_order"] for name in split]
    expected = np.zeros((10, 10), dtype=int)
    for task in stream:
        for true, predicted in zip(task.test_labels, classifier.predict(task.test), strict=True):
            expected[order.index(true), order.index(predicted)] += 1
    assert metrics["confusion_matrix"] == expected.tolist()
    ends = np.cumsum(metrics["classes_per_task"])
    blocks = [expected[end - size : end] for end, size in zip(ends, metrics["classes_per_task"], strict=True)]
    hits = [np.trace(block[:, end - len(block) :]) for block, end in zip(blocks, ends, strict=True)]
    accuracies = [100 * hit / block.sum() for hit, block in zip(hits, blocks, strict=True)]
    assert metrics["accuracy_matrix"][-1] == pytest.approx(accuracies)


def test_states_are_kept_only_when_asked_for_and_are_those_of_each_step(
    quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not (quick / "states").exists()
    command = ["run", "digits-cold5", *sets(QUICK), "--out", str(tmp_path), "--keep-states"]
    assert main(command) == 0
    assert "kept states of 3 steps" in capsys.readouterr().out
    folder = folder_in(tmp_path)
    assert_equal_runs(folder, quick)
    tasks = [IncrementalClassifier.load(folder / "states" / f"step-{step}.efcil").tasks_ for step in (1, 2, 3)]
    assert tasks == [[4], [4, 3], [4, 3, 3]]
    assert (folder / "states" / "step-3.efcil").read_bytes() == (folder / "state.efcil").read_bytes()
    shutil.rmtree(folder / "states")
    assert main([*command, "--resume"]) == 2  # what is not there any more is not made up
    assert "--keep-states" in capsys.readouterr().err


def test_the_table_says_the_same(unbroken: Path) -> None:
    metrics = metrics_in(unbroken)
    with (unbroken / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    for row, step, line in zip(rows, metrics["steps"], metrics["accuracy_matrix"], strict=True):
        assert all(float(row[name]) == pytest.approx(step[name], abs=1e-4) for name in NAMES)
        for task, value in enumerate(line, start=1):
            cell = row[f"accuracy_task_{task}"]
            assert cell == "" if value is None else float(cell) == pytest.approx(value)


def test_the_matrix_is_what_the_saved_classifier_does(unbroken: Path) -> None:
    config = resolve("digits-cold5", "efc++", 0, CHANGES)
    stream = Stream(data.load(config.data, None), config.stream, 0)
    classifier = IncrementalClassifier.load(unbroken / "state.efcil")
    accuracies = [100 * classifier.score(task.test, task.test_labels) for task in stream]
    assert metrics_in(unbroken)["accuracy_matrix"][-1] == pytest.approx(accuracies)
    assert json.loads((unbroken / "run.json").read_text())["class_order"] == stream.splits


def test_config_run_and_log_tell_what_was_done(unbroken: Path) -> None:
    folder = unbroken
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["classifier"]["width"] == 4 and config["classifier"]["options"]["lambda_efm"] == 10.0
    about = json.loads((folder / "run.json").read_text())
    assert sorted(name for split in about["class_order"] for name in split) == [str(digit) for digit in range(10)]
    assert about["versions"].keys() >= {"efcil", "torch", "numpy", "python"}
    log = (folder / "log.txt").read_text()
    assert log.count(" epoch ") == 2 + 2 * LATER_EPOCHS and "ce=" in log and "efm=" in log
    assert log.count("A_step") == 3 and "stopped" not in log


# Killed runs


def killed_in_the_middle_of_a_task(out: Path, how: signal.Signals) -> tuple[int, str, Path]:
    """A real run, sent a signal while it learns task 2 or 3; its exit code, its last words and its folder."""
    process = subprocess.Popen(
        cli_command(*arguments(out)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=cli_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where Ctrl-C is ignored
    )
    try:
        deadline = time.monotonic() + 1800  # a busy machine takes its time
        while not in_a_later_task(out):
            assert process.poll() is None and time.monotonic() < deadline, "it ended before it could be killed"
            time.sleep(0.002)
        process.send_signal(how)
        error = process.communicate(timeout=600)[1]
    finally:
        process.kill()
        process.communicate()
    return process.returncode, error, folder_in(out)


def in_a_later_task(out: Path) -> bool:
    """Whether a task after the first has finished an epoch and has epochs left."""
    for path in out.glob("*/checkpoint.efcil"):
        with contextlib.suppress(FileNotFoundError):  # removed in this very moment
            copy = out.with_name(f"{out.name}-looked-at.efcil")  # the next checkpoint takes its place at any time
            copy.write_bytes(path.read_bytes())
            header = state.read(copy, "checkpoint")[1]
            return header["task"] >= 1 and header["epochs_done"] < LATER_EPOCHS // 2
    return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_run_stopped_in_the_middle_of_a_task_ends_bit_equal(
    how: signal.Signals, unbroken: Path, tmp_path: Path
) -> None:
    code, error, folder = killed_in_the_middle_of_a_task(tmp_path, how)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    assert how == signal.SIGKILL or "--resume goes on" in error
    assert "Traceback" not in error
    cut = metrics_in(folder)
    assert not cut["finished"] and 1 <= len(cut["steps"]) < 3
    _, header = state.read(folder / "checkpoint.efcil", "checkpoint")
    assert 1 <= header["epochs_done"] <= LATER_EPOCHS and header["task"] >= 1
    assert main(arguments(tmp_path)) == 2  # a run that was begun is not begun again by mistake
    assert main(arguments(tmp_path, "--resume")) == 0
    assert_equal_runs(folder, unbroken)


def assert_equal_runs(folder: Path, other: Path) -> None:
    assert (folder / "state.efcil").read_bytes() == (other / "state.efcil").read_bytes()
    assert without_seconds(metrics_in(folder)) == without_seconds(metrics_in(other))
    assert (folder / "config.yaml").read_bytes() == (other / "config.yaml").read_bytes()
    assert not (folder / "checkpoint.efcil").exists()


class Quiet(Unwatched):
    """Watches a run and raises at one moment of it: (method of the watcher, task, epoch)."""

    def __init__(self, moment: tuple[str, int, int] | None = None) -> None:
        self.moment = moment

    def reach(self, *moment: Any) -> None:
        if moment == self.moment:
            raise KeyboardInterrupt

    def step(self, step: Step) -> None:
        self.reach("step", step.task, step.epoch)

    def epoch(self, step: Step) -> None:
        self.reach("epoch", step.task, step.epoch)

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        self.reach(name, task, 0)

    def finished_step(self, metrics: dict[str, Any]) -> None:
        self.reach("finished_step", len(metrics["steps"]) - 1, 0)


QUICK = [*TINY, "data.images_per_class=6", "incremental.epochs=2", "options.rebalancing.epochs=2"]


def quick_run(folder: Path, method: str = "efc++", watcher: Quiet | None = None, **options: Any) -> dict[str, Any]:
    changes = QUICK if method == "efc++" else QUICK[:-1]
    return run(resolve("digits-cold5", method, 0, changes), "digits-cold5", folder, watcher or Quiet(), **options)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick") / "run"
    quick_run(folder)
    return folder


MOMENTS = [
    ("step", 0, 0),  # nothing is saved yet
    ("step", 0, 1),
    ("after the epochs", 0, 0),  # all epochs of the first task are done
    ("finished_step", 0, 0),
    ("epoch", 1, 1),
    ("before the epochs", 2, 0),
    ("after the epochs", 2, 0),
    ("finished_step", 2, 0),  # finished, but nobody was told
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_stopped_at_any_moment_ends_bit_equal(moment: tuple[str, int, int], quick: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        quick_run(tmp_path / "run", watcher=Quiet(moment))
    quick_run(tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", quick)


@pytest.mark.parametrize("function", ["write_metrics", "evaluate"])
def test_a_run_stopped_between_saving_and_writing_metrics_ends_bit_equal(
    function: str, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Any] = getattr(efcil.bench.runs, function)

    def stop_in_the_second_step(*inputs: Any) -> Any:
        if len(IncrementalClassifier.load(saved).tasks_ if saved.exists() else []) == 2:
            raise KeyboardInterrupt
        return original(*inputs)

    saved = tmp_path / "run" / "state.efcil"
    monkeypatch.setattr(efcil.bench.runs, function, stop_in_the_second_step)
    with pytest.raises(KeyboardInterrupt):
        quick_run(tmp_path / "run")
    monkeypatch.undo()
    assert len(metrics_in(tmp_path / "run")["steps"]) == 1
    before = metrics_in(tmp_path / "run")["learnt"]
    quick_run(tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", quick)
    step = metrics_in(tmp_path / "run")["steps"][1]  # the time before the interruption counts
    assert step["seconds"] >= before["seconds"] > 0
    assert {name: step["phase_seconds"][name] for name in before["phase_seconds"]} == before["phase_seconds"]


def test_a_lost_last_row_of_the_metrics_is_measured_again(quick: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(quick, tmp_path / "run"))
    metrics = metrics_in(folder)
    metrics["accuracy_matrix"] = [line[:-1] for line in metrics["accuracy_matrix"][:-1]]
    metrics["steps"].pop()
    metrics["finished"] = False
    (folder / "metrics.json").write_text(json.dumps(metrics))
    quick_run(folder, resume=True)
    assert_equal_runs(folder, quick)


@pytest.mark.parametrize("lost", ["metrics.json", "two rows"])
def test_metrics_are_never_made_up_for_steps_that_were_not_measured(lost: str, quick: Path, tmp_path: Path) -> None:
    """The classifier after step 1 is gone: the run is refused or done anew, never evaluated with a later one."""
    folder = Path(shutil.copytree(quick, tmp_path / "run"))
    if lost == "metrics.json":
        (folder / "metrics.json").unlink()
    else:
        metrics = metrics_in(folder)
        metrics |= {"accuracy_matrix": [[metrics["accuracy_matrix"][0][0]]], "finished": False}
        metrics["steps"] = metrics["steps"][:1]
        (folder / "metrics.json").write_text(json.dumps(metrics))
    try:
        done = quick_run(folder, resume=lost == "two rows")
    except UserError as error:
        assert str(folder) in str(error)
    else:
        assert without_seconds(done) == without_seconds(metrics_in(quick))


@pytest.mark.parametrize("name", ["state.efcil", "checkpoint.efcil"])
def test_a_damaged_file_of_a_stopped_run_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        quick_run(tmp_path / "run", watcher=Quiet(("step", 1, 1)))
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=f"{name} is damaged"):
        quick_run(tmp_path / "run", resume=True)


# Other streams and methods


@pytest.fixture
def domains(tmp_path: Path) -> Iterator[Path]:
    """root/<domain>/<class>/*.png with two domains of two classes."""
    root = tmp_path / "pictures"
    for domain in ("photo", "art"):
        for name in ("cat", "dog"):
            (root / domain / name).mkdir(parents=True)
            for index, image in enumerate(make_blobs([f"{domain}{name}"], 6)[0]):
                Image.fromarray(image).save(root / domain / name / f"{index}.png")
    yield root


def test_a_domain_stream_has_a_step_per_domain(domains: Path, tmp_path: Path) -> None:
    changes = ["image_size=8", "width=4", "first.epochs=1", "incremental.epochs=1"]
    command = ["run", "domains", "--data-root", str(domains), "--method", "finetune", *sets(changes)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    folder = folder_in(tmp_path / "out")
    order = json.loads((folder / "run.json").read_text())["class_order"]
    assert order == [["art/cat", "art/dog"], ["photo/cat", "photo/dog"]]
    metrics = metrics_in(folder)
    assert metrics["classes_per_task"] == [2, 2] and metrics["first_step"] == 1


def test_other_classes_on_disk_are_noticed_when_resuming(domains: Path, tmp_path: Path) -> None:
    changes = ["image_size=8", "width=4", "first.epochs=1", "incremental.epochs=1"]
    config, folder = resolve("domains", "finetune", 0, changes), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(config, "domains", folder, Quiet(("step", 1, 0)), domains)
    os.rename(domains / "art" / "cat", domains / "art" / "cow")
    with pytest.raises(UserError, match="other classes than when the run"):
        run(config, "domains", folder, Quiet(), domains, resume=True)


def test_a_warm_start_begins_with_step_0(tmp_path: Path) -> None:
    changes = ["width=4", "stem_stride=2", "data.images_per_class=3", "first.epochs=1", "incremental.epochs=1"]
    metrics = run(resolve("digits-warm4", "finetune", 0, changes), "digits-warm4", tmp_path / "run", Quiet())
    assert metrics["first_step"] == 0 and metrics["classes_per_task"] == [6, 1, 1, 1, 1]
    assert [step["step"] for step in metrics["steps"]] == [0, 1, 2, 3, 4]
    header = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    assert header.endswith("accuracy_task_0,accuracy_task_1,accuracy_task_2,accuracy_task_3,accuracy_task_4")


@pytest.mark.parametrize(("method", "changes"), [("joint", []), ("efc", ["options.drift=oracle"])])
def test_methods_that_need_earlier_images_get_them(method: str, changes: list[str], tmp_path: Path) -> None:
    config = resolve("digits-cold5", method, 0, [*QUICK[:-1], *changes])
    metrics = run(config, "digits-cold5", tmp_path / "run", Quiet())
    assert metrics["finished"] and metrics["method"] == method


def test_runs_are_told_apart_by_their_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["width=4", "stem_stride=2", "data.images_per_class=2", "stream.steps=1", "first.epochs=0"]
    for more in ([], ["--seed", "1"], ["--set", "first.lr=0.5"], ["--method", "freeze"]):
        assert main(["run", "digits-cold5", *sets(tiny), *more, "--out", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 4 and all(name.startswith("digits-cold5_") for name in names)
    assert sum("_seed1" in name for name in names) == 1 and sum("_freeze_" in name for name in names) == 1


def test_many_changes_still_make_a_folder_that_can_be_written(tmp_path: Path) -> None:
    tiny = ["width=4", "stem_stride=2", "data.images_per_class=2", "stream.steps=1", "first.epochs=0"]
    long = [f"options.rebalancing.weight_decay=0.000{digit}{'0' * 40}" for digit in range(1, 5)]
    assert main(["run", "digits-cold5", *sets([*tiny, *long]), "--out", str(tmp_path)]) == 0
    assert (folder_in(tmp_path) / "metrics.json").exists()
