"""What a person sees while a run goes on, and the log file and TensorBoard events beside it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from efcil.bench.metrics import NAMES
from efcil.engine.progress import Step
from efcil.errors import UserError


class RunDisplay:
    """A progress bar on the terminal, a line per epoch in log.txt, and TensorBoard events when asked for."""

    def __init__(self, console: Console, folder: Path, title: str, tensorboard: bool = False) -> None:
        self.console, self.folder, self.title = console, folder, title
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn(
                "{task.percentage:3.0f} %  {task.fields[rate]}  {task.fields[left]}  [dim]{task.fields[losses]}"
            ),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self.log: TextIO | None = None  # opened once the run has begun: bad input leaves no folder behind
        self.tensorboard = tensorboard
        self.events: Any = None
        self.work: list[int] = []
        self.done = 0  # images of finished tasks
        self.in_task = 0  # images of this one
        self.begun = (0.0, 0)  # when this process began to train, and how much was done before

    def __enter__(self) -> RunDisplay:
        self.bar.start()
        self.row = self.bar.add_task(self.title, total=None, rate="", left="", losses="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        if self.log is not None:
            if kind is not None:
                self._write(f"stopped: {kind.__name__} {error}")
            self.log.close()
        if self.events is not None:
            self.events.close()

    def begin(self, metrics: dict[str, Any], work: list[int]) -> None:
        self.log = (self.folder / "log.txt").open("a")
        self.events = _event_writer(self.folder / "tensorboard") if self.tensorboard else None
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
        shown = step.losses if self.console.width >= 120 else {}  # a narrow line has room for the time left only
        self.bar.update(
            self.row,
            completed=now,
            description=f"{self.title}  task {step.task + 1}/{len(self.work)}  epoch {step.epoch + 1}/{step.epochs}",
            rate=f"{rate:,.0f} images/s",
            left=f"{_clock((sum(self.work) - now) / max(rate, 1e-6))} left",
            losses="  ".join(f"{name} {value:.3f}" for name, value in shown.items()),
        )

    def epoch(self, step: Step) -> None:
        terms = " ".join(f"{name}={value:.5f}" for name, value in step.losses.items())
        self._write(f"task {step.task + 1} epoch {step.epoch + 1}/{step.epochs} {terms}")
        if self.events is not None:
            for name, value in step.losses.items():
                self.events.add_scalar(f"loss/task{step.task + 1}/{name}", value, step.epoch + 1)

    def stage(self, task: int, name: str) -> None:
        self.bar.update(self.row, description=f"{self.title}  task {task + 1}/{len(self.work)}  {name}", losses="")

    def finished_step(self, metrics: dict[str, Any]) -> None:
        task = len(metrics["steps"])
        self.done, self.in_task = sum(self.work[:task]), 0
        last = metrics["steps"][-1]
        numbers = "  ".join(f"{NAMES[name][0]} {last[name]:.1f}" for name in NAMES)
        line = f"step {last['step']} ({sum(self.classes[:task])} classes)  {numbers}  {last['seconds']:.0f} s"
        self._write(line)
        self.bar.update(self.row, completed=self.done)
        self.console.print(f"{self.title}  {line}", highlight=False)
        if self.events is not None:
            for name in NAMES:
                self.events.add_scalar(f"metrics/{name}", last[name], last["step"])

    def _write(self, line: str) -> None:
        assert self.log is not None
        print(time.strftime("%Y-%m-%d %H:%M:%S"), line, file=self.log, flush=True)


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


def _event_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        raise UserError("TensorBoard is not installed; run: pip install 'efcil[tensorboard]'") from None
    return SummaryWriter(str(folder))
