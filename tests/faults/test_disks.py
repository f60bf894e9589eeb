"""Disks that are full or that nobody may write to: one sentence, everything older still whole, and a way on."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from small_runs import (
    arguments,
    assert_equal_runs,
    folder_in,
    metrics_in,
    mount,
    one_sentence,
    read_only,
    small_disk,
)

import efcil.bench.runs
from conftest import make_blobs, make_learner, quick_learner, write_class_folders
from efcil import IncrementalClassifier, data
from efcil.bench.campaign import campaign, cells
from efcil.bench.console import RunDisplay
from efcil.bench.results import append_result, read_results, records_folder
from efcil.cli import main
from efcil.config import DataConfig
from efcil.engine import state
from efcil.errors import CannotWrite, UserError
from efcil.teaching.store import Store

TINY = "finetune:width=4,stem_stride=2,data.images_per_class=4,stream.steps=2,first.epochs=1,incremental.epochs=1"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    assert main(arguments(out)) == 0
    return folder_in(out)


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes."""
    filler = disk / "filler"
    about = os.statvfs(disk)
    filler.write_bytes(bytes(max(0, about.f_bavail * about.f_frsize - left)))
    return filler


def test_a_disk_that_fills_while_images_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else takes the room that there was: one sentence, nothing left, and it works once there is room."""
    root = write_class_folders(tmp_path / "set", *make_blobs(["cat", "dog"], 6))
    config = DataConfig("folder", packed=str(tmp_path / "disk"))
    with small_disk(tmp_path / "disk", "400k") as disk:
        usage = shutil.disk_usage(disk)
        with monkeypatch.context() as patch, pytest.raises(CannotWrite, match=r"No space left on device.; make room"):
            patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 30))
            data.load(config, root, 128, cache_mb=0)
        assert not list(disk.glob("*.npy")) and hidden(disk) == []
        data.load(config, root, 32, cache_mb=0)
        assert len(list(disk.glob("*-32px-*.npy"))) == 1


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.name.endswith(state.PARTIAL)]


def finished_metrics(accuracy: float = 1.0) -> dict[str, Any]:
    numbers = {"per_step_accuracy": accuracy, "average_incremental_accuracy": 1.0, "average_forgetting": 0.0}
    return {
        **numbers,
        **{"plasticity": 1.0, "seconds": 1.0, "kept_bytes": 1},
        **{"steps": [{"per_step_accuracy": accuracy}], "accuracy_matrix": [[accuracy]]},
    }


@pytest.mark.parametrize("left", [0, 4096, 65536])
def test_a_model_on_a_full_disk_stays_as_it_was(left: int, tmp_path: Path) -> None:
    classifier = make_learner("lda").partial_fit(*make_blobs(["cat", "dog"]))
    with small_disk(tmp_path / "disk", "2m") as disk:
        store = Store(disk / "pets.efcil")
        state.write_text(disk / "large", "x" * 70_000)
        with store.changing():
            store.replace(classifier)
        before = store.path.read_bytes()
        assert len(before) > 65536
        filler = fill(disk, left)
        more = store.load().partial_fit(*make_blobs(["cow"]))
        full = r"(pets|0001)\.efcil cannot be written \(No space left on device\); make room\.$"
        with pytest.raises(UserError, match=full):
            store.replace(more)
        with pytest.raises(CannotWrite, match=r"pets\.efcil cannot be written \(No space left on device\); make room"):
            more.save(store.path)
        with pytest.raises(CannotWrite, match=r"large cannot be written \(No space left on device\); make room\.$"):
            state.write_text(disk / "large", "y" * 70_000)
        assert store.path.read_bytes() == before and (disk / "large").read_text() == "x" * 70_000
        assert hidden(disk) == []
        filler.unlink()
        store.replace(more)
        assert len(store.load().classes_) == 3


def test_a_record_on_a_full_disk_is_told_and_older_rows_stay(tmp_path: Path) -> None:
    first, second = cells(["digits-cold5"], ["finetune"], [0, 1])
    with small_disk(tmp_path / "disk", "64k") as disk:
        table = disk / "runs.csv"
        append_result(table, first, finished_metrics())
        rows, text = read_results(table), table.read_text()
        filler = fill(disk, 0)
        with pytest.raises(CannotWrite, match="make room"):
            append_result(table, second, finished_metrics())
        assert read_results(table) == rows and table.read_text() == text
        filler.write_bytes(bytes(filler.stat().st_size - 4096))  # room for the record, none for the table
        with pytest.raises(CannotWrite, match=r"runs\.csv cannot be written"):
            append_result(table, second, finished_metrics())
        assert table.read_text() == text and len(read_results(table)) == 2
        assert hidden(disk) == [] and len(list(records_folder(table).glob("*.json"))) == 2
        filler.unlink()
        assert campaign([second], tmp_path / "runs", table, None, 1)[0].status == "done"
        assert len(table.read_text().splitlines()) == 3  # a campaign that finds all done puts the table right


@pytest.mark.slow
def test_a_run_on_a_disk_that_is_full_again_and_again_ends_bit_equal(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk grows by a little each time, so that it is full in each kind of file that a run writes."""
    told: list[str] = []
    known: list[Any] = []
    with small_disk(tmp_path / "disk", "8k") as disk:
        for kilobytes in range(8, 4000, 120):
            mount("-o", f"remount,size={kilobytes}k", str(disk))
            capsys.readouterr()
            code = main(arguments(disk, "--resume"))
            if code == 0:
                break
            said = one_sentence(capsys.readouterr().err)
            assert code == 2 and said.endswith("make room. Then the same command with --resume goes on."), said
            told.append(Path(said.partition(" cannot be written (No space left on device)")[0]).name)
            for folder in disk.glob("digits*"):
                assert hidden(folder) == []
                if (folder / "metrics.json").exists():
                    matrix = [[value for value in row if value] for row in metrics_in(folder)["accuracy_matrix"]]
                    assert matrix[: len(known)] == known
                    known = matrix
        assert code == 0
        assert_equal_runs(folder_in(disk), unbroken)
    assert "checkpoint.efcil" in told and len(set(told)) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "function", "file"),
    [
        (IncrementalClassifier, "save", "state.efcil"),
        (efcil.bench.runs, "copy", "step-2.efcil"),
        (efcil.bench.runs, "write_metrics", "metrics.csv"),
        (RunDisplay, "epoch", "log.txt"),
    ],
)
def test_a_disk_that_is_full_just_then_loses_nothing(
    where: Any,
    function: str,
    file: str,
    unbroken: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Full from one moment of the second step on, of each kind of file in turn."""
    original = getattr(where, function)

    def on_a_full_disk(*inputs: Any) -> Any:
        (folder,) = disk.glob("digits*")
        if len(metrics_in(folder)["steps"]) == 1 and not filler.exists():
            log = folder / "log.txt"
            rest = -log.stat().st_size % 4096  # of the block that the log is in
            log.write_bytes(log.read_bytes() + b"\n" * rest)
            fill(disk, 0)
        return original(*inputs)

    with small_disk(tmp_path / "disk", "4m") as disk:
        filler = disk / "filler"
        monkeypatch.setattr(where, function, on_a_full_disk)
        if function == "write_metrics":  # not of the beginning, when there are none yet
            monkeypatch.setattr(where, function, lambda *i: (on_a_full_disk if i[1]["steps"] else original)(*i))
        assert main(arguments(disk)) == 2
        said = one_sentence(capsys.readouterr().err)
        assert f"{file} cannot be written (No space left on device); make room. Then the same command" in said, said
        assert len(metrics_in(folder_in(disk))["steps"]) == 1 and hidden(disk) == []
        monkeypatch.undo()
        filler.unlink()
        assert main(arguments(disk, "--resume")) == 0
        assert_equal_runs(folder_in(disk), unbroken)


@pytest.mark.slow
def test_a_campaign_whose_results_are_on_a_full_disk_finishes_its_runs(tmp_path: Path) -> None:
    (cell,) = cells(["digits-cold5"], [TINY], [0])
    with small_disk(tmp_path / "disk", "16k") as disk:
        filler = fill(disk, 0)
        table = disk / "results" / "runs.csv"
        (job,) = campaign([cell], tmp_path / "runs", table, None, workers=1)
        assert job.status == "failed" and job.message.startswith("it is finished, but not in the results: ")
        assert "(No space left on device); make room." in job.message
        stamp = (job.folder / "state.efcil").stat().st_mtime_ns
        filler.unlink()
        (job,) = campaign([cell], tmp_path / "runs", table, None, workers=1)
        assert job.status == "done" and list(read_results(table)) == [cell.identity]
        assert (job.folder / "state.efcil").stat().st_mtime_ns == stamp  # nothing was learnt twice


def test_a_read_only_folder_is_told_and_what_is_in_it_can_be_read(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", unbroken.parent, out], check=True)
    images, labels = make_blobs(["cat", "dog"])
    quick_learner(first={"epochs": 1}).partial_fit(images, labels).save(out / "pets.efcil")
    (out / "photos" / "cow").mkdir(parents=True)
    table = out / "runs.csv"
    (cell,) = cells(["digits-cold5"], [TINY], [0])
    append_result(table, cell, finished_metrics())
    with read_only(out):
        assert main(arguments(out, "--resume")) == 0  # finished: nothing has to be written
        capsys.readouterr()
        assert main(arguments(out / "new")) == 2
        said = one_sentence(capsys.readouterr().err)
        assert "cannot be written (Read-only file system); choose another place." in said and str(out / "new") in said
        bench = ["bench", "--presets", "digits-cold5", "--methods", "finetune", "--results", str(tmp_path / "none.csv")]
        assert main([*bench, "--out", str(out)]) == 2
        assert "(Read-only file system); choose another place." in one_sentence(capsys.readouterr().err)
        with pytest.raises(CannotWrite, match=r"pets\.efcil cannot be written \(Read-only file system\)"):
            quick_learner(first={"epochs": 1}).partial_fit(images, labels).save(out / "pets.efcil")
        with pytest.raises(CannotWrite, match=r"Read-only file system"), Store(out / "pets.efcil").changing():
            pass
        assert len(state.read(out / "pets.efcil", "classifier")[1]["classes"]) == 2
        assert list(read_results(table)) == [cell.identity]
        with pytest.raises(CannotWrite, match=r"Read-only file system"):
            append_result(table, cell, finished_metrics(2.0))


@pytest.mark.slow
def test_a_run_whose_folder_becomes_read_only_goes_on_when_it_is_not(
    unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk becomes read-only in the middle, as the system makes it after an error."""
    saved = IncrementalClassifier.save

    def save(self: IncrementalClassifier, path: Any) -> None:
        saved(self, path)
        if len(self.tasks_) == 2:
            locked.enter_context(read_only(disk))

    with small_disk(tmp_path / "disk", "8m") as disk, ExitStack() as locked:
        monkeypatch.setattr(IncrementalClassifier, "save", save)
        assert main(arguments(disk)) == 2
        said = one_sentence(capsys.readouterr().err)
        assert "cannot be written (Read-only file system)" in said and "--resume goes on" in said
        monkeypatch.undo()
        locked.close()
        assert main(arguments(disk, "--resume")) == 0
        assert_equal_runs(folder_in(disk), unbroken)
