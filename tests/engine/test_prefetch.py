"""Images are read, augmented and converted ahead by as many threads or processes as asked for, with the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import make_blobs, make_learner, write_images
from efcil import IncrementalClassifier
from efcil.data import images, prefetch
from efcil.data.augment import AUGMENTATIONS, crop_flip
from efcil.data.prefetch import from_processes, prefetched, worth_processes
from efcil.engine.preprocessing import Preprocessing
from efcil.errors import UserError

METHODS: dict[str, dict[str, Any]] = {
    "finetune": {},
    "efc": {"prototype_batch": 5},
    "efc++": {"rebalancing": {"epochs": 2}},
    "apr": {"pseudo_batch": 3, "pseudo_iterations": 1, "attack_iterations": 1, "attack_limit": 0, "map_epochs": 1},
}


def learnt(folder: Path, method: str, **changes: Any) -> IncrementalClassifier:
    """A classifier after two tasks of files, two epochs each."""
    training = {"epochs": 2, "batch_size": 4}
    settings = {"augmentation": "crop_flip", "image_size": 8, "first": training, "incremental": training}
    classifier = make_learner(method, options=METHODS[method], **{**settings, "cache_mb": 0, **changes})
    for task, classes in enumerate((["cat", "dog"], ["ant", "bee"])):
        pixels, labels = make_blobs(classes, 5)
        classifier.partial_fit(write_images(folder / str(task), pixels), labels)
    return classifier


def weights(classifier: IncrementalClassifier) -> list[Tensor]:
    assert classifier._model is not None
    return [*classifier._model.state_dict().values(), *classifier._method.state().values()]


@pytest.mark.parametrize("method", METHODS)
def test_neither_threads_nor_processes_nor_cache_move_a_number(method: str, tmp_path: Path) -> None:
    expected = weights(learnt(tmp_path, method, workers=1))
    processes = {"workers": 2, "worker_processes": True}
    for changes in ({"workers": 0}, {"workers": 4}, {"workers": 4, "cache_mb": 2048}, processes):
        other = weights(learnt(tmp_path, method, **changes))
        assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """The threads that decode, augment and convert, and how often."""
    seen: dict[str, Counter[str]] = {"decode": Counter(), "augment": Counter(), "convert": Counter()}

    def noted(what: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            seen[what][threading.current_thread().name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(images, "decode", noted("decode", images.decode))
    monkeypatch.setitem(AUGMENTATIONS, "crop_flip", noted("augment", crop_flip))
    monkeypatch.setattr(Preprocessing, "normalised", noted("convert", Preprocessing.normalised))
    return seen


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_read_or_augmented_where_the_step_is_computed(
    method: str, tmp_path: Path, readers: dict[str, Counter[str]]
) -> None:
    learnt(tmp_path, method, workers=2)
    for threads in readers.values():
        assert threads and threading.current_thread().name not in threads


def test_without_threads_the_step_does_it_itself(tmp_path: Path, readers: dict[str, Counter[str]]) -> None:
    learnt(tmp_path, "efc", workers=0)
    assert all(set(threads) == {threading.current_thread().name} for threads in readers.values())


def test_files_are_decoded_once_where_they_fit_and_in_every_epoch_where_not(
    tmp_path: Path, readers: dict[str, Counter[str]]
) -> None:
    learnt(tmp_path, "finetune", cache_mb=2048)
    assert readers["decode"].total() == 20
    readers["decode"].clear()
    learnt(tmp_path, "finetune", cache_mb=0)
    # Of both tasks two epochs and two looks at the network, once more the first to measure its colours
    assert readers["decode"].total() == 2 * (2 * 10 + 2 * 10) + 10


def test_predicting_decodes_each_file_once_and_ahead(tmp_path: Path, readers: dict[str, Counter[str]]) -> None:
    classifier = learnt(tmp_path, "finetune", workers=3)
    pixels, _ = make_blobs(["cat"], 50)
    paths = write_images(tmp_path / "new", pixels)
    expected = classifier.predict(pixels)
    readers["decode"].clear()
    assert (classifier.predict(paths) == expected).all()
    assert readers["decode"].total() == 50 and threading.current_thread().name not in readers["decode"]


def test_threads_of_the_queue_compute_with_one_thread_each_and_leave_the_others_as_they_were() -> None:
    torch.set_num_threads(2)
    try:
        assert list(prefetched([torch.get_num_threads] * 3, 2, 1)) == [1, 1, 1]
        assert torch.get_num_threads() == 2
        told: list[int] = []
        later = threading.Thread(target=lambda: told.append(torch.get_num_threads()))
        later.start(), later.join()
        assert told == [2]
    finally:
        torch.set_num_threads(1)


def test_processes_do_the_work_and_are_gone_when_nobody_wants_the_rest() -> None:
    def told(number: int) -> Tensor:
        return torch.tensor([number, os.getpid(), torch.get_num_threads()])

    results = from_processes([partial(told, number) for number in range(40)], 2, 1)
    found = [next(results).tolist() for _ in range(30)]
    assert [number for number, _, _ in found] == list(range(30)) and {threads for _, _, threads in found} == {1}
    processes = {pid for _, pid, _ in found}
    assert os.getpid() not in processes
    results.close()  # type: ignore[attr-defined]
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


def test_dropout_draws_the_same_whoever_reads(tmp_path: Path) -> None:
    def learnt_with(**changes: Any) -> list[Tensor]:
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Dropout(0.5))
        backbone.feature_dim = 8  # type: ignore[assignment]
        training = {"epochs": 2, "batch_size": 2}
        classifier = make_learner(backbone=backbone, image_size=8, cache_mb=0, first=training, **changes)
        pixels, labels = make_blobs(["cat", "dog"], 5)
        return weights(classifier.partial_fit(write_images(tmp_path, pixels), labels))

    threads, processes = learnt_with(workers=2), learnt_with(workers=2, worker_processes=True)
    assert all(torch.equal(a, b) for a, b in zip(threads, processes, strict=True))


def test_processes_are_left_alone_where_they_do_not_pay_or_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worth_processes(4, 2)
    assert not worth_processes(3, 2) and not worth_processes(4, 0)
    monkeypatch.setattr(prefetch.sys, "platform", "darwin")
    assert not worth_processes(4, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_processes_end_with_the_one_that_they_work_for() -> None:
    script = """
import os, time, torch
from functools import partial
from efcil.data.prefetch import from_processes
results = from_processes([lambda: torch.tensor([os.getpid()])] * 8, 1, 1)
print(int(next(results)), flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = Path(f"/proc/{int(parent.stdout.readline())}")
    assert child.exists()
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 600
    while alive(child) and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive(child)


def alive(process: Path) -> bool:
    """Whether it still runs; one that has ended may be listed until somebody asks what became of it."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_error_in_a_process_is_raised_as_it_is() -> None:
    def spoilt() -> Tensor:
        raise UserError("bad.jpg is no image.")

    with pytest.raises(UserError, match=r"^bad\.jpg is no image\.$"):
        list(from_processes([partial(torch.zeros, 1), spoilt], 1, 1))


def test_a_process_that_is_killed_is_told_in_one_sentence() -> None:
    killed: Any = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    with pytest.raises(UserError, match=r"is gone.*use fewer workers") as caught:
        list(from_processes([partial(torch.zeros, 1), killed], 1, 1))
    assert "\n" not in str(caught.value)


def test_learning_on_the_cpu_wakes_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def woken(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a GPU was asked for something")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, woken)
    make_learner("efc++", device="cpu").partial_fit(*make_blobs(["cat", "dog"]))
