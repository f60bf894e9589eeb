"""What runs cost: their time, and what their methods keep between tasks."""

from __future__ import annotations

from efcil.report.bars import Bar, Bars
from efcil.report.found import Run
from efcil.report.lines import Curves, Series
from efcil.report.scenario import Scenario
from efcil.report.sections import Section
from efcil.report.table import size


def seconds(scenario: Scenario) -> Section:
    """Time of every run, by phase where the run has noted it, and of every step."""
    phases = dict.fromkeys(
        name for run in scenario.runs for step in run.metrics["steps"] for name in step.get("phase_seconds", {})
    )
    bars = []
    for run in scenario.runs:
        spent: dict[str, float] = {}
        for step in run.metrics["steps"]:
            for name, value in step.get("phase_seconds", {}).items():
                spent[name] = spent.get(name, 0.0) + value
        known = {name: value for name, value in spent.items() if name != "other"}
        rest = max(float(run.metrics["seconds"]) - sum(known.values()), 0.0)
        bars.append(Bar(scenario.run_name(run), {**known, "other": rest}, style_of(scenario, run)))
    styles = {name: 4 + place for place, name in enumerate(phases) if name != "other"} | {"other": 3}
    slow, quick = max(bars, key=total), min(bars, key=total)
    summary = f"{slow.name} takes longest, {clock(total(slow))}"
    summary += f", {quick.name} shortest, {clock(total(quick))}." if len(bars) > 1 else "."
    title = "Time of each phase" if phases else "Time of each run"
    figures = [Bars(title, summary, bars, styles, clock).figure()]
    series = [Series(entry.name, entry.per_step("seconds"), entry.style) for entry in scenario.entries]
    per_step = Curves(
        "Time of each step",
        f"Seconds per step; {summary}",
        "step",
        "seconds",
        scenario.steps,
        series,
        low=0.0,
        unit=" s",
    )
    text = ["Measured while the runs were made; other work on the machine counts too."]
    if not phases:
        text.append("These runs did not write down their phases.")
    return Section("time", "Time", text, [*figures, per_step.figure()])


def total(bar: Bar) -> float:
    return sum(bar.parts.values())


def style_of(scenario: Scenario, run: Run) -> int:
    return next(entry.style for entry in scenario.entries if run in entry.runs)


def memory(scenario: Scenario) -> Section:
    """What is kept between tasks besides the network."""
    bars = [
        Bar(entry.name, {"kept": float(max(run.metrics["kept_bytes"] for run in entry.runs))}, entry.style)
        for entry in scenario.entries
    ]
    most = max(bars, key=total)
    summary = f"{most.name} keeps most, {size(total(most))}." if total(most) else "Nothing is kept."
    figures = [Bars("Kept after the last step", summary, bars, {"kept": 4}, size).figure()]
    series = [
        Series(entry.name, [step["kept_bytes"] for step in entry.first.metrics["steps"]], entry.style)
        for entry in scenario.entries
        if all("kept_bytes" in step for step in entry.first.metrics["steps"])
    ]
    if series:
        chart = Curves("Kept after each step", summary, "step", "", scenario.steps, series, low=0.0, told=size)
        figures.append(chart.figure())
    text = [
        "Bytes that the method keeps between tasks besides networks. A second network, such as the first one that "
        "cargo keeps, is not counted, nor are images that an upper bound such as joint is given again."
    ]
    return Section("memory", "Memory kept", text, figures)


def clock(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
