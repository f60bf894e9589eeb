"""Choosing settings: trials of a study, each a run that is measured on training images set aside, never on test images.

A study is a folder:
study.json       the question: preset, method, fields with their ranges, goal
study.db         Optuna's account of the trials (SQLite, which optuna-dashboard reads)
trial-000        the run of a trial, as `efcil run` leaves it but for the network
first-tasks      trained first tasks, for trials that would train the same
trials.csv       every trial with what it tried and what it reached
best.yaml        the best settings so far, as a preset

Any number of processes may work on a study. What each has taken is locked until its process ends, however it ends; what
a killed process leaves is taken up by the next one and goes on from its checkpoint.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from efcil import data
from efcil.bench.metrics import NAMES
from efcil.bench.run_folder import read_metrics, run_name
from efcil.bench.runs import Unwatched, run
from efcil.bench.scenarios import SECTIONS, config_digest, parse_change, read_sections, resolve
from efcil.bench.search import Dimension, checked, distinct, parse_search
from efcil.config import RunConfig, merge
from efcil.engine import numerics
from efcil.engine.locks import locked
from efcil.engine.state import write_text
from efcil.errors import Busy, UserError, unknown

MOST_HELD_OUT = 50  # images per class, of which a tenth is set aside otherwise
BEFORE_PRUNING = 5  # trials that are finished first, so that there is a median to compare with
FIRST_PRUNED = 2  # step; the first task alone says little
LESS_IS_BETTER = ("average_forgetting",)


@dataclass(frozen=True)
class Question:
    """What a study is about; all its trials answer the same one."""

    preset: str
    method: str
    seed: int
    goal: str
    search: tuple[str, ...]  # as --search takes it
    changes: tuple[str, ...]  # settings of every trial
    held_out: int  # training images per class that the goal is measured on
    tasks: int | None  # only so many tasks of the stream are learnt
    config_digest: str  # of the settings that nothing is searched in
    numerics: int

    @cached_property
    def dimensions(self) -> list[Dimension]:
        found = [checked(parse_search(text), self.preset, self.method, self.seed, self.changes) for text in self.search]
        distinct(found)
        return found

    def combinations(self, most: int) -> list[dict[str, str]]:
        """Every combination of choices, if there is no range among the fields and there are no more than so many."""
        if not 0 < prod(len(dimension.choices) for dimension in self.dimensions) <= most:
            return []
        names = [dimension.field for dimension in self.dimensions]
        return [dict(zip(names, one, strict=True)) for one in product(*(d.choices for d in self.dimensions))]

    @property
    def direction(self) -> str:
        return "minimize" if self.goal in LESS_IS_BETTER else "maximize"

    def config(self, tried: Sequence[str]) -> RunConfig:
        """The settings of a trial."""
        measured = [f"data.held_out={self.held_out}", *([f"stream.tasks={self.tasks}"] if self.tasks else [])]
        return resolve(self.preset, self.method, self.seed, [*self.changes, *tried, *measured])


def ask(
    preset: str,
    method: str,
    seed: int,
    goal: str,
    search: Sequence[str],
    changes: Sequence[str],
    tasks: int | None,
    data_root: Path | None,
) -> Question:
    """The question, if it makes sense; images are set aside if the settings do not say how many."""
    if goal not in NAMES:
        raise unknown("goal", goal, NAMES)
    if tasks is not None and tasks < 1:
        raise UserError(f"--tasks takes the number of tasks to learn, at least 1, not {tasks}.")
    config = resolve(preset, method, seed, changes)
    if tasks is not None and any(map(says_tasks, changes)):
        raise UserError(f"--tasks {tasks} and --set stream.tasks={config.stream.tasks} say the same twice; give one.")
    tasks = min(filter(None, (tasks, config.stream.tasks)), default=None)  # a preset of one's own may have some
    held_out = set_aside(config, data_root)
    digest, version = config_digest(config), numerics.VERSION
    asked = Question(preset, method, seed, goal, tuple(search), tuple(changes), held_out, tasks, digest, version)
    if not asked.dimensions:
        raise UserError("There is nothing to choose; give --search FIELD=LOW..HIGH or --search 'FIELD=A|B'.")
    return asked


def says_tasks(change: str) -> bool:
    return "tasks" in parse_change(change).get("stream", {})


def set_aside(config: RunConfig, data_root: Path | None) -> int:
    """How many training images per class: as the settings say, or a tenth of the smallest class, at most 50."""
    everything = data.load(replace(config.data, images_per_class=None, held_out=0), data_root, cache_mb=0)
    counts, _ = everything.counts()
    count = config.data.held_out or max(1, min(MOST_HELD_OUT, int(counts.min()) // 10))
    everything.holding_out(count)  # refuses what leaves a class without images
    return count


class Study:
    """The trials of one question, on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.question = read_question(folder)
        optuna = import_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with self.lock():  # of many processes one makes the tables
            # Others are writing, too: a writer waits for them rather than to give up.
            storage = optuna.storages.RDBStorage(
                f"sqlite:///{folder / 'study.db'}", engine_kwargs={"connect_args": {"timeout": 120}}
            )
            self.optuna = optuna.create_study(
                storage=storage,
                study_name="efcil",
                direction=self.question.direction,
                load_if_exists=True,
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        with locked(self.folder / ".lock"):
            yield

    def trial_folder(self, number: int) -> Path:
        return self.folder / f"trial-{number:03}"

    @property
    def first_tasks(self) -> Path | None:
        """Where trained first tasks are kept, if trials can have the same."""
        later = all(d.field.split(".")[0] in ("options", "incremental") for d in self.question.dimensions)
        return self.folder / "first-tasks" if later else None

    def complete(self, trials: int) -> bool:
        """Whether there is nothing left to do."""
        return not self.left(trials) and not any(row["status"] == "running" for row in self.table())

    def left(self, trials: int) -> list[dict[str, str] | None]:
        """What is still to be begun of so many trials: combinations that none has tried, or whatever is drawn."""
        known = filter(begun, self.optuna.get_trials(deepcopy=False))
        tried = [trial.params or trial.system_attrs.get("fixed_params") for trial in known]
        if combinations := self.question.combinations(trials):
            return [one for one in combinations if one not in tried]
        return [None] * (trials - len(tried))

    def next_trial(self, trials: int, claim: ExitStack) -> Any:
        """A trial that somebody left unfinished, or a new one while there are fewer than ``trials``; else None."""
        optuna = import_optuna()
        with self.lock():
            known = self.optuna.get_trials(deepcopy=False)
            for old in known:
                if old.state == optuna.trial.TrialState.RUNNING and self._claimed(old.number, claim):
                    self.optuna.sampler = sampler(self.question, old.number)
                    return optuna.trial.Trial(self.optuna, old._trial_id)
            if not (left := self.left(trials)):
                return None
            if left[0] and all(begun(old) for old in known):
                self.optuna.enqueue_trial(left[0])
            self.optuna.sampler = sampler(self.question, len(known))
            trial = self.optuna.ask()
            self._claimed(trial.number, claim)
            suggested(self.question, trial)
            return trial

    def _claimed(self, number: int, claim: ExitStack) -> bool:
        try:
            claim.enter_context(locked(self.trial_folder(number) / ".claim", "taken"))
        except Busy:
            return False
        return True

    def table(self) -> list[dict[str, Any]]:
        """Every trial with what it tried and has reached so far, in the order of their numbers."""
        return [self._row(trial) for trial in self.optuna.get_trials(deepcopy=False)]

    def _row(self, trial: Any) -> dict[str, Any]:
        path = self.trial_folder(trial.number) / "metrics.json"
        steps = dict(sorted(trial.intermediate_values.items()))
        return {
            "trial": trial.number,
            "status": {"COMPLETE": "done", "FAIL": "failed"}.get(trial.state.name, trial.state.name.lower()),
            "settings": trial.user_attrs.get("settings", []),
            "steps": len(steps),
            self.question.goal: trial.value if trial.value is not None else next(reversed(steps.values()), None),
            "minutes": read_metrics(path)["seconds"] / 60 if path.exists() else 0.0,
            "message": trial.user_attrs.get("message", ""),
        }

    def best(self) -> dict[str, Any] | None:
        """The row of the best finished trial; of equals the first."""
        done = [row for row in self.table() if row["status"] == "done"]
        sign = -1 if self.question.direction == "minimize" else 1
        return max(done, key=lambda row: (sign * row[self.question.goal], -row["trial"])) if done else None


def begun(trial: Any) -> bool:
    return bool(trial.state != import_optuna().trial.TrialState.WAITING)


def sampler(question: Question, number: int) -> Any:
    """With a seed for each trial: what is drawn neither repeats in another process nor depends on which one draws."""
    return import_optuna().samplers.TPESampler(seed=1_000_003 * question.seed + number, constant_liar=True)


def begin(folder: Path, question: Question) -> Study:
    """The study in this folder, new or begun before with the same question."""
    with locked(folder / ".lock"):
        if (folder / "study.json").exists():
            before = read_question(folder)
            for name in (f.name for f in fields(Question)):
                if getattr(before, name) != getattr(question, name):
                    raise UserError(
                        f"The study in {folder} was begun with {name} = {getattr(before, name)}, not "
                        f"{getattr(question, name)}; go on with the same, or choose another --out."
                    )
        else:
            write_text(folder / "study.json", json.dumps(asdict(question), indent=2))
    return Study(folder)


def read_question(folder: Path) -> Question:
    path = folder / "study.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content |= {name: tuple(content[name]) for name in ("search", "changes")}
        return Question(**content)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}); remove the folder to tune anew.") from None


def study_folder(out: Path, question: Question) -> Path:
    config = resolve(question.preset, question.method, question.seed, question.changes)
    return out / run_name(question.preset, config, question.changes)


# Trials


def work(study: Study, trials: int, data_root: Path | None) -> None:
    """Carry out trials until the study has so many; also those that another process left behind."""
    while True:
        with ExitStack() as claim:
            trial = study.next_trial(trials, claim)
            if trial is None:
                return
            carry_out(study, trial, data_root)
            for name in ("state.efcil", "checkpoint.efcil"):  # numbers are what is wanted of a trial
                (study.trial_folder(trial.number) / name).unlink(missing_ok=True)
        write_answers(study)


def suggested(question: Question, trial: Any) -> list[str]:
    """What this trial tries; asked again, it is the same."""
    settings = [dimension.suggest(trial) for dimension in question.dimensions]
    trial.set_user_attr("settings", settings)
    return settings


def carry_out(study: Study, trial: Any, data_root: Path | None) -> None:
    """Run the trial, or the rest of it, and tell what it came to; interrupted, it stays as it is for the next one."""
    optuna = import_optuna()
    question, folder = study.question, study.trial_folder(trial.number)
    watcher = TrialWatcher(question, trial, study.optuna)
    try:
        config = question.config(suggested(question, trial))
        metrics = read_metrics(folder / "metrics.json") if (folder / "metrics.json").exists() else None
        if metrics:  # of a process that was killed; it may have had all but told it
            watcher.begin(metrics, [])
        metrics = run(config, question.preset, folder, watcher, data_root, True, study.first_tasks)
        study.optuna.tell(trial, metrics[question.goal])
    except optuna.TrialPruned:
        study.optuna.tell(trial, state=optuna.trial.TrialState.PRUNED)
    except (UserError, RuntimeError) as error:  # such as a learning rate that is too great; others go on
        trial.set_user_attr("message", " ".join(str(error).split()))
        study.optuna.tell(trial, state=optuna.trial.TrialState.FAIL)


class TrialWatcher(Unwatched):
    """Reports the goal after every step; ends a trial that is behind the median of the others."""

    def __init__(self, question: Question, trial: Any, study: Any) -> None:
        self.question, self.trial, self.study = question, trial, study
        self.reported = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        for number in range(1, len(metrics["steps"]) + 1):
            self.finished_step({**metrics, "steps": metrics["steps"][:number]})

    def finished_step(self, metrics: dict[str, Any]) -> None:
        number, last = len(metrics["steps"]), metrics["steps"][-1]
        if number not in self.reported:
            self.trial.report(last[self.question.goal], number)
            self.reported.add(number)
        unfinished = FIRST_PRUNED <= number < len(metrics["classes_per_task"])
        if unfinished and self._behind(number, last[self.question.goal]):
            raise import_optuna().TrialPruned

    def _behind(self, number: int, reached: float) -> bool:
        """Whether the finished trials were better at this step, in the median.

        Optuna's pruners compare the best that a trial has reached at any step, which tells nothing of an accuracy that
        falls with every task.
        """
        finished = self.study.get_trials(deepcopy=False, states=(import_optuna().trial.TrialState.COMPLETE,))
        values = [trial.intermediate_values[number] for trial in finished if number in trial.intermediate_values]
        if len(values) < BEFORE_PRUNING:
            return False
        middle: float = median(values)
        return reached > middle if self.question.direction == "minimize" else reached < middle


# Answers


def write_answers(study: Study) -> None:
    """trials.csv, and best.yaml once a trial is finished."""
    with study.lock():
        rows = study.table()
        table = io.StringIO()
        names = [dimension.field for dimension in study.question.dimensions]
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["trial", "status", *names, "steps", study.question.goal, "minutes", "message"])
        for row in rows:
            tried = dict(setting.split("=", 1) for setting in row["settings"])
            goal = "" if row[study.question.goal] is None else f"{row[study.question.goal]:.4f}"
            values = [tried.get(name, "") for name in names]
            minutes = f"{row['minutes']:.2f}"
            writer.writerow([row["trial"], row["status"], *values, row["steps"], goal, minutes, row["message"]])
        write_text(study.folder / "trials.csv", table.getvalue())
        best = study.best()
        if best is not None:
            write_text(study.folder / "best.yaml", best_preset(study.question, best))


def best_preset(question: Question, best: dict[str, Any]) -> str:
    """The preset with the settings of a trial, measured on its test images again; `efcil run` takes it."""
    is_file = question.preset.endswith((".yaml", ".yml"))
    content: dict[str, Any] = read_sections(question.preset, True) if is_file else {"like": question.preset}
    for change in (*(change for change in question.changes if not says_tasks(change)), *best["settings"]):
        section, value = next(iter(parse_change(change).items()))
        where = {"methods": {question.method: value}} if section == "classifier" else {section: value}
        content = merge(content, where)
    content["data"] = {key: value for key, value in (content.get("data") or {}).items() if key != "held_out"}
    reached = f"{question.goal} {best[question.goal]:.2f} on {question.held_out} held-out images per class"
    tasks = f", {question.tasks} tasks" if question.tasks else ""
    order = ("like", *SECTIONS, "methods")
    told = {"description": f"chosen by efcil tune: {reached}{tasks}, seed {question.seed}, trial {best['trial']}"}
    kept = {name: content[name] for name in order if content.get(name)}
    return str(yaml.safe_dump({**told, **kept}, sort_keys=False, width=120))


def import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise UserError("efcil tune needs Optuna; run: pip install 'efcil[tune]'") from None
    return optuna


def main(folder: str, trials: str, data_root: str = "") -> None:
    """A worker process of `efcil tune`."""
    work(Study(Path(folder)), int(trials), Path(data_root) if data_root else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
