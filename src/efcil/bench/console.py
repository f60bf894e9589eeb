"""What a person sees while a run goes on, and the log file beside it."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table

from efcil.bench.metrics import NAMES
from efcil.engine.progress import Step
from efcil.errors import cannot_write

NARROWEST, WIDEST = 8, 24  # columns of the bar
LOG_SECONDS = 60  # a stage that takes longer is in the log meanwhile


class RunDisplay:
    """A progress bar on the terminal, and a line per epoch in log.txt."""

    def __init__(self, console: Console, folder: Path, title: str) -> None:
        self.console, self.folder, self.title = console, folder, title
        self.meter = BarColumn(bar_width=NARROWEST)
        self.bar = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            self.meter,
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
        )
        self.log: TextIO | None = None  # opened once the run has begun: bad input leaves no folder behind
        self.work: list[int] = []
        self.done = 0  # images of finished tasks
        self.in_task = 0  # images of this one
        self.begun = (0.0, 0)  # when this process began to train, and how much was done before
        self.in_stage = ("", 0, 0.0)  # what goes on between epochs: how much was done when it was first heard of, when
        self.logged = 0.0  # when the last line was written

    def __enter__(self) -> RunDisplay:
        self.bar.start()
        self.row = self.bar.add_task(self.title, total=None, numbers="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        if self.log is not None:
            with suppress(OSError), self.log:  # on a full disk, which was told
                if kind is not None:
                    self._write(f"stopped: {kind.__name__} {error}")

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        self.log = (self.folder / "log.txt").open("a")
        self.work = work
        self.classes, self.first_step = metrics["classes_per_task"], metrics["first_step"]
        self.done = sum(work[: len(metrics["steps"])])
        self.begun = (time.monotonic(), self.done)
        self._write(f"{self.title}: {len(work)} tasks with {self.classes} classes")
        self.bar.update(self.row, total=sum(work), completed=self.done)

    def step(self, step: Step) -> None:
        self.in_task += step.images
        # After resuming within a task, earlier epochs count as done.
        if self.in_task == step.images and step.epoch:
            skipped = self.work[step.task] * step.epoch // step.epochs
            self.in_task += skipped
            self.begun = (self.begun[0], self.begun[1] + skipped)
        now = self.done + self.in_task
        seconds = time.monotonic() - self.begun[0]
        rate = (now - self.begun[1]) / max(seconds, 1e-6)
        task, epoch = f"task {step.task + 1}/{len(self.work)}", f"epoch {step.epoch + 1}/{step.epochs}"
        percent = f"{100 * now / max(sum(self.work), 1):3.0f} %"
        left = f"{_clock((sum(self.work) - now) / max(rate, 1e-6))} left"
        speed = f"{rate:,.0f} images/s"
        losses = [f"{name} {value:.3f}" for name, value in step.losses.items()]
        self._show(
            [
                ([self.title, task, epoch], [percent, speed, left, *losses]),
                ([self.title, task, epoch], [percent, speed, left]),
                ([self.title, task, epoch], [percent, left]),
                ([self.title, task], [percent, left]),
                ([task], [percent, left]),
                ([task], [percent]),
            ],
            total=sum(self.work),
            completed=now,
        )

    def epoch(self, step: Step) -> None:
        terms = " ".join(f"{name}={value:.5f}" for name, value in step.losses.items())
        self._write(f"task {step.task + 1} epoch {step.epoch + 1}/{step.epochs} {terms}")

    def stage(self, task: int, name: str, done: int = 0, total: int = 0) -> None:
        """The bar is that of the stage as long as it is known how much there is of it, and of the run otherwise."""
        place = f"task {task + 1}/{len(self.work)}"
        if not total:
            run = {"total": sum(self.work), "completed": self.done + self.in_task}
            self._show([([self.title, place, name], []), ([place, name], []), ([place], [])], **run)
            return
        now = time.monotonic()
        if name != self.in_stage[0] or done <= self.in_stage[1]:
            self.in_stage = (name, done, now)
        rate = (done - self.in_stage[1]) / max(now - self.in_stage[2], 1e-6)
        percent, left = f"{100 * done / total:3.0f} %", f"{_clock((total - done) / rate if rate else math.inf)} left"
        self._show(
            [
                ([self.title, place, name], [percent, left]),
                ([place, name], [percent, left]),
                ([place, name], [percent]),
                ([name], [percent]),
            ],
            total=total,
            completed=done,
        )
        if now - self.logged >= LOG_SECONDS:
            self._write(f"task {task + 1} {name} {done}/{total}")

    def ended(self, finished: bool) -> None:
        """Its log is closed on leaving, where it is known what went wrong."""

    def finished_step(self, metrics: dict[str, Any]) -> None:
        task = len(metrics["steps"])
        self.done, self.in_task = sum(self.work[:task]), 0
        last = metrics["steps"][-1]
        numbers = "  ".join(f"{NAMES[name][0]} {last[name]:.1f}" for name in NAMES)
        line = f"step {last['step']} ({sum(self.classes[:task])} classes)  {numbers}  {last['seconds']:.0f} s"
        self._write(line)
        self.bar.update(self.row, total=sum(self.work), completed=self.done)
        self.console.print(f"{self.title}  {line}", highlight=False)

    def _show(self, lines: list[tuple[list[str], list[str]]], **changes: Any) -> None:
        """The first of these lines, before and after the bar, that leaves room for a bar in this window; or the last.

        What does not fit would be cut off by rich column by column, the bar first.
        """
        for place, numbers in lines:
            before, after = "  ".join(place), "  ".join(numbers)
            room = self.console.width - len(before) - len(after) - 3  # a space after each column
            if room >= NARROWEST:
                break
        self.meter.bar_width = max(NARROWEST, min(WIDEST, room))
        self.bar.update(self.row, description=before, numbers=after, **changes)

    def _write(self, line: str) -> None:
        assert self.log is not None
        self.logged = time.monotonic()
        try:
            print(time.strftime("%Y-%m-%d %H:%M:%S"), line, file=self.log, flush=True)
        except OSError as error:
            raise cannot_write(self.log.name, error) from None


def print_results(console: Console, metrics: dict[str, Any], folder: Path) -> None:
    """The accuracy matrix, the four numbers with what each weights, and where the files are."""
    first, classes = metrics["first_step"], metrics["classes_per_task"]
    decimals = 1 if len(classes) <= 11 else 0  # twenty tasks fit into 80 columns
    table = Table(box=None, padding=(0, 0, 0, 1))
    table.add_column("step", justify="right")
    for task in range(first, first + len(classes)):
        table.add_column(f"task {task}" if task == first else str(task), justify="right", no_wrap=True)
    table.add_column("A_step", justify="right", style="bold", no_wrap=True)
    for step, row in zip(metrics["steps"], metrics["accuracy_matrix"], strict=True):
        cells = ["" if value is None else f"{value:.{decimals}f}" for value in row]
        cells += [""] * (len(classes) - len(cells))
        table.add_row(str(step["step"]), *cells, f"{step['per_step_accuracy']:.1f}")
    run = f"{metrics['method']} on {metrics['preset']}, seed {metrics['seed']}"
    console.print(f"\n[bold]{run}: accuracy in % on each task[/]\n", highlight=False)
    console.print(table)
    console.print(f"\nclasses of the tasks: {' '.join(map(str, classes))}\n", highlight=False)
    summary = Table.grid(padding=(0, 2))
    for name, (symbol, meaning) in NAMES.items():
        summary.add_row(f"[bold]{symbol}[/]", f"{metrics[name]:.2f}", meaning)
    console.print(summary, highlight=False)
    console.print(f"files in {folder}", highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
