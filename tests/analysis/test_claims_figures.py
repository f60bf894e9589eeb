"""Claims that figures decide: measures of their numbers, verdicts, and numbers gathered from real runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import efcil.analysis.claims
from efcil.analysis.claims import FAILS, HOLDS, NOT_RUN, OPEN, claims, decided, measures_of
from efcil.analysis.claims_commands import cost
from efcil.analysis.claims_evidence import Evidence, Run, figure_path, read_figure
from efcil.analysis.claims_figures import FIGURES, draw, gather, wanted
from efcil.analysis.claims_measures import MEASURES
from efcil.analysis.claims_page import section
from efcil.analysis.runs import found_runs
from efcil.analysis.style import as_csv, pyplot
from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.bench.runs import Unwatched, run
from efcil.cli import main
from efcil.engine import numerics
from efcil.errors import UserError

Rows = list[dict[str, Any]]
WRONG = 999.0  # stands wherever a measure must not look

# The rows of a figure from which these measures come out


def rows_of_1(values: Mapping[str, float]) -> Rows:
    rows = [{"network": "frozen", "first_classes": 10, "plasticity_potential": values["plasticity potential"]}]
    return [*rows, {"network": "joint", "first_classes": 100, "plasticity_potential": WRONG}]


def rows_of_3(values: Mapping[str, float]) -> Rows:
    rows = []
    for name, value in values.items():
        if name.startswith("change"):
            panel, measure, direction = "first task", "change of probabilities", name.split()[3]
        else:
            measure, _, how = name.partition(" with")
            panel = "end" if measure == "A_step" else "all tasks"
            direction = {"out noise": "clean", " noise along E": "along", " noise across E": "across"}[how]
        about = {"panel": panel, "measure": measure}
        if direction == "clean":
            rows += [{**about, "direction": way, "strength": 0.0, "value": value} for way in ("along", "across")]
        else:
            noise = ((0.5, value - 0.01), (1.0, value + 0.01))
            rows += [{**about, "direction": direction, "strength": s, "value": v} for s, v in noise]
        if panel == "first task":
            rows.append({**about, "direction": direction, "strength": 0.0, "value": WRONG})
            rows.append({**about, "panel": "end", "direction": direction, "strength": 1.0, "value": WRONG})
    return rows


def rows_of_4(values: Mapping[str, float]) -> Rows:
    first, second = (values.get(f"points lost per step, {part} half of the tasks", WRONG) for part in FIRST_SECOND)
    rows: Rows = []
    for task, lost in ((1, first), (2, first), (3, second), (4, 0)):
        rows += [{"step": step, "task": task, "accuracy": WRONG} for step in range(task + 1, 4)]
        rows.append({"step": task, "task": task, "accuracy": 90.0})
        if task < 4:
            rows.append({"step": 4, "task": task, "accuracy": 90.0 - lost * (4 - task)})
    return rows


def rows_of_5(values: Mapping[str, float]) -> Rows:
    ((name, value),) = values.items()
    late = WRONG if "first half" in name else value
    drift = [{"step": step, "drift": value if step < 4 else late} for step in (2, 3, 4, 5)]
    across = 1 - value if name.startswith("share") else value
    along = value if name.startswith("share") else WRONG
    return [{**row, "along_previous": 3 * along, "across_previous": (3 if along < 1 else 1) * across} for row in drift]


def rows_of_9(values: Mapping[str, float]) -> Rows:
    part = values.get("part of the distance that updating leaves", 0.5)
    fixed = values.get("distance of fixed prototypes", 8.0)
    updated = values.get("distance of updated prototypes", part * fixed)
    rows = [{"start": "warm", "classes_of_step": 0, "fixed": WRONG, "updated": WRONG / 7}]
    return rows + [
        {"start": "warm", "classes_of_step": step, "fixed": fixed + shift, "updated": updated + shift}
        for step, shift in ((1, -0.25), (2, 0.25))
    ]


def rows_of_10(values: Mapping[str, float]) -> Rows:
    off = int(values.get("rank off classes - 1", 0))
    share = values.get("share of eigenvalues above η/λ", 1.0)
    rows = []
    for step, classes, rank in ((1, 11, 10), (2, 21, 20 + off)):
        values_of_step = [2.0 if place < round(share * rank) else 0.005 for place in range(rank)]
        about = {"step": step, "classes": classes, "rank": rank, "eta/lambda": 0.01}
        rows += [{**about, "index": place + 1, "eigenvalue": value} for place, value in enumerate(values_of_step)]
    return rows


def rows_of_12(values: Mapping[str, float]) -> Rows:
    whole = values.get("seconds of a step", 10.0)
    training = values.get("seconds of training", whole if "seconds of a step" in values else 10.0)
    statistics = values.get("EFM and prototypes per training", 0.0) * training
    halves = [values.get(f"seconds of re-balancing, {part} half of the steps", 0.0) for part in FIRST_SECOND]
    rows = [{"step": 1, "phase": phase, "seconds": WRONG} for phase in ("training", "re-balancing", "statistics")]
    for step in (2, 3, 4, 5):
        balance = values.get("re-balancing per training", 0.0) * training + halves[step > 3]
        phases = {"training": training, "statistics": statistics, "re-balancing": balance, "evaluation": WRONG}
        rows += [{"step": step, "phase": phase, "seconds": seconds} for phase, seconds in phases.items()]
    return rows


FIRST_SECOND = ("first", "second")
ROWS: dict[str, Callable[[Mapping[str, float]], Rows]] = {
    "1": rows_of_1,
    "3": rows_of_3,
    "4": rows_of_4,
    "5": rows_of_5,
    "9": rows_of_9,
    "10": rows_of_10,
    "12": rows_of_12,
}


def write_figure(figures: Path, preset: str, figure: str, values: Mapping[str, list[Mapping[str, float]]]) -> None:
    """The CSV of a figure that has these measures, for each method seed by seed."""
    rows: Rows = []
    for method, seeds in values.items():
        (cell,) = cells([preset], [method], [0])
        for seed, measures in enumerate(seeds):
            about = {"method": method, "seed": seed, "numerics": 2, "config_digest": cell.config_digest}
            rows += [{**about, **row} for row in ROWS[figure](measures)]
    path = figure_path(figures, preset, figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_csv(rows))


# What both sides of each claim are where it holds, and where it does not: of methods, or of measures of one method

FD, SQUARED = "efc++:options.regularizer=fd", "efc++:options.lambda_efm=0"
COLD = "efc++:stream.kind=cold,stream.first_classes=0,stream.skip_classes=50"
FIRST = [f"freeze:stream.kind=warm,stream.first_classes={count},stream.steps=1" for count in (10, 20, 30, 40, 50)]
CLEAN, ALONG, ACROSS = "without noise", "with noise along E", "with noise across E"


def noisy(clean: float, along: float, across: float) -> dict[str, float]:
    """The accuracies of Figure 3 on three tasks, the last of which has these."""
    found = {f"accuracy on task {task} {how}": value for task in (1, 2) for how, value in ((CLEAN, 60), (ACROSS, 60))}
    found |= {f"accuracy on task {task} {ALONG}": 20.0 for task in (1, 2)}
    return found | {f"accuracy on task 3 {how}": v for how, v in ((CLEAN, clean), (ALONG, along), (ACROSS, across))}


def change(along: float, across: float) -> dict[str, float]:
    name = "change of probabilities"
    return {f"{name} along E_1": along, f"{name} across E_1": across}


def at_end(clean: float, along: float, across: float) -> dict[str, float]:
    return {f"A_step {CLEAN}": clean, f"A_step {ALONG}": along, f"A_step {ACROSS}": across}


def halves(name: str, what: str, first: float, second: float) -> dict[str, float]:
    return {f"{name}, first half of the {what}": first, f"{name}, second half of the {what}": second}


def both(name: str, first: float, second: float) -> dict[str, float]:
    return {name.format("fixed"): first, name.format("updated"): second}


LOST, BALANCE, DISTANCE = "points lost per step", "seconds of re-balancing", "distance of {} prototypes"
SHARE, RANK = "share of eigenvalues above η/λ", "rank off classes - 1"
EXAMPLES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "potential-cold-warm": ({FIRST[0]: 40, FIRST[4]: 20}, {FIRST[0]: 20, FIRST[4]: 40}),
    "potential-shrinks": (
        dict(zip(FIRST, (50, 40, 30, 20, 10), strict=True)),
        dict(zip(FIRST, (50, 40, 30, 10, 20), strict=True)),
    ),
    "efm-first-task": (change(0.4, 0.0), change(0.4, 0.3)),
    "efm-all-tasks": (noisy(60, 20, 60), noisy(60, 80, 60)),
    "efm-end": (at_end(50, 10, 50), at_end(50, 10, 30)),
    "efm-holds-along": ({"efc++": 0.2, FD: 0.4, SQUARED: 0.5}, {"efc++": 0.45, FD: 0.4, SQUARED: 0.5}),
    "efm-frees-across": ({"efc++": 5, FD: 2}, {"efc++": 2, FD: 5}),
    "drift-efc": ({"efc": 2, "efc++": 1}, {"efc": 1, "efc++": 2}),
    "drift-efc-early": ({"efc": 2, "efc++": 1}, {"efc": 1, "efc++": 2}),
    "efc-forgets-early-tasks": (halves(LOST, "tasks", 6, 2), halves(LOST, "tasks", 2, 6)),
    "early-tasks-kept": ({"efc": 6, "efc++": 2}, {"efc": 2, "efc++": 6}),
    "prototypes-follow-warm": (both(DISTANCE, 8, 4), both(DISTANCE, 4, 8)),
    "prototypes-follow-cold": (both(DISTANCE, 8, 4), both(DISTANCE, 4, 8)),
    "cold-drifts-more": ({COLD: 9, "efc++": 4}, {COLD: 4, "efc++": 9}),
    "update-weaker-cold": ({COLD: 0.8, "efc++": 0.3}, {COLD: 0.3, "efc++": 0.8}),
    "rank": ({RANK: 0}, {RANK: 3}),
    "damping-below-spectrum": ({SHARE: 1.0}, {SHARE: 0.5}),
    "time-backbone": ({"lwf": 90, "efc": 110, "efc++": 100}, {"lwf": 90, "efc": 160, "efc++": 100}),
    "time-slightly-more": ({"efc++": 120, "efc": 100, "lwf": 90}, {"efc++": 95, "efc": 100, "lwf": 90}),
    "time-no-overhead": ({"efc++": 120, "efc": 100}, {"efc++": 180, "efc": 100}),
    "time-ssre": ({"efc++": 120, "ssre": 100}, {"efc++": 50, "ssre": 100}),
    "time-pass": ({"pass": 200, "efc++": 100}, {"pass": 90, "efc++": 100}),
    "time-efm": ({"EFM and prototypes per training": 0.01}, {"EFM and prototypes per training": 0.2}),
    "time-rebalancing": ({"re-balancing per training": 0.25}, {"re-balancing per training": 0.6}),
    "time-rebalancing-grows": (halves(BALANCE, "steps", 10, 12), halves(BALANCE, "steps", 12, 10)),
}
BY_FIGURE = {claim["id"]: claim for claim in claims() if any(MEASURES[name].figure for name in measures_of(claim))}


def measured(claim: Mapping[str, Any], example: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The measures of each method in an example."""
    if "method" in claim:
        return {claim["method"]: dict(example)}
    return {method: {claim["metric"]: value} for method, value in example.items()}


def verdict_on(claim: Mapping[str, Any], examples: list[Mapping[str, float]], folder: Path) -> str:
    """What is said if the seeds are these examples."""
    preset = f"{claim['scenarios'][0]}-fast"
    seeds = [measured(claim, example) for example in examples]
    figure = MEASURES[measures_of(claim)[0]].figure
    write_figure(folder, preset, figure, {method: [seed[method] for seed in seeds] for method in seeds[0]})
    evidence = Evidence({}, folder)
    for method in seeds[0]:
        for name in seeds[0][method]:
            found = evidence.values(preset, method, name)
            told = [found[Run(numerics.VERSION, seed)] for seed in range(len(seeds))]
            assert told == pytest.approx([seed[method][name] for seed in seeds], rel=1e-4, abs=1e-6), (method, name)
    return decided(claim, evidence, "fast").by_preset[preset]


def test_every_claim_of_a_figure_has_an_example() -> None:
    assert EXAMPLES.keys() == BY_FIGURE.keys()
    assert {MEASURES[name].figure for claim in BY_FIGURE.values() for name in measures_of(claim)} == ROWS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_claim_of_a_figure_holds_fails_or_stays_open(name: str, tmp_path: Path) -> None:
    claim, (good, bad) = BY_FIGURE[name], EXAMPLES[name]
    assert verdict_on(claim, [good, good, good], tmp_path) == HOLDS
    assert verdict_on(claim, [bad, bad, bad], tmp_path) == FAILS
    assert verdict_on(claim, [good, bad, good], tmp_path) == OPEN
    assert verdict_on(claim, [good, good], tmp_path) == f"{OPEN} (2 seeds)"
    assert decided(claim, Evidence({}, tmp_path / "none"), "fast").by_preset[f"{claim['scenarios'][0]}-fast"] == NOT_RUN


def test_numbers_of_other_settings_do_not_count_and_those_of_older_numerics_stand_apart(tmp_path: Path) -> None:
    preset, drift = "cifar100-cold10-fast", "drift along E_t"
    write_figure(tmp_path, preset, "5", {"efc++": [{drift: 3.0}] * 2})
    path = figure_path(tmp_path, preset, "5")
    older = [{**row, "numerics": "1", "drift": "7"} for row in read_figure(path) if row["seed"] == "0"]
    path.write_text(as_csv([*older, *read_figure(path)]))
    values = Evidence({}, tmp_path).values(preset, "efc++", drift)
    assert values == {Run(1, 0): 7.0, Run(2, 0): 3.0, Run(2, 1): 3.0}
    assert not Evidence({}, tmp_path).values(preset, "efc++:options.eta=7", drift)


def test_all_that_figure_1_needs_is_counted_and_joint_training_by_its_row(tmp_path: Path) -> None:
    preset = "cifar100-cold10-fast"
    write_figure(tmp_path, preset, "1", {method: [{"plasticity potential": 50.0}] * 5 for method in FIRST})
    rows = {}
    for cell in cells([preset], expanded(["@figure1"]), range(5)):
        row = {"preset": preset, "method": cell.method, "changes": cell.key[2], "seed": str(cell.seed)}
        rows[cell.identity] = {**row, "numerics": "2", "config_digest": cell.config_digest, "seconds": "3600"}
    claim = BY_FIGURE["potential-shrinks"]
    assert cost(claim, "fast", Evidence(rows, tmp_path)) == "All 30 runs are there."
    without = {identity: row for identity, row in rows.items() if row["method"] != "joint"}
    assert cost(claim, "fast", Evidence(without, tmp_path)).startswith("25 of 30 runs are there with today's numerics;")


def test_a_damaged_figure_is_one_sentence(tmp_path: Path) -> None:
    path = figure_path(tmp_path, "cifar100-cold10-fast", "5")
    write_figure(tmp_path, "cifar100-cold10-fast", "5", {"efc++": [{"drift along E_t": 3.0}]})
    whole = path.read_text()
    damaged = dict.fromkeys(
        ("step,drift\n1,2\n", whole + "efc++,0\n", whole.replace("efc++,0,", "efc++,zero,")), "is not a figure's table"
    )
    assert whole not in damaged
    for text, why in {**damaged, whole.replace(",3", ",x"): "lacks a number"}.items():
        path.write_text(text)
        with pytest.raises(UserError, match=why):
            Evidence({}, tmp_path).values("cifar100-cold10-fast", "efc++", "drift along E_t")
    with pytest.raises(UserError, match="did you mean drift along E_t"):
        Evidence({}, tmp_path).values("cifar100-cold10-fast", "efc++", "drift along E")


def test_the_page_shows_the_figure_and_how_to_make_it(tmp_path: Path) -> None:
    claim = BY_FIGURE["drift-efc"]
    verdict_on(claim, [EXAMPLES["drift-efc"][0]] * 3, tmp_path)
    evidence = Evidence({}, tmp_path)
    drawn: set[str] = set()
    text, again = ("\n".join(section([decided(claim, evidence, "fast")], ["fast"], evidence, drawn)) for _ in range(2))
    assert "**fast: holds**" in text and "| `efc > efc++` (holds) | cifar100-cold10-fast | 3 | 2 | 1 | +1 ± 0 |" in text
    picture = "[Figure 5 on cifar100-cold10-fast](results/figures/cifar100-cold10-fast/figure5.svg)"
    assert f"!{picture}" in text and picture not in again and "[picture](results/figures/" in again
    assert "--methods efc efc++ --out runs --keep-states" in text and "efcil claims --runs runs" in text
    rank = "\n".join(section([decided(BY_FIGURE["rank"], evidence, "fast")], ["fast"], evidence, drawn))
    assert "--keep-states" not in rank and "picture" not in rank  # recorded by every run; none was made


# From real runs

TINY = "width=4,stem_stride=2,data.images_per_class=20,stream.steps=3,first.epochs=6,incremental.epochs=3"
OURS = f"efc++:{TINY},options.statistics_view=eval,options.rebalancing.epochs=5"
DIGITS = {"where": "§0", "says": "It is so.", "scenarios": ["digits"]}


def make(out: Path, method: str, seed: int, keep_states: bool = True) -> Path:
    (cell,) = cells(["digits-cold5"], [method], [seed])
    run(cell.config, cell.preset, out / cell.name, Unwatched(), keep_states=keep_states)
    return out / cell.name


@pytest.mark.slow
def test_figures_of_real_runs_decide_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [
        {**DIGITS, "id": "rank", "method": OURS, "margin": 0.5, "compare": [[RANK, "=", [0]]]},
        {**DIGITS, "id": "noise", "method": OURS, "compare": [[f"A_step {ACROSS}", "=", [f"A_step {CLEAN}"]]]},
        {**DIGITS, "id": "order", "method": OURS, "compare": [[DISTANCE.format("fixed"), ">", [0]]]},
        {**DIGITS, "id": "drift", "metric": "drift along E_t", "compare": [[OURS, ">", [0]]]},
        {**DIGITS, "id": "share", "metric": "share of the drift along E_(t-1)", "compare": [[1, ">", [OURS]]]},
        {**DIGITS, "id": "lost", "metric": f"{LOST}, first half of the tasks", "compare": [[OURS, ">", [-100]]]},
        {**DIGITS, "id": "time", "method": OURS, "compare": [[1, ">", ["EFM and prototypes per training"]]]},
        {**DIGITS, "id": "never", "method": OURS, "compare": [[0, ">", [DISTANCE.format("updated")]]]},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(efcil.analysis.claims, "claims", lambda: listed)
        table, runs, figures = tmp_path / "runs.csv", tmp_path / "runs", tmp_path / "figures"
        from efcil.bench.results import COLUMNS

        table.write_text(",".join(COLUMNS) + "\n")
        for seed in (0, 1, 2):
            make(runs, OURS, seed)
        make(runs, "finetune:" + TINY, 0, keep_states=False)  # which no claim asks for
        arguments = ["claims", "--results", str(table), "--figures", str(figures), "--scales", "cold5", "--json"]
        assert main([*arguments, "--runs", str(runs)]) == 0
        said = capsys.readouterr()
        told = {claim["id"]: claim["verdicts"]["cold5"] for claim in json.loads(said.out)}
        assert {name: verdict["verdict"] for name, verdict in told.items()} == {
            **dict.fromkeys(("rank", "noise", "order", "drift", "share", "lost", "time"), HOLDS),
            "never": FAILS,
        }
        assert {path.name for path in (figures / "digits-cold5").iterdir()} == {
            f"figure{number}.{kind}" for number in ("3", "4", "5", "9", "10", "12") for kind in ("csv", "svg")
        }
        assert len(said.err.splitlines()) == 6
        before = {path: path.read_bytes() for path in figures.rglob("*.csv")}
        assert main([*arguments, "--runs", str(runs)]) == 0 and not capsys.readouterr().err  # nothing is made twice
        assert main(arguments) == 0  # the files are enough
        assert {c["id"]: c["verdicts"]["cold5"] for c in json.loads(capsys.readouterr().out)} == told
        assert before == {path: path.read_bytes() for path in figures.rglob("*.csv")}
    found = found_runs([runs])
    assert list(gather(found, BY_FIGURE.values(), ["fast"], tmp_path / "none", None)) == [
        f"None of {len(found)} runs is one that a figure of these claims needs; they are of others, or changed."
    ]


@pytest.mark.slow
def test_figure_1_is_gathered_seed_by_seed_and_runs_without_states_are_named(tmp_path: Path) -> None:
    settings = "width=4,stem_stride=2,data.images_per_class=20,first.epochs=6"
    frozen = [f"freeze:{settings},stream.kind=warm,stream.first_classes={n},stream.steps=1" for n in (2, 5)]
    claim = {
        **DIGITS,
        "id": "potential",
        "metric": "plasticity potential",
        "compare": [[frozen[0], ">", [frozen[1], f"joint:{settings},stream.steps=1"]]],
    }
    for seed in (0, 1):
        for method in frozen:
            make(tmp_path / "runs", method, seed, keep_states=False)
    make(tmp_path / "runs", f"joint:{settings},stream.steps=1", 1, keep_states=False)
    make(tmp_path / "runs", OURS, 0, keep_states=False)
    order = {**DIGITS, "id": "order", "method": OURS, "compare": [[DISTANCE.format("fixed"), ">", [0]]]}
    runs = found_runs([tmp_path / "runs"])
    lines = list(gather(runs, [claim, order], ["cold5"], tmp_path, None))
    assert len(lines) == 3 and "with joint training in one step" in lines[0] and "--keep-states" in lines[2]
    values = [Evidence({}, tmp_path).values("digits-cold5", method, "plasticity potential") for method in frozen]
    rows = read_figure(figure_path(tmp_path, "digits-cold5", "1"))
    best = next(float(row["probe_accuracy"]) for row in rows if row["network"] == "joint")
    assert [{run.seed for run in found} for found in values] == [{1}, {1}] and len(rows) == 3
    for found, method in zip(values, frozen, strict=True):
        own = next(row for row in rows if row["method"] == method)
        assert found[Run(numerics.VERSION, 1)] == pytest.approx(best - float(own["probe_accuracy"]), abs=1e-3)


def test_a_picture_shows_runs_that_count_and_no_older_ones_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: Rows = []

    def draw_bars(rows: Rows) -> Any:
        shown[:] = rows
        return pyplot().figure()

    monkeypatch.setitem(FIGURES, "12", (FIGURES["12"][0], draw_bars))
    runs = [("efc++", 0, 1, "a"), ("efc++", 0, 2, "a"), ("efc++", 1, 2, "gone"), ("efc", 0, 1, "b")]
    about = [dict(zip(("method", "seed", "numerics", "config_digest"), run, strict=True)) for run in runs]
    path = tmp_path / "figure12.csv"
    path.write_text(as_csv([{**row, "step": 1, "phase": "training", "seconds": 5} for row in about]))
    draw(path, "12", {"a", "b"})
    assert [(row["run"], row["numerics"]) for row in shown] == [("efc++, seed 0", 2), ("efc, seed 0", 1)]


def test_a_figure_wants_the_runs_of_its_claims() -> None:
    found = wanted([BY_FIGURE["drift-efc"], BY_FIGURE["efm-holds-along"]], ["fast", "cpu"])
    assert set(found) == {("cifar100-cold10-fast", "5"), ("cifar100-cold10-cpu", "5")}
    assert set(found["cifar100-cold10-fast", "5"].values()) == {"efc", "efc++", FD, SQUARED}
    (potential,) = wanted([BY_FIGURE["potential-cold-warm"]], ["fast"]).values()
    assert sorted(name.split(":")[0] for name in potential.values()) == ["freeze"] * 5 + ["joint"]
