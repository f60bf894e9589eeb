"""Tables of a campaign: live while it runs, and the summary beside the paper's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.table import Table

from efcil.bench.campaign import Job
from efcil.bench.published import published

HEADINGS = ("A_step", "A_inc", "F", "PL", "minutes", "kept MB")
STYLE = {"running": "yellow", "failed": "bold red", "done": "green"}  # in the order of the live table
SHORT = 0.01  # hours that are not told more exactly


def campaign_table(jobs: list[Job]) -> Table:
    """A row per run that has begun, those at work on top, with its numbers so far; what waits is counted."""
    counts = Counter(job.status for job in jobs)
    queued = f", {counts['queued']} in the queue" if counts["queued"] else ""
    table = compact_table(f"{counts['done']} of {len(jobs)} runs done, {counts['waiting']} waiting{queued}")
    table.add_column("preset", no_wrap=True)
    table.add_column("method", overflow="fold")
    for name in ("seed", "status", "step", "A_step", "A_inc", "minutes"):
        table.add_column(name, justify="right", no_wrap=True)
    begun = [job for job in jobs if job.status in STYLE]
    for job in sorted(begun, key=lambda job: list(STYLE).index(job.status)):
        metrics: dict[str, Any] = job.metrics()
        steps = metrics.get("steps") or []
        numbers = (
            [
                f"{len(steps)}/{len(metrics['classes_per_task'])}",
                f"{metrics['per_step_accuracy']:.1f}",
                f"{metrics['average_incremental_accuracy']:.1f}",
                f"{metrics['seconds'] / 60:.1f}",
            ]
            if steps
            else [""] * 4
        )
        table.add_row(
            job.cell.preset, job.cell.label, str(job.cell.seed), job.status, *numbers, style=STYLE[job.status]
        )
    return table


class CampaignLog:
    """The campaign line by line, for a file or a pipe: what begins, ends and fails, each as soon as it is known."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.seen: list[str] = []  # the status of every run when it was last looked at

    def __call__(self, jobs: list[Job]) -> None:
        done = sum(job.status == "done" for job in jobs)
        if not self.seen:
            self.say(f"{done} of {len(jobs)} runs done before")
        before = self.seen or ["done" if job.status == "done" else "waiting" for job in jobs]
        for job, status in zip(jobs, before, strict=True):
            if job.status != status and (news := self.news(job)):
                self.say(f"{done}/{len(jobs)} done; {job.cell.preset} {job.cell.label} seed {job.cell.seed}: {news}")
        self.seen = [job.status for job in jobs]

    @staticmethod
    def news(job: Job) -> str:
        """What has become of a run; that it waits is none."""
        if job.status == "done" and (metrics := job.metrics()):  # none here if another campaign did it in its folder
            return f"finished with A_step {metrics['per_step_accuracy']:.1f} % in {metrics['seconds'] / 60:.1f} minutes"
        return {"running": "started", "done": "finished", "failed": f"failed: {job.message}"}.get(job.status, "")


def plan_table(plan: list[dict[str, Any]]) -> Table:
    """A line per run and per stale row, with their numbers on top; why hours are not known is said below it, once."""
    counts = Counter(line["status"].partition(":")[0] for line in plan)
    table = compact_table(f"{counts['done']} done, {counts['to run']} to run, {counts['stale']} stale rows")
    for name in ("preset", "method", "seed", "status", "hours", "hours from"):
        table.add_column(name, overflow="fold", no_wrap=name in ("preset", "seed", "hours"))
    for line in plan:
        known = line.get("hours") is not None
        source = line.get("hours_from", "")
        words = [str(line[name]) for name in ("preset", "method", "seed", "status")]
        hours = "" if not known else f"{line['hours']:.2f}" if line["hours"] >= SHORT else f"< {SHORT}"
        table.add_row(*words, hours, source if known else source.partition(":")[0])
    return table


def compact_table(title: str) -> Table:
    """No more space than a window of 80 columns has: numbers stay whole, long names of methods fold."""
    return Table(box=None, padding=(0, 1, 0, 0), title=f"\n{title}")


def summary_table(preset: str, lines: list[dict[str, Any]]) -> Table:
    """Mean ± standard deviation over seeds, with the paper's number for the same cell where there is one."""
    shared = in_all([line["changes"] for line in lines])
    told = f", all with {' '.join(shared)}" if shared else ""
    table = compact_table(f"{preset}, mean±standard deviation over seeds, in %{told}")
    table.add_column("method", overflow="fold")
    for name in ("seeds", *HEADINGS, "paper"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        own = [change for change in line["changes"].split() if change not in shared]
        numbers = [*formatted(line), paper_cell(preset, line["label"])]
        label = " ".join([line["method"], *own])
        table.add_row(label, str(line["seeds"]), *(number.replace(" ", "") for number in numbers))
    return table


def in_all(changes: list[str]) -> list[str]:
    """The settings that several lines have in common, which a title can say once for all of them."""
    first, *others = [line.split() for line in changes] or [[]]
    return [change for change in first if others and all(change in line for line in others)]


def formatted(line: dict[str, Any]) -> list[str]:
    """The four numbers with their spread, the minutes, and the megabytes kept between tasks besides the network."""
    names = ("per_step_accuracy", "average_incremental_accuracy", "average_forgetting", "plasticity")
    spread = {name: "" if line[f"{name}_std"] is None else f" ± {line[f'{name}_std']:.1f}" for name in names}
    numbers = [f"{line[name]:.1f}{spread[name]}" for name in names]
    minutes = f"{line['minutes']:.{0 if line['minutes'] >= 1 else 1}f}"
    return [*numbers, minutes, f"{line['kept_bytes'] / 1e6:.2f}"]


def paper_cell(preset: str, label: str) -> str:
    numbers = published(preset, label)
    return "" if numbers is None else " / ".join("–" if value is None else f"{value:.1f}" for value in numbers)


def trials_table(goal: str, rows: list[dict[str, Any]], best: dict[str, Any] | None, left: int | None = None) -> Table:
    """A line per trial of a study, the best one bold; those at work on top while it goes on."""
    counts = Counter(row["status"] for row in rows)
    waiting = "" if left is None else f", {left} to come"
    told = ", ".join(
        f"{counts[status]} {status}" for status in ("done", "pruned", "failed", "running") if counts[status]
    )
    table = compact_table(f"{len(rows)} trials: {told or 'none yet'}{waiting}")
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for name in ("status", "steps", goal, "minutes"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda row: row["status"] != "running") if left is not None else rows:
        numbers = ["" if row[goal] is None else f"{row[goal]:.2f}", f"{row['minutes']:.1f}"]
        style = "bold green" if best and row["trial"] == best["trial"] else STYLE.get(row["status"], "dim")
        words = " ".join(row["settings"]) + (f" ({row['message']})" if row["message"] else "")
        style = "" if style == STYLE["done"] else style
        table.add_row(str(row["trial"]), words, row["status"], str(row["steps"]), *numbers, style=style)
    return table
