"""Trackers hear what a run measures, with the real packages, and can neither change nor stop it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_campaign import QUICK

from conftest import cli_command, cli_environment
from efcil.bench import tracking
from efcil.bench.metrics import NAMES
from efcil.bench.runs import Unwatched
from efcil.bench.tracking import About, Tracked, check_trackers
from efcil.cli import main
from efcil.engine.progress import Step
from efcil.errors import Notice, UserError

RUN = ["run", "digits-cold5", "--method", "finetune", "--seed", "3"]
RUN += [part for change in QUICK.split(",") for part in ("--set", change)]
LOSSES = {"loss/task1/ce", "loss/task2/ce"}
METRICS = {f"metrics/{name}" for name in (*NAMES, "seconds")}


class Listener:
    """A tracker that writes down what it hears; it fails at the losses of the epoch that it is told."""

    def __init__(self, new: bool = True, fails_at: int = 0) -> None:
        self.new, self.fails_at = new, fails_at
        self.heard: list[Any] = []

    def losses(self, task: int, epoch: int, losses: Mapping[str, float]) -> None:
        if epoch == self.fails_at:
            raise ConnectionError("the server\nis gone")
        self.heard.append((task, epoch, dict(losses)))

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        self.heard.append((step, numbers["per_step_accuracy"]))

    def close(self, finished: bool) -> None:
        self.heard.append("finished" if finished else "cut off")


def step_numbers(step: int, accuracy: float) -> dict[str, float]:
    return {"step": step, "seconds": 1.0, **dict.fromkeys(NAMES, 0.0), "per_step_accuracy": accuracy}


def tracked(folder: Path, monkeypatch: pytest.MonkeyPatch, **listeners: Listener) -> Tracked:
    monkeypatch.setattr(tracking, "open_tracker", lambda name, about: listeners[name])
    return Tracked(Unwatched(), listeners, About(folder, "digits-cold5", "finetune", 0, {}))


def test_trackers_hear_epochs_and_steps_and_earlier_steps_if_they_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = Listener(), Listener(new=False)
    earlier = {"steps": [step_numbers(1, 90.0)]}
    watcher = tracked(tmp_path, monkeypatch, mlflow=new, wandb=old)
    watcher.begin(earlier, [10, 10])
    watcher.epoch(Step(1, 0, 5, {"ce": 0.5}, 10))
    watcher.finished_step({"steps": [*earlier["steps"], step_numbers(2, 60.0)]})
    watcher.ended(finished=True)
    assert new.heard == [(1, 90.0), (2, 1, {"ce": 0.5}), (2, 60.0), "finished"]
    assert old.heard == new.heard[1:]


def test_a_tracker_that_is_open_is_closed_when_the_next_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Listener()
    watcher = tracked(tmp_path, monkeypatch, mlflow=first)  # knows of no wandb
    watcher.names = ["mlflow", "wandb"]
    with pytest.raises(KeyError):
        watcher.begin({"steps": []}, [10])
    watcher.ended(finished=False)
    assert first.heard == ["cut off"]


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, sound = Listener(fails_at=2), Listener()
    watcher = tracked(tmp_path, monkeypatch, mlflow=failing, wandb=sound)
    watcher.begin({"steps": []}, [10])
    watcher.epoch(Step(0, 0, 5, {"ce": 0.5}, 10))
    with pytest.warns(Notice, match=r"mlflow failed and is left out, the run goes on \(the server is gone\)"):
        watcher.epoch(Step(0, 1, 5, {"ce": 0.4}, 10))
    watcher.epoch(Step(0, 2, 5, {"ce": 0.3}, 10))
    watcher.ended(finished=False)
    assert failing.heard == [(1, 1, {"ce": 0.5})]
    assert [entry[1] for entry in sound.heard[:-1]] == [1, 2, 3] and sound.heard[-1] == "cut off"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_one_sentence_before_anything_is_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda module: None)
    for command in (RUN, ["bench", "--presets", "digits-cold5", "--methods", "finetune"]):
        assert main([*command, "--track", name, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert f"{name} is not installed; run: pip install 'efcil[{name}]'" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_wrong_name_has_a_near_one() -> None:
    with pytest.raises(UserError, match="no tracker called 'mlfow'; did you mean mlflow"):
        check_trackers(["tensorboard", "mlfow"])
    assert check_trackers(["wandb", "wandb"]) == ["wandb"]


# The real packages


def run(out: Path, *trackers: str, **environment: str) -> tuple[Path, dict[str, Any]]:
    """A small run in a process of its own; returns its folder and metrics."""
    words = [word for name in trackers for word in ("--track", name)]
    done = subprocess.run(
        cli_command(*RUN, "--out", out, "--json", *words),
        **{"capture_output": True, "text": True, "env": {**cli_environment(), **environment}, "check": False},
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    return Path(metrics.pop("folder")), metrics


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main([*RUN, "--out", str(tmp_path), "--track", "tensorboard"]) == 0
    (folder,) = tmp_path.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == LOSSES | METRICS
    for name in NAMES:
        written = [(event.step, event.value) for event in events.Scalars(f"metrics/{name}")]
        assert written == [(step["step"], pytest.approx(step[name], rel=1e-5)) for step in metrics["steps"]]
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "finetune on digits-cold5, seed 3" in text and "width: 8" in text


@pytest.mark.slow  # importing these packages takes seconds
def test_mlflow_on_files(tmp_path: Path) -> None:
    store = {"MLFLOW_TRACKING_URI": f"file://{tmp_path / 'mlruns'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    folder, metrics = run(tmp_path / "out", "mlflow", **store, MLFLOW_EXPERIMENT_NAME="mine")
    identity = json.loads((folder / "tracking.json").read_text())["mlflow"]
    (run_folder,) = tmp_path.glob(f"mlruns/*/{identity}")
    assert "name: mine" in (run_folder.parent / "meta.yaml").read_text()
    assert "status: 3" in (run_folder / "meta.yaml").read_text()  # finished
    for name in NAMES:
        lines = [line.split() for line in (run_folder / "metrics" / "metrics" / name).read_text().splitlines()]
        assert [(int(step), float(value)) for _, value, step in lines] == [
            (s["step"], s[name]) for s in metrics["steps"]
        ]
    losses = {str(path.relative_to(run_folder / "metrics")) for path in run_folder.glob("metrics/loss/*/*")}
    assert losses == LOSSES
    assert (run_folder / "params" / "classifier.width").read_text() == "8"
    assert (run_folder / "tags" / "mlflow.runName").read_text() == folder.name
    assert [(run_folder / "tags" / name).read_text() for name in ("method", "seed")] == ["finetune", "3"]


@pytest.mark.slow  # making the tables of an SQLite store takes ten seconds
def test_mlflow_as_it_comes_for_a_campaign(tmp_path: Path) -> None:
    """Two runs at once in one SQLite file beside the run folders."""
    asked = ["--presets", "digits-cold5", "--methods", f"finetune:{QUICK}", "--seeds", "0-1", "--workers", "2"]
    where = ["--out", tmp_path, "--results", tmp_path / "r.csv", "--track", "mlflow"]
    done = subprocess.run(cli_command("bench", *asked, *where), env=cli_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    store = sqlite3.connect(tmp_path / "mlflow.db")
    assert store.execute("select status from runs").fetchall() == [("FINISHED",)] * 2
    assert sorted(store.execute("select value from tags where key = 'seed'").fetchall()) == [("0",), ("1",)]
    assert {key for (key,) in store.execute("select distinct key from metrics")} == LOSSES | METRICS
    store.close()


READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
data, place, whole = open(sys.argv[1], "rb").read(), 7, b""  # LevelDB's log format, after seven bytes of its own
history, config, about = [], {}, {}
while place + 7 <= len(data):
    left = 32768 - place % 32768  # of the block
    if left < 7:
        place += left
        continue
    _, length, kind = struct.unpack("<IHB", data[place : place + 7])
    whole += data[place + 7 : place + 7 + length]
    place += 7 + length
    if kind not in (1, 4):  # more of this record follows
        continue
    record = wandb_internal_pb2.Record.FromString(whole)
    whole, run = b"", record.run
    if record.HasField("history"):
        items = record.history.item
        history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    if record.HasField("run"):
        about = {"name": run.display_name, "project": run.project, "id": run.run_id}
        config |= {item.key: json.loads(item.value_json) for item in run.config.update}
print(json.dumps({"history": history, "config": config, **about}))
"""


@pytest.mark.slow
def test_wandb_offline_and_without_an_account(tmp_path: Path) -> None:
    folder, metrics = run(tmp_path / "out", "wandb", WANDB_MODE="offline", WANDB__SERVICE_WAIT="600")
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    read = subprocess.run([sys.executable, "-c", READ_WANDB, file], capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    heard = json.loads(read.stdout)
    assert (heard["name"], heard["project"]) == (folder.name, "efcil")
    assert heard["id"] == json.loads((folder / "tracking.json").read_text())["wandb"]
    assert (heard["config"]["seed"], heard["config"]["classifier"]["width"]) == (3, 8)
    steps = [line for line in heard["history"] if "metrics/per_step_accuracy" in line]
    assert [(line["step"], line["metrics/plasticity"]) for line in steps] == [
        (step["step"], step["plasticity"]) for step in metrics["steps"]
    ]
    assert {name for line in heard["history"] for name in line if name.startswith("loss/")} == LOSSES


@pytest.mark.slow
def test_wandb_asks_nobody(tmp_path: Path) -> None:
    environment = {**cli_environment(), "HOME": str(tmp_path), "WANDB_API_KEY": ""}
    command = cli_command(*RUN, "--out", tmp_path / "out", "--track", "wandb")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "run `wandb login`, or set WANDB_MODE=offline" in done.stderr
    assert not (tmp_path / "out").exists()
