"""When a checkpoint is written: as often as its interval says, after long preparations, and after the last epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TinyNet, make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.engine import checkpoint, state
from efcil.engine.context import Context
from efcil.engine.progress import Silent, Step
from efcil.errors import UserError
from efcil.methods import METHODS

FIRST, SECOND = make_blobs(["ant", "bee", "cat"], 4, size=4), make_blobs(["dog", "elk"], 5, size=4)


class Clock(Silent):
    """A clock that stands still but for training steps and writing, which take as long as a test says."""

    def __init__(self, step: float, write: float = 0.0) -> None:
        self.now, self.per_step, self.per_write = 1000.0, step, write
        self.written: list[int] = []  # epochs that were done when a checkpoint was written
        self.last = -1  # epoch in which to stop

    def monotonic(self) -> float:
        return self.now

    def step(self, step: Step) -> None:
        if step.epoch == self.last:
            raise KeyboardInterrupt
        self.now += self.per_step

    def write(self, path: Path, kind: str, tensors: Any, meta: Any) -> None:
        self.now += self.per_write
        self.written.append(meta["epochs_done"])
        state.write(path, kind, tensors, meta)


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ten epochs of one step each, with the default interval of 120 seconds, by this clock."""

    def make(clock: Clock, method: str = "finetune", **changes: Any) -> IncrementalClassifier:
        watched = type("WatchedState", (), {**vars(state), "write": staticmethod(clock.write)})
        monkeypatch.setattr(checkpoint, "time", clock)
        monkeypatch.setattr(checkpoint, "state", watched)
        settings = {"backbone": TinyNet(), "epochs": 10, "checkpoint_seconds": 120.0, "watcher": clock, **changes}
        return make_learner(method, **settings)

    return make


@pytest.mark.parametrize(
    ("seconds", "slow_disk", "written"),
    [
        (1, 0, [10]),
        (50, 0, [3, 6, 9, 10]),
        (50, 100, [3, 6, 9, 10]),  # the interval is that of training
        (119, 0, [2, 4, 6, 8, 10]),
        (120, 0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_quick_epochs_write_one_checkpoint_and_slow_ones_several(
    learner: Any, tmp_path: Path, seconds: float, slow_disk: float, written: list[int]
) -> None:
    clock = Clock(seconds, slow_disk)
    learner(clock).partial_fit(*FIRST, checkpoint=tmp_path / "checkpoint.efcil")
    assert clock.written == written


def test_the_interval_is_a_setting(learner: Any, tmp_path: Path) -> None:
    clock = Clock(1)
    learner(clock, checkpoint_seconds=4.0).partial_fit(*FIRST, checkpoint=tmp_path / "checkpoint.efcil")
    assert clock.written == [4, 8, 10]


def test_without_a_file_nothing_is_written(learner: Any) -> None:
    clock = Clock(1000)
    learner(clock).partial_fit(*FIRST)
    assert clock.written == []


def test_a_resumed_task_counts_the_seconds_that_were_spent_before(learner: Any, tmp_path: Path) -> None:
    path, clock = tmp_path / "checkpoint.efcil", Clock(50)
    clock.last = 4
    with pytest.raises(KeyboardInterrupt):
        learner(clock).partial_fit(*FIRST, checkpoint=path)
    assert state.read(path, "checkpoint")[1]["seconds"] == 150
    clock.last, clock.now, clock.written = -1, 7.0, []  # another process, whose clock begins anywhere
    resumed = learner(clock).partial_fit(*FIRST, checkpoint=path)
    assert resumed.saved_seconds_ == 150
    assert clock.written == [6, 9, 10]
    assert state.read(path, "checkpoint")[1]["seconds"] == 500


@pytest.mark.parametrize("method", ["abd", "r-dfcil"])
def test_a_trained_generator_is_written_down_at_once_but_not_in_a_first_task(
    learner: Any, tmp_path: Path, method: str
) -> None:
    clock, path = Clock(1), tmp_path / "checkpoint.efcil"
    options = {"inversion": {"iterations": 1, "batch_size": 2, "latent": 2, "width": 2}}
    classifier = learner(clock, method, options=options).partial_fit(*FIRST, checkpoint=path)
    assert clock.written == [10]
    assert not state.section("method", state.read(path, "checkpoint")[0])  # others may go on from it
    classifier.partial_fit(*SECOND, checkpoint=path)
    assert clock.written == [10, 0, 10]
    assert "generator" in state.section("method", state.read(path, "checkpoint")[0])


class GeneratorClock(Clock):
    """One for which only the training of a generator takes time, and which may stop in the middle of it."""

    def __init__(self, step: float, stop: int = -1) -> None:
        super().__init__(0.0)
        self.per_iteration, self.stop = step, stop
        self.iterations: list[int] = []

    def stage(self, task: int, stage: str, done: int = 0, total: int = 0) -> None:
        if stage == "training the generator":
            self.now += self.per_iteration
            self.iterations.append(done)
            if done == self.stop:
                raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["abd", "r-dfcil"])
@pytest.mark.parametrize("tasks", [2, 3])
def test_a_kill_while_the_generator_is_trained_loses_no_more_than_the_interval(
    learner: Any, tmp_path: Path, method: str, tasks: int
) -> None:
    """What is learnt then is bit for bit what an unbroken run learns."""
    options = {"inversion": {"iterations": 10, "batch_size": 4, "latent": 3, "width": 4}}
    lessons = [FIRST, SECOND, make_blobs(["fox"], 5, size=4)][:tasks]
    unbroken = learner(GeneratorClock(0), method, options=options, epochs=2)
    for lesson in lessons:
        unbroken.partial_fit(*lesson)
    killed = learner(GeneratorClock(0), method, options=options, epochs=2)
    for lesson in lessons[:-1]:
        killed.partial_fit(*lesson)
    killed.save(tmp_path / "before.efcil")
    path, clock = tmp_path / "checkpoint.efcil", GeneratorClock(50, stop=8)
    killed = IncrementalClassifier.load(tmp_path / "before.efcil", backbone=TinyNet())
    killed.watcher = clock
    learner(clock)  # from now on the clock of checkpoints
    with pytest.raises(KeyboardInterrupt):
        killed.partial_fit(*lessons[-1], checkpoint=path)
    assert clock.written == [checkpoint.PREPARING] * 2  # after the third and the sixth iteration
    resumed = IncrementalClassifier.load(tmp_path / "before.efcil", backbone=TinyNet())
    resumed.watcher, clock.stop, clock.iterations = clock, -1, []
    resumed.partial_fit(*lessons[-1], checkpoint=path)
    assert clock.iterations == [7, 8, 9, 10] and clock.written[-2:] == [0, 2]
    unbroken.save(tmp_path / "unbroken.efcil")
    resumed.save(tmp_path / "resumed.efcil")
    kept, _ = state.read(tmp_path / "unbroken.efcil", "classifier")
    again, _ = state.read(tmp_path / "resumed.efcil", "classifier")
    assert kept.keys() == again.keys() and all(torch.equal(kept[name], again[name]) for name in kept)


def test_a_shared_first_task_prepares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint could not hold what was made."""
    prepared: list[tuple[str, int]] = []

    def prepare(method: Any, ctx: Context) -> bool:
        prepared.append((method.name, ctx.task))
        return True

    for method in ("lwf", "adagauss"):
        assert METHODS[method].shares_first_task == (method == "lwf")
        monkeypatch.setattr(METHODS[method], "prepare", prepare)
        make_learner(method, backbone=TinyNet()).partial_fit(*FIRST).partial_fit(*SECOND)
    assert prepared == [("lwf", 1), ("adagauss", 0), ("adagauss", 1)]


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    """Of this very task, but with a tensor that the network does not have."""
    path = tmp_path / "lesson.efcil"
    make_learner(backbone=TinyNet()).partial_fit(*FIRST, checkpoint=path)
    tensors, meta = state.read(path, "checkpoint")
    state.write(path, "checkpoint", {**tensors, "model.stranger": torch.zeros(1)}, meta)
    with pytest.raises(UserError, match=r"lesson\.efcil belongs to another network; remove it to start anew"):
        make_learner(backbone=TinyNet()).partial_fit(*FIRST, checkpoint=path)
