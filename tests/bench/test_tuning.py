"""Studies: the goal is that of held-out images, what is killed goes on, and bad trials end early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
import yaml

from conftest import cli_environment
from efcil import data
from efcil.bench import tuning
from efcil.bench.run_folder import read_config, read_metrics
from efcil.bench.scenarios import resolve
from efcil.bench.tuning import Question, Study, ask, begin, work
from efcil.cli import main
from efcil.data.dataset import DataSet
from efcil.data.images import ImageSet, Pixels
from efcil.errors import UserError

CHANGES = ("width=8", "stem_stride=2", "data.images_per_class=20", "first.epochs=8", "first.rotation=false")
SEARCH = ("incremental.lr=1e-3..1e-1:log", "incremental.epochs=1..2")


def question(**changes: Any) -> Question:
    asked = {"goal": "per_step_accuracy", "search": SEARCH, "changes": CHANGES, "tasks": None, "data_root": None}
    return ask("digits-cold5", "finetune", 3, **{**asked, **changes})


def study(folder: Path, trials: int, **changes: Any) -> Study:
    begun = begin(folder, question(**changes))
    work(begun, trials, None)
    return begun


def goals(found: Study) -> list[float]:
    return [row[found.question.goal] for row in found.table()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two trials of two tasks."""
    return study(tmp_path_factory.mktemp("study"), 2, tasks=2)


# What is measured


def changed_digits(change: Callable[[DataSet], DataSet], monkeypatch: pytest.MonkeyPatch) -> None:
    load = data.LOADERS["digits"]
    monkeypatch.setitem(data.LOADERS, "digits", lambda root, size: change(load(root, size)))


def black(images: ImageSet, which: torch.Tensor) -> ImageSet:
    """The images, those for which it is true without anything to be seen."""
    pixels = images.batch(torch.arange(len(images)))
    return ImageSet(Pixels(torch.where(which.view(-1, 1, 1, 1), 0, pixels)))


def test_the_goal_never_sees_a_test_image(finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_test_images(digits: DataSet) -> DataSet:
        return replace(digits, test=black(digits.test, torch.tensor(True)), test_labels=digits.test_labels.flip(0))

    changed_digits(other_test_images, monkeypatch)
    assert goals(study(tmp_path, 2, tasks=2)) == goals(finished)


def test_the_goal_never_sees_a_later_task(finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = json.loads((finished.trial_folder(0) / "run.json").read_text())["class_order"]
    later = torch.tensor([int(name) for split in order[2:] for name in split])

    def other_later_images(digits: DataSet) -> DataSet:
        return replace(digits, train=black(digits.train, torch.isin(digits.train_labels, later)))

    changed_digits(other_later_images, monkeypatch)
    assert goals(study(tmp_path, 2, tasks=2)) == goals(finished)


def test_a_trial_is_the_run_with_its_settings_on_held_out_images(finished: Study, tmp_path: Path) -> None:
    assert finished.question.held_out == 14  # a tenth of the fewest images of a digit
    for row in finished.table():
        assert (row["status"], row["steps"]) == ("done", 2)
        settings = [part for change in (*CHANGES, *row["settings"]) for part in ("--set", change)]
        command = ["run", "digits-cold5", "--method", "finetune", "--seed", "3", "--set", "data.held_out=14", *settings]
        out = tmp_path / str(row["trial"])
        assert main([*command, "--out", str(out)]) == 0
        (folder,) = out.iterdir()
        steps = read_metrics(folder / "metrics.json")["steps"]
        assert row["per_step_accuracy"] == steps[1]["per_step_accuracy"]
    assert len({tuple(row["settings"]) for row in finished.table()}) == 2


def test_images_are_set_aside_as_the_settings_say_or_a_tenth_of_the_smallest_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert question(changes=(*CHANGES, "data.held_out=30")).held_out == 30

    def few(digits: DataSet) -> DataSet:
        kept = torch.cat([(digits.train_labels == label).nonzero()[:4, 0] for label in range(10)])
        return replace(digits, train=digits.train.subset(kept), train_labels=digits.train_labels[kept])

    changed_digits(few, monkeypatch)
    assert question().held_out == 1
    monkeypatch.setattr(tuning, "MOST_HELD_OUT", 0)
    assert question().held_out == 1


# The answer


def test_the_best_settings_are_a_preset(finished: Study, tmp_path: Path) -> None:
    best = finished.best()
    assert best is not None and best["per_step_accuracy"] == max(goals(finished))
    preset = finished.folder / "best.yaml"
    expected = resolve("digits-cold5", "finetune", 3, [*CHANGES, *best["settings"]])
    assert resolve(str(preset), "finetune", 3) == expected and expected.data.held_out == 0
    content = yaml.safe_load(preset.read_text())
    assert content["like"] == "digits-cold5" and "14 held-out images per class, 2 tasks" in content["description"]
    lines = (finished.folder / "trials.csv").read_text().splitlines()
    assert lines[0] == "trial,status,incremental.lr,incremental.epochs,steps,per_step_accuracy,minutes,message"
    assert len(lines) == 3 and lines[1].startswith("0,done,")


def test_the_best_settings_of_a_preset_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "like: digits-warm4\ndata: {held_out: 5}\nclassifier: {width: 4}\n"
        "methods: {lwf: {incremental: {epochs: 7}}, finetune: {width: 6}}\n"
    )
    asked = ask(str(own), "finetune", 0, "plasticity", ["incremental.lr=0..1"], ["stream.steps=3"], None, None)
    text = tuning.best_preset(asked, {"settings": ["incremental.lr=0.25"], "plasticity": 40.0, "trial": 3})
    (tmp_path / "best.yaml").write_text(text)
    settings = ["incremental.lr=0.25", "stream.steps=3", "data.held_out=0"]
    for method, changes in (("finetune", settings), ("lwf", settings[1:])):
        assert resolve(str(tmp_path / "best.yaml"), method, 0) == resolve(str(own), method, 0, changes)


def test_how_many_tasks_were_learnt_is_no_setting_to_go_on_with() -> None:
    asked = question(changes=(*CHANGES, "stream.tasks=2"))
    assert asked.tasks == 2
    best = {"settings": [], "per_step_accuracy": 40.0, "trial": 3}
    assert "2 tasks" in (text := tuning.best_preset(asked, best)) and "stream" not in yaml.safe_load(text)
    with pytest.raises(UserError, match=r"--tasks 3 and --set stream\.tasks=2 say the same twice"):
        question(changes=(*CHANGES, "stream.tasks=2"), tasks=3)


def test_a_preset_of_few_tasks_is_tuned_on_fewer_and_keeps_its_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("like: digits-warm4\nstream: {tasks: 3}\n")
    for tasks, learnt in ((2, 2), (None, 3), (4, 3)):
        asked = ask(str(own), "finetune", 0, "plasticity", ["incremental.lr=0..1"], [], tasks, None)
        assert asked.tasks == learnt
        text = tuning.best_preset(asked, {"settings": [], "plasticity": 40.0, "trial": 3})
        assert yaml.safe_load(text)["stream"] == {"tasks": 3}


def test_less_forgetting_is_better(tmp_path: Path) -> None:
    asked = begin(tmp_path, question(goal="average_forgetting"))
    for value in (3.0, 1.0, 2.0):
        asked.optuna.add_trial(optuna.trial.create_trial(value=value))
    best = asked.best()
    assert best is not None and best["trial"] == 1


# Trials that end otherwise


def test_a_trial_behind_the_median_is_pruned_after_its_second_step(tmp_path: Path) -> None:
    begun = begin(tmp_path, question())
    perfect = dict.fromkeys(range(1, 6), 101.0)
    for _ in range(tuning.BEFORE_PRUNING):
        begun.optuna.add_trial(optuna.trial.create_trial(value=101.0, intermediate_values=perfect))
    work(begun, tuning.BEFORE_PRUNING + 1, None)
    last = begun.table()[-1]
    assert (last["status"], last["steps"]) == ("pruned", 2)
    assert len(read_metrics(begun.trial_folder(last["trial"]) / "metrics.json")["steps"]) == 2
    best = begun.best()
    assert best is not None and best["trial"] == 0


@pytest.mark.parametrize(
    ("goal", "others", "own", "behind"),
    [
        ("per_step_accuracy", {1: 95.0, 2: 60.0}, [98.0, 40.0], True),  # better at first, and behind now
        ("per_step_accuracy", {1: 95.0, 2: 60.0}, [90.0, 60.5], False),
        ("per_step_accuracy", {1: 95.0, 2: 60.0}, [40.0], False),
        ("average_forgetting", {1: 0.0, 2: 10.0}, [0.0, 30.0], True),
        ("average_forgetting", {1: 0.0, 2: 10.0}, [0.0, 9.0], False),
        ("per_step_accuracy", {2: 60.0, 5: 60.0}, [90.0] * 4 + [40.0], False),  # its last step: it is finished
    ],
)
def test_a_trial_is_compared_with_the_others_at_the_same_step(
    goal: str, others: dict[int, float], own: list[float], behind: bool, tmp_path: Path
) -> None:
    begun = begin(tmp_path, question(goal=goal))
    metrics = {"steps": [{goal: value} for value in own], "classes_per_task": [2] * 5}
    for finished in range(tuning.BEFORE_PRUNING + 1):
        watcher = tuning.TrialWatcher(begun.question, begun.optuna.ask(), begun.optuna)
        if behind and finished == tuning.BEFORE_PRUNING:
            with pytest.raises(optuna.TrialPruned):
                watcher.begin(metrics, [])
        else:
            watcher.begin(metrics, [])
        begun.optuna.add_trial(optuna.trial.create_trial(value=others[2], intermediate_values=others))


def test_a_trial_that_fails_stops_no_other(tmp_path: Path) -> None:
    bad, good = (begun := study(tmp_path, 2, search=["incremental.lr=1e30|1e-3"], tasks=2)).table()
    assert (bad["status"], good["status"]) == ("failed", "done")
    assert "Lower the learning rate" in bad["message"] and good["message"] == ""
    best = begun.best()
    assert best is not None and best["settings"] == ["incremental.lr=1e-3"]


def test_of_choices_every_combination_is_tried_once_whatever_was_tried_before(tmp_path: Path) -> None:
    search = ["incremental.lr=1e-3|1e-2", "incremental.epochs=1|2"]
    begun = study(tmp_path, 1, search=search, tasks=2)  # fewer trials than combinations: any
    begun.optuna.enqueue_trial({"incremental.lr": "1e-2", "incremental.epochs": "1"})
    found = study(tmp_path, 4, search=search, tasks=2)  # also the one that a killed process had only announced
    tried = [tuple(row["settings"]) for row in found.table()]
    expected = [(f"incremental.lr={lr}", f"incremental.epochs={n}") for lr in ("1e-3", "1e-2") for n in (1, 2)]
    assert set(tried) == set(expected) and len(tried) - len(set(tried)) == (tried[0] == tried[1])
    assert found.complete(4) and found.complete(20)


def test_a_combination_that_was_only_announced_is_left(tmp_path: Path) -> None:
    found = study(tmp_path, 1, search=["incremental.epochs=1|2"], tasks=2)
    found.optuna.enqueue_trial({"incremental.epochs": "2" if "=1" in found.table()[0]["settings"][0] else "1"})
    assert not found.complete(2) and len(found.left(2)) == 1


def test_another_question_in_the_same_folder_is_refused(finished: Study) -> None:
    with pytest.raises(UserError, match="was begun with tasks = 2, not None; go on with the same, or choose another"):
        begin(finished.folder, question())
    with pytest.raises(UserError, match="was begun with search = "):
        begin(finished.folder, question(tasks=2, search=SEARCH[:1]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--goal", "acuracy"], "no goal called 'acuracy'; did you mean"),
        (["--tasks", "0"], "--tasks takes the number of tasks to learn, at least 1, not 0"),
        (["--trials", "0"], "--trials takes a number of at least 1, not 0"),
        (["--workers", "0"], "--workers takes a number of at least 1, not 0"),
        (["--method", "ecf"], "no method called 'ecf'; did you mean"),
        (["--set", "data.held_out=9999"], "data.held_out=9999 leaves none to learn"),
    ],
)
def test_a_wrong_question_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "digits-cold5", "--search", "incremental.lr=0..1", "--out", str(tmp_path / "tune")]
    assert main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "tune").exists()
    assert main(["tune", "digits-cold5"]) == 2
    assert "There is nothing to choose; give --search" in capsys.readouterr().err


def test_trials_that_are_equal_are_not_called_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The learning rate of later tasks, where there is none."""
    command = ["tune", "digits-cold5", "--method", "freeze", "--tasks", "1", "--trials", "2", "--out", str(tmp_path)]
    changes = [word for change in (*CHANGES, "first.epochs=1") for word in ("--set", change)]
    assert main([*command, *changes, "--search", "incremental.lr=1e-3|2e-3"]) == 0
    assert "The first of 2 equally good settings, on" in capsys.readouterr().out


def test_without_optuna_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "digits-cold5", "--search", "incremental.lr=0..1"]) == 2
    assert capsys.readouterr().err == "efcil: efcil tune needs Optuna; run: pip install 'efcil[tune]'\n"


# Processes


@pytest.mark.slow
def test_what_a_killed_process_leaves_is_finished_by_two_others_at_once(tmp_path: Path) -> None:
    """It is killed -9 in the second task of its first trial, which goes on from there."""
    begun = begin(
        tmp_path, question(changes=(*CHANGES, "checkpoint_seconds=0"), search=["incremental.epochs=60..90"], tasks=2)
    )
    command = [sys.executable, "-m", "efcil.bench.tuning", str(tmp_path), "3"]
    first = subprocess.Popen(command, env=cli_environment())
    wait_for(lambda: len(steps_of(begun, 0)) == 1 and (begun.trial_folder(0) / "checkpoint.efcil").exists())
    first.kill()
    first.wait()
    (learnt,) = steps_of(begun, 0)
    others = [subprocess.Popen(command, env=cli_environment()) for _ in range(2)]
    assert [process.wait(timeout=1800) for process in others] == [0, 0]
    rows = begun.table()
    assert [row["status"] for row in rows] == ["done"] * 3 and begun.complete(3)
    assert [len(steps_of(begun, number)) for number in range(3)] == [2, 2, 2]
    assert steps_of(begun, 0)[0] == learnt  # down to its seconds: the first task was not learnt again


def steps_of(begun: Study, number: int) -> list[Any]:
    path = begun.trial_folder(number) / "metrics.json"
    return list(read_metrics(path)["steps"]) if path.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.slow
def test_the_command_prints_the_trials_and_a_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [part for change in CHANGES for part in ("--set", change)]
    search = [part for text in SEARCH for part in ("--search", text)]
    command = ["tune", "digits-cold5", "--method", "finetune", *settings, *search, "--tasks", "2", "--trials", "2"]
    command += ["--workers", "1", "--out", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert len(answer["trials"]) == 2 and answer["best"] in answer["trials"]
    folder = Path(answer["folder"])
    assert "2 trials: 2 done" in printed.err and (folder / "best.yaml").read_text() in printed.err
    stamps = [(folder / "trial-001" / "metrics.json").stat().st_mtime_ns, os.listdir(folder)]
    assert main(command) == 0  # nothing is left to do
    assert "like: digits-cold5" in capsys.readouterr().out
    assert stamps == [(folder / "trial-001" / "metrics.json").stat().st_mtime_ns, os.listdir(folder)]
    config = read_config(folder / "trial-000" / "config.yaml")
    assert config["data.held_out"] == 14 and config["classifier.width"] == 8
