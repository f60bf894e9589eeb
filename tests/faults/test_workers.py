"""Runs that are killed, run out of memory, diverge or meet a broken image; clocks that jump; two at once."""

from __future__ import annotations

import fcntl
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import arguments, assert_equal_runs, folder_in, metrics_in, one_sentence

from conftest import cli_command, cli_environment, make_blobs, make_learner, write_class_folders
from efcil.bench.campaign import Job, campaign, cells
from efcil.bench.estimates import Estimator
from efcil.bench.results import append_result, read_results
from efcil.cli import main
from efcil.engine import state
from efcil.engine.locks import locked
from efcil.engine.trainer import TrainingError
from efcil.errors import Busy
from efcil.methods import METHODS

TINY = "width=4,stem_stride=2,data.images_per_class=4,stream.steps=2,first.epochs=1,incremental.epochs=1"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    assert main(arguments(out)) == 0
    return folder_in(out)


# A worker that is killed


@pytest.mark.slow
def test_a_campaign_whose_worker_is_killed_says_so_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other runs are not touched."""
    long = f"finetune:{TINY},first.epochs=120,checkpoint_seconds=0"  # still at work when it is looked at
    todo = cells(["digits-cold5"], [long, f"finetune:{TINY}"], [0])
    killed: list[int] = []
    monkeypatch.setattr("efcil.bench.campaign.POLL_SECONDS", 0.02)  # to catch it in its middle

    def kill(jobs: list[Job]) -> None:
        process = jobs[0].process
        if not killed and process is not None and (jobs[0].folder / "checkpoint.efcil").exists():
            os.kill(process.pid, signal.SIGKILL)
            process.wait()  # from here on nobody writes another
            killed.append(state.read(jobs[0].folder / "checkpoint.efcil", "checkpoint")[1]["epochs_done"])

    (tmp_path / "runs" / todo[0].name).mkdir(parents=True)
    (tmp_path / "runs" / todo[0].name / "output.txt").write_text("efcil: what went wrong last year\n")
    first, second = campaign(todo, tmp_path / "runs", tmp_path / "runs.csv", None, workers=1, watch=kill)
    assert (first.status, second.status) == ("failed", "done")
    assert first.message.startswith("its process was ended by SIGKILL (by somebody, or by the system when memory ran")
    assert list(read_results(tmp_path / "runs.csv")) == [second.cell.identity]
    assert killed[0] > 0 and not metrics_in(first.folder)["finished"]

    (again,) = campaign(todo[:1], tmp_path / "runs", tmp_path / "runs.csv", None, workers=1)
    assert again.status == "done" and len(read_results(tmp_path / "runs.csv")) == 2
    log = (first.folder / "log.txt").read_text()
    epochs = [int(number) for number in re.findall(r"task 1 epoch (\d+)/120", log)]
    assert len(epochs) - len(set(epochs)) <= 1  # no more than the epoch that was not yet written down was done twice


# Out of memory

LIMITED = """
import resource, sys
from efcil.cli import main
words = sys.argv[1:]
assert main([*words, "--out", words[words.index("--out") + 1] + "-small", "--set", "image_size=8"]) == 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # everything is loaded by now
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20, resource.RLIM_INFINITY))
sys.exit(main(words))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_a_run_without_enough_memory_says_so_and_goes_on_with_more(tmp_path: Path) -> None:
    """A layer of its network makes 33 MB at a time, and a step more than a gigabyte."""
    changes = [*TINY.split(",")[2:], "width=32", "data.images_per_class=2", "first.rotation=false", "workers=0"]
    words = ["run", "digits-cold5", "--method", "finetune", "--set", "image_size=256", "--out", str(tmp_path / "out")]
    words += [word for change in changes for word in ("--set", change)]
    environment = cli_environment()
    limited = [sys.executable, "-c", LIMITED, *words]
    done = subprocess.run(limited, capture_output=True, text=True, env=environment, check=False, timeout=1800)
    assert done.returncode == 1, done.stderr
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("efcil: there is not enough memory;") and said.endswith("with --resume goes on."), said
    assert main([*words, "--resume"]) == 0
    assert metrics_in(folder_in(tmp_path / "out"))["finished"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.\nmore"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    ],
    ids=["python", "torch", "gpu"],
)
def test_every_way_to_say_out_of_memory_is_the_same_sentence(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(METHODS["finetune"], "before_task", lambda self, ctx: (_ for _ in ()).throw(error))
    words = ["run", "digits-cold5", "--method", "finetune", "--out", str(tmp_path / "out")]
    assert main([*words, *(word for change in TINY.split(",") for word in ("--set", change))]) == 1
    assert one_sentence(capsys.readouterr().err) == (
        "there is not enough memory; take a smaller batch_size, width or cache_mb. "
        "Then the same command with --resume goes on."
    )
    assert not (tmp_path / "out").exists()  # nothing was learnt, so nothing was begun


# A loss that is no number


def test_weights_that_stop_being_numbers_in_the_last_step_are_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loss shows it, for there is no next step; the checkpoint of the epoch before stays."""
    path = tmp_path / "checkpoint.efcil"
    images, labels = make_blobs(["cat", "dog"])
    whole = make_learner(epochs=3).partial_fit(images, labels)
    broken = [True]

    def after_epoch(self: Any, ctx: Any) -> None:
        if broken and path.exists() and state.read(path, "checkpoint")[1]["epochs_done"] == 2:
            with torch.no_grad():
                ctx.model.newest[0, 0] = math.nan

    monkeypatch.setattr(METHODS["finetune"], "after_epoch", after_epoch)
    for _ in range(2):  # and the same sentence again for whoever tries again
        with pytest.raises(TrainingError, match="The network stopped giving numbers at the end of task 1; nothing of"):
            make_learner(epochs=3).partial_fit(images, labels, checkpoint=path)
        assert state.read(path, "checkpoint")[1]["epochs_done"] == 2
    broken.clear()
    again = make_learner(epochs=3).partial_fit(images, labels, checkpoint=path)
    assert np.array_equal(again.decision_function(images), whole.decision_function(images))


def test_a_run_whose_loss_is_no_number_says_so_and_keeps_what_it_has(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = METHODS["efc++"].loss

    def loss(self: Any, ctx: Any, batch: Any) -> Any:
        terms = original(self, ctx, batch)
        return {name: term * math.nan for name, term in terms.items()} if ctx.task == 2 else terms

    monkeypatch.setattr(METHODS["efc++"], "loss", loss)
    assert main(arguments(tmp_path)) == 1
    said = one_sentence(capsys.readouterr().err)
    assert said.startswith("The loss stopped being a number in task 3, epoch 1 (") and "Lower the learning rate" in said
    assert len(metrics_in(folder_in(tmp_path))["steps"]) == 2
    monkeypatch.undo()
    assert main(arguments(tmp_path, "--resume")) == 0
    assert_equal_runs(folder_in(tmp_path), unbroken)


# An image that breaks while it is being learnt


@pytest.mark.parametrize("how", ["cut off", "gone"])
def test_an_image_that_breaks_in_the_middle_of_an_epoch_is_named_and_the_run_goes_on(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_class_folders(tmp_path / "photos", *make_blobs(["ant", "bee", "cat", "dog"], 8, size=16))
    changes = ["width=4", "image_size=16", "first.epochs=2", "incremental.epochs=3", "checkpoint_seconds=0"]
    changes += ["cache_mb=0", "workers=1"]

    def words(out: Path) -> list[str]:
        sets = [word for change in changes for word in ("--set", change)]
        where = ["--data-root", str(root), "--out", str(out)]
        return ["run", "folder-cold2", "--method", "finetune", *sets, *where]

    assert main(words(tmp_path / "whole")) == 0
    broken: list[Path] = []
    out = tmp_path / "out"

    def breaks(self: Any, ctx: Any) -> None:
        """After the first epoch of the second task one of its images is damaged on disk."""
        if ctx.task == 1 and not broken:
            path = Path(ctx.images.source.paths[int(ctx.images.rows[0])])
            broken.append(path)
            shutil.copy2(path, tmp_path / "copy.png")
            if how == "gone":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:100])

    monkeypatch.setattr(METHODS["finetune"], "after_epoch", breaks)
    assert main(words(out)) == 2
    said = one_sentence(capsys.readouterr().err)
    assert str(broken[0]) in said, said
    folder = next(out.iterdir())
    assert len(metrics_in(folder)["steps"]) == 1
    assert state.read(folder / "checkpoint.efcil", "checkpoint")[1]["epochs_done"] == 1
    assert main([*words(out), "--resume"]) == 2  # it is still broken
    assert len(metrics_in(folder)["steps"]) == 1
    monkeypatch.undo()
    shutil.copy2(tmp_path / "copy.png", broken[0])  # from a copy, with its time
    assert main([*words(out), "--resume"]) == 0
    whole = next((tmp_path / "whole").iterdir())
    assert metrics_in(folder)["accuracy_matrix"] == metrics_in(whole)["accuracy_matrix"]
    assert (folder / "state.efcil").read_bytes() == (whole / "state.efcil").read_bytes()


# A clock that jumps


class Jumping:
    """A clock that goes an hour forth or back every time somebody looks."""

    def __init__(self, real: Callable[[], float]) -> None:
        self.real, self.rng = real, np.random.default_rng(0)

    def __call__(self) -> float:
        return self.real() + float(self.rng.choice([-3600.0, 3600.0, 0.0]))


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, Jumping(getattr(time, name)))
    monkeypatch.setattr("efcil.engine.plan.clock", Jumping(time.perf_counter))
    yield
    monkeypatch.undo()


def test_a_clock_that_jumps_moves_no_number_and_no_time_is_negative(
    unbroken: Path, tmp_path: Path, jumping: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*arguments(tmp_path), "--set", "checkpoint_seconds=60"]) == 0
    monkeypatch.undo()
    folder = folder_in(tmp_path)
    metrics, expected = metrics_in(folder), metrics_in(unbroken)
    assert metrics["accuracy_matrix"] == expected["accuracy_matrix"]
    times = [step["seconds"] for step in metrics["steps"]]
    times += [value for step in metrics["steps"] for value in step["phase_seconds"].values()]
    assert min(times) >= 0 and metrics["seconds"] >= 0
    assert_same_tensors(folder / "state.efcil", unbroken / "state.efcil")


def assert_same_tensors(path: Path, other: Path) -> None:
    tensors, expected = (state.read(file, "classifier")[0] for file in (path, other))
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())


def test_a_clock_that_went_back_does_not_put_checkpoints_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e6]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(METHODS["finetune"], "after_epoch", lambda self, ctx: now.__setitem__(0, 0.0))
    written: list[int] = []
    original = state.write
    monkeypatch.setattr(state, "write", lambda *inputs: (written.append(inputs[3]["epochs_done"]), original(*inputs)))
    images, labels = make_blobs(["cat", "dog"])
    learner = make_learner(epochs=3, checkpoint_seconds=1e4)
    learner.partial_fit(images, labels, checkpoint=tmp_path / "checkpoint.efcil")
    assert written == [1, 3]  # at once, and at the end


def test_estimates_outlive_a_clock_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(range(10**6, 0, -1))
    monkeypatch.setattr("efcil.engine.plan.clock", lambda: float(next(steps)))
    (cell,) = cells(["digits-cold5"], [f"finetune:{TINY}"], [0])
    seconds = Estimator({}, None).estimate(cell).seconds
    assert seconds is not None and 0 < seconds < 1


# Two at once


@pytest.mark.slow
def test_of_two_processes_that_begin_the_same_run_at_once_one_does_it(tmp_path: Path) -> None:
    words = arguments(tmp_path)
    words[words.index("first.epochs=2")] = "first.epochs=40"  # long enough that the other is there meanwhile
    started = [
        subprocess.Popen(
            cli_command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=cli_environment()
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=1800)[1] for process in started]
    codes = [process.returncode for process in started]
    assert sorted(codes) == [0, 2], said
    refused = one_sentence(said[codes.index(2)])
    # The last is for one that came so late that the other had done it
    told = ("Another process is at work on the run in", "was begun before", "is already finished")
    assert any(words in refused for words in told), refused
    assert metrics_in(folder_in(tmp_path))["finished"]


def appended(table: Path, seeds: list[int]) -> None:
    numbers = {"per_step_accuracy": 1.0, "average_incremental_accuracy": 1.0, "average_forgetting": 0.0}
    metrics: dict[str, Any] = {**numbers, "plasticity": 1.0, "seconds": 1.0, "kept_bytes": 1}
    metrics |= {"steps": [{"per_step_accuracy": 1.0}], "accuracy_matrix": [[1.0]]}
    for cell in cells(["digits-cold5"], ["finetune"], seeds):
        append_result(table, cell, metrics)


def test_processes_that_write_the_same_results_lose_no_row(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    shares = [list(range(first, 24, 4)) for first in range(4)]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=appended, args=(table, share)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join(1800)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(read_results(table)) == 24
    assert len(table.read_text().splitlines()) == 25  # whoever wrote last had seen all records
    for record in table.with_suffix(".records").glob("*.json"):
        json.loads(record.read_text())


def test_a_lock_whose_file_was_removed_is_held_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a start that failed and took its folder away while another waited."""
    path, events = tmp_path / "lock", []
    entered, waits, flock = threading.Event(), threading.Event(), fcntl.flock

    def noting(file: Any, how: int) -> None:
        if threading.current_thread() is thread:
            waits.set()  # it has opened the file
        flock(file, how)

    def wait() -> None:
        with locked(path):
            events.append("second")
            with pytest.raises(Busy, match="held"), locked(path, "held"):  # it is the lock that all others see
                events.append("third")
            entered.set()

    thread = threading.Thread(target=wait)
    monkeypatch.setattr(fcntl, "flock", noting)
    with locked(path, "held"):
        thread.start()
        assert waits.wait(600)  # for the file that goes
        time.sleep(0.1)
        path.unlink()
        events.append("first")
    assert entered.wait(600)
    thread.join()
    assert events == ["first", "second"]
