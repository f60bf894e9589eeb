"""Verdicts on the paper's claims: the test behind them, paired seeds, and the page that tells them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from efcil.analysis.claims import (
    FAILS,
    HOLDS,
    LEVEL,
    NOT_RUN,
    OPEN,
    claims,
    decided,
    judged,
    measures_of,
    one_sided,
    proofs,
    questions,
    upper_tail,
)
from efcil.analysis.claims_commands import commands, cost
from efcil.analysis.claims_evidence import Evidence, Run, of_one_version
from efcil.analysis.claims_measures import MEASURES
from efcil.analysis.claims_page import chance, counted, more_in_part, page, section, summary
from efcil.bench.campaign import cells
from efcil.bench.grids import expanded
from efcil.bench.results import COLUMNS, Results
from efcil.bench.scenarios import preset_names, resolve
from efcil.cli import main
from efcil.commands.output import print_rows
from efcil.engine import numerics

CLAIM = {"id": "x", "where": "§0", "says": "A is good.", "scenarios": ["cifar100-cold10"]}


def results_of(values: dict[str, Sequence[float]], preset: str = "cifar100-cold10-cpu", version: int = 0) -> Results:
    """Rows of today's settings: for each method its A_step by seed."""
    found: Results = {}
    for method, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            (cell,) = cells([preset], [method], [seed])
            identity = (*cell.key, str(version or numerics.VERSION), cell.config_digest)
            row = dict.fromkeys(COLUMNS, "0") | dict(
                zip(("preset", "method", "changes", "seed", "numerics", "config_digest"), identity, strict=True)
            )
            found[identity] = row | {"per_step_accuracy": str(accuracy), "settings": cell.settings}
    return found


@pytest.mark.parametrize("freedom", range(1, 12))
@pytest.mark.parametrize("t", [-3.2, -1.0, 0.0, 0.5, 2.3, 7.0])
def test_the_tail_is_that_of_students_distribution(t: float, freedom: int) -> None:
    assert upper_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-12)


def test_one_sided_is_the_paired_t_test() -> None:
    first, second = [20.1, 22.0, 19.5, 23.0], [19.0, 21.7, 19.9, 21.0]
    expected = stats.ttest_rel(first, second, alternative="greater").pvalue
    assert one_sided([a - b for a, b in zip(first, second, strict=True)]) == pytest.approx(expected)
    assert [one_sided([d, d]) for d in (2.0, -2.0, 0.0)] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("differences", "relation", "verdict"),
    [
        ([1.0, 1.1, 0.9], ">", HOLDS),
        ([-1.0, -1.1, -0.9], ">", FAILS),
        ([1.0, -1.1, 0.9], ">", OPEN),
        ([0.1, -0.1, 0.0], "=", HOLDS),
        ([5.0, 5.1, 4.9], "=", FAILS),
        ([-5.0, -5.1, -4.9], "=", FAILS),
        ([0.1, -3.0, 2.0], "=", OPEN),
        ([5.0, 5.1, 4.9], "~", HOLDS),
        ([-0.2, -0.1, 0.0], "~", HOLDS),
        ([-5.0, -5.1, -4.9], "~", FAILS),
        ([-5.0, 5.1, -4.9], "~", OPEN),
    ],
)
def test_a_verdict_needs_certainty_in_its_direction(differences: list[float], relation: str, verdict: str) -> None:
    assert judged(differences, relation)[0] == verdict


def test_two_seeds_decide_nothing() -> None:
    assert judged([5.0, 5.1], ">")[0] == judged([5.0], ">")[0] == OPEN
    assert judged([5.0, 5.1, 4.9], ">")[0] == HOLDS


def test_one_comparison_of_many_must_be_surer_to_refute_a_claim() -> None:
    differences = [-1.0, -2.0, -0.9]
    verdict, above = judged(differences, ">")
    assert verdict == FAILS and LEVEL / 10 < 1 - above < LEVEL
    assert judged(differences, ">", among=10)[0] == OPEN
    assert judged([-1.0, -1.01, -0.99], ">", among=10)[0] == FAILS
    assert judged([1.0, 2.0, 0.9], ">", among=10)[0] == HOLDS  # to hold, all of them must anyway


def test_seeds_are_paired_within_one_version_of_the_numerics() -> None:
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc"]]]}
    results = results_of({"efc++": [20.0, 30.0, 25.0], "efc": [19.0, 28.0]})
    (comparison,) = decided(claim, Evidence(results), "cpu").comparisons
    assert (comparison.left, comparison.right) == ((20.0, 30.0), (19.0, 28.0))
    assert comparison.differences == (1.0, 2.0) and comparison.numerics == str(numerics.VERSION)
    mixed = results_of({"efc++": [20.0, 30.0]}) | results_of({"efc": [19.0, 28.0]}, version=1)
    assert not decided(claim, Evidence(mixed), "cpu").comparisons


def test_the_newest_numerics_count_once_they_have_seeds_enough() -> None:
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc"]]]}
    older = results_of({"efc++": [20.0, 30.0, 25.0], "efc": [19.0, 28.9, 24.1]}, version=1)

    def judgement(today: int) -> tuple[int, str]:
        newer = results_of({"efc++": [1.0, 2.0, 3.0][:today], "efc": [5.0, 6.1, 7.0][:today]})
        (comparison,) = decided(claim, Evidence(older | newer), "cpu").comparisons
        return len(comparison.left), f"{comparison.numerics} {comparison.verdict}"

    assert [judgement(today) for today in (0, 1, 2)] == [(3, "1 holds")] * 3
    assert judgement(3) == (3, "2 does not hold")
    runs = [Run(1, 0), Run(2, 0), Run(1, 1), Run(2, 7)]
    assert of_one_version(runs, 3) == [Run(2, 0), Run(2, 7)]  # as many of both: the newer ones
    assert of_one_version([], 3) == []


def test_many_comparisons_share_the_certainty_that_refutes() -> None:
    """-1, -2 and -0.9 refute a claim of one comparison, and none of ten."""
    behind = {"efc++": [20.0, 20.0, 20.0], "efc": [21.0, 22.0, 20.9]}
    others = ("lwf", "ewc", "pass", "fusion", "fetril", "ssre", "fecam", "abd", "r-dfcil")
    results = Evidence(results_of(behind | {name: [1.0, 2.0, 3.0] for name in others}))

    def verdict(right: Sequence[str]) -> str:
        return decided({**CLAIM, "compare": [["efc++", ">", right]]}, results, "cpu").by_preset["cifar100-cold10-cpu"]

    assert verdict(["efc"]) == FAILS and verdict(["efc", *others]) == OPEN


def test_a_lead_is_that_of_one_version_of_the_numerics() -> None:
    claim = {**CLAIM, "gain": ["efc++", "efc"], "scenarios": ["cifar100-cold10", "cifar100-warm10"]}
    cold = results_of({"efc++": [30.0], "efc": [1.0]}) | results_of({"efc": [20.0]}, version=1)
    warm = results_of({"efc++": [50.0], "efc": [49.0]}, "cifar100-warm10-cpu")
    (comparison,) = decided(claim, Evidence(cold | warm), "cpu").comparisons
    assert comparison.left == (29.0,)
    apart = results_of({"efc++": [30.0]}) | results_of({"efc": [20.0]}, version=1)
    assert not decided(claim, Evidence(apart | warm), "cpu").comparisons


def test_what_was_run_in_part_is_counted_apart() -> None:
    """Holds, fails and open where it was run, with a second scenario that nobody ran."""
    scenarios = ["cifar100-cold10", "cifar100-cold20"]
    results = Evidence(results_of({"efc++": [20.0, 21.0, 22.0], "efc": [10.0, 11.1, 12.0], "lwf": [30.0, 1.0, 9.0]}))
    sides = [("efc++", "efc"), ("efc", "efc++"), ("efc++", "lwf"), ("ewc", "pass")]
    rows = [{**CLAIM, "scenarios": scenarios, "compare": [[left, ">", [right]]]} for left, right in sides]
    rows += [{**row, "scenarios": scenarios[:1]} for row in rows[:2]]
    said = counted([[decided(row, results, "cpu")] for row in rows], ["cpu"])
    assert said.endswith(f"1 hold{more_in_part(1)}, 1 do not{more_in_part(1)}, 1 are undecided, 1 were not run.")
    assert "(2 more on those of their presets that were run)" in more_in_part(2) and not more_in_part(0)
    assert [chance(p) for p in (math.nan, 0.0312, 0.0004)] == ["", "0.031", "< 0.001"]


def test_a_number_stands_for_itself_and_a_margin_can_be_a_share() -> None:
    results = Evidence(results_of({"efc++": [20.0, 21.0, 19.0], "efc": [24.0, 25.0, 23.0]}))

    def verdict(left: Any, relation: str, right: Any, margin: Any = 1) -> str:
        claim = {**CLAIM, "compare": [[left, relation, [right]]], "margin": margin}
        return decided(claim, results, "cpu").by_preset["cifar100-cold10-cpu"]

    assert [verdict("efc++", ">", number) for number in (10, 20.1, 30)] == [HOLDS, OPEN, FAILS]
    assert [verdict(number, ">", "efc++") for number in (10, 30)] == [FAILS, HOLDS]
    assert [verdict("efc++", "=", "efc", share) for share in ("10%", "30%")] == [FAILS, HOLDS]


def test_above_can_mean_above_by_so_many_points() -> None:
    results = Evidence(results_of({"efc++": [30.0, 31.0, 32.0], "efc": [24.0, 25.1, 26.0]}))

    def verdict(by: float) -> str:
        claim = {**CLAIM, "compare": [["efc++", ">", ["efc"]]], "by": by}
        return decided(claim, results, "cpu").by_preset["cifar100-cold10-cpu"]

    assert [verdict(by) for by in (5, 5.97, 7)] == [HOLDS, OPEN, FAILS]
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc"]]], "by": 5}
    (comparison,) = decided(claim, results, "cpu").comparisons
    assert comparison.what == "efc++ > efc + 5" and comparison.mean == pytest.approx(5.97, abs=0.01)


def test_settings_of_a_claim_are_settings_of_all_its_runs() -> None:
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc++:options.eta=1"]]], "settings": ["width=8", "stream.tasks=2"]}
    with_them = {"efc++:width=8,stream.tasks=2": [30.0], "efc++:width=8,stream.tasks=2,options.eta=1": [20.0]}
    (comparison,) = decided(claim, Evidence(results_of(with_them)), "cpu").comparisons
    assert (comparison.left, comparison.right) == ((30.0,), (20.0,))
    other_order = {"efc++:stream.tasks=2,width=8": [30.0], "efc++:options.eta=1,width=8,stream.tasks=2": [20.0]}
    assert decided(claim, Evidence(results_of(other_order)), "cpu").comparisons == (comparison,)
    measures = {**CLAIM, "method": "efc++", "compare": [["A_step", ">", ["F"]]], "settings": claim["settings"]}
    (of_one,) = decided(measures, Evidence(results_of({**with_them, "efc++": [90.0]})), "cpu").comparisons
    assert of_one.left == (30.0,)
    gain = {"gain": ["efc++", "efc++:options.eta=1"], "scenarios": ["cifar100-cold10", "cifar100-warm10"]}
    both = results_of(with_them) | results_of({"efc++": [9.0], "efc++:options.eta=1": [1.0]})
    both |= results_of(with_them, "cifar100-warm10-cpu")
    (between,) = decided({**CLAIM, **gain, "settings": claim["settings"]}, Evidence(both), "cpu").comparisons
    assert (between.left, between.right) == ((10.0,), (10.0,))
    assert not decided(claim, Evidence(results_of({"efc++": [30.0], "efc++:options.eta=1": [20.0]})), "cpu").comparisons
    (command,) = commands({**claim, "seeds": "7-9"}, ["cpu"])
    assert command.endswith(
        "--seeds 7-9 --data-root DIR --set width=8 --set stream.tasks=2 --methods efc++ efc++:options.eta=1"
    )


def test_only_the_seeds_of_a_claim_count() -> None:
    results = Evidence(results_of({"efc++": [30.0, 31.0, 32.0, 33.0], "efc": [24.0, 25.1, 26.0, 50.0]}))
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc"]]], "seeds": "0-1"}
    (comparison,) = decided(claim, results, "cpu").comparisons
    assert comparison.left == (30.0, 31.0)


def test_what_is_ours_is_not_counted_among_the_papers_claims() -> None:
    ours = {claim["id"] for claim in claims() if claim.get("ours")}
    text = page([[decided(claim, Evidence({}), "cpu")] for claim in claims()], ["cpu"], Evidence({}))
    assert f"Of the paper's {len(claims()) - len(ours)} claims at the scale cpu: 0 hold" in text
    paper, own = text.split("## What the paper does not claim, and we do")
    assert all(f"(#{name}) | – |" in own for name in ours)  # they are made at the scale fast
    fast = page([[decided(claim, Evidence({}), "fast")] for claim in claims()], ["fast"], Evidence({}))
    assert all(f"(#{name}) | not run |" in fast for name in ours)
    assert ours and not any(f"(#{name})" in paper for name in ours) and all(f"(#{name})" in own for name in ours)


def test_a_claim_on_one_method_compares_its_measures() -> None:
    claim = {**CLAIM, "method": "efc++", "compare": [["A_step", ">", ["F"]]]}
    (comparison,) = decided(claim, Evidence(results_of({"efc++": [20.0, 30.0, 25.0]})), "cpu").comparisons
    assert comparison.differences == (20.0, 30.0, 25.0) and comparison.what == "A_step > F"


def test_the_accuracy_on_the_first_task_and_on_later_ones_is_that_of_the_last_step() -> None:
    results = results_of({"efc++": [20.0]})
    for row in results.values():
        row |= {"accuracy_per_task": "60.00 10.00 30.00", "kept_bytes": "2500000"}
    expected = {"accuracy on the first task": 60.0, "accuracy on later tasks": 20.0, "kept MB": 2.5, "A_step": 20.0}
    for name, value in expected.items():
        assert Evidence(results).values("cifar100-cold10-cpu", "efc++", name) == {Run(numerics.VERSION, 0): value}


def test_a_claim_holds_only_if_all_of_it_does() -> None:
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc", "lwf"]]]}
    ahead = {"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0]}

    def verdict(lwf: list[float]) -> str:
        results = results_of({**ahead, "lwf": lwf})
        return decided(claim, Evidence(results), "cpu").by_preset["cifar100-cold10-cpu"]

    assert verdict([10.0, 11.0, 12.1]) == HOLDS
    assert verdict([40.0, 41.0, 42.1]) == FAILS
    assert verdict([29.0, 35.0, 30.0]) == OPEN
    assert verdict([10.0]) == f"{OPEN} (1 seed)"
    assert verdict([10.0, 11.0]) == f"{OPEN} (2 seeds)"
    assert verdict([]) == OPEN  # half of the claim was not run
    assert decided(claim, Evidence({}), "cpu").by_preset == {"cifar100-cold10-cpu": NOT_RUN}


def test_a_gain_compares_two_scenarios_seed_by_seed() -> None:
    claim = {**CLAIM, "gain": ["efc++", "efc"], "scenarios": ["cifar100-cold10", "cifar100-warm10"]}
    cold = results_of({"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0]})
    warm = results_of({"efc++": [50.0, 51.0, 52.0], "efc": [49.0, 50.1, 51.0]}, "cifar100-warm10-cpu")
    (comparison,) = decided(claim, Evidence(cold | warm), "cpu").comparisons
    assert comparison.differences == pytest.approx((9.0, 9.0, 9.0)) and comparison.verdict == HOLDS


def test_every_claim_can_be_run() -> None:
    """Scenarios that some preset has, methods and measures that exist, and a command that names them all."""
    listed = claims()
    assert len(listed) >= 60 and len({claim["id"] for claim in listed}) == len(listed)
    checked = set()
    for claim in listed:
        assert set(measures_of(claim)) <= MEASURES.keys(), claim["id"]
        words = commands(claim, ["cpu", "fast"])[0]
        presets = words.split("--presets ")[1].split()[0].split(",")
        assert set(presets) <= set(preset_names())
        for method in expanded(words.split("--methods ")[1].split(" --")[0].split()):
            (cell,) = cells(presets[:1], [method], [0])
            if cell.key not in checked:
                checked.add(cell.key)
                resolve(cell.preset, cell.method, 0, cell.changes)


def test_a_claim_says_how_long_the_runs_take_that_are_not_there() -> None:
    """Those of a method as long as its other seeds took, in the median; of one without rows as long as the others."""
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc", "fecam"]]]}
    rows = results_of({"efc++": [30.0, 31.0, 32.0], "efc": [20.0]})
    for row, hours in zip(rows.values(), (1, 2, 9, 4), strict=True):
        row["seconds"] = str(3600 * hours)
    hours = 2 * 2 + 4 * 4 + 5 * 3  # two seeds of efc++, four of efc, five of fecam
    assert cost(claim, "cpu", Evidence(rows)) == (
        f"4 of 15 runs are there with today's numerics; the others take about {hours}.0 hours of a core, as long as "
        "such runs took here."
    )
    two = {**claim, "scenarios": ["cifar100-cold10", "cifar100-warm10"]}
    assert cost(two, "cpu", Evidence(rows)).endswith("took here; how long 15 of them take is not known yet.")
    assert cost({**claim, "seeds": "0"}, "cpu", Evidence({})) == (
        "0 of 3 runs are there with today's numerics; how long the others take is not known yet."
    )
    whole = dict.fromkeys(("efc++", "efc", "fecam"), [1.0] * 6)
    assert cost(claim, "cpu", Evidence(results_of(whole))) == "All 15 runs are there."
    assert cost(claim, "cpu", Evidence(results_of(whole, version=1))).startswith("0 of 15 ")  # bench makes them anew
    assert cost({**claim, "seeds": "4-6"}, "cpu", Evidence(results_of(whole))).startswith("6 of 9 ")


def test_settings_with_two_names_are_compared_and_run_once() -> None:
    """On the presets of one core the η of the preset is 0.1, which λ = 0 has too."""
    claim = next(claim for claim in claims() if claim["id"] == "squared-distillation")
    rows = results_of({"efc++": [30.0] * 3, "efc++:options.lambda_efm=0,options.eta=0.1": [29.0, 29.1, 29.2]})
    verdict = decided(claim, Evidence(rows), "cpu")
    assert [comparison.what for comparison in verdict.comparisons] == ["efc++ > efc++:options.lambda_efm=0"]
    assert all(len(missing) in (2, 3) for missing in verdict.missing.values())
    assert cost({**claim, "scenarios": ["cifar100-cold10"]}, "cpu", Evidence(rows)).startswith("6 of 20 ")


def test_a_command_names_presets_that_can_be_run_and_decide() -> None:
    listed = {claim["id"]: claim for claim in claims()}
    assert "--presets cifar100-warm10-fast " in commands(listed["cargo-warm"], ["cpu"])[0]  # ours: where it is decided
    sets, folders = commands(listed["cargo-plain-images"], ["fast"])  # images of one command are in one place
    assert "--presets cifar100-cold10-fast,cifar100-warm10-fast --seeds 0-4 --data-root DIR --methods" in sets
    assert "--presets pacs-fast --seeds 0-4 --data-root DIR/pacs --methods" in folders
    other = listed["domains-lead"]
    assert not commands(other, ["cpu"])  # there is no preset of the paper's size
    verdict = decided(other, Evidence({}), "cpu")
    text = "\n".join(section([verdict], ["cpu"], Evidence({}), set()))
    assert "**cpu: not run**" in text and "runs are there" not in text and "efcil bench" not in text


def test_what_is_derived_has_its_test_and_what_is_asked_has_its_claims() -> None:
    root = Path(__file__).parents[2]
    for proof in proofs():
        for name in proof["tests"]:
            path, _, function = name.partition("::")
            assert f"\ndef {function}(" in (root / path).read_text(), name
    ids = {claim["id"] for claim in claims()}
    assert questions() and all(set(question["claims"]) <= ids for question in questions())


def test_the_page_tells_every_claim_and_its_numbers() -> None:
    evidence = Evidence(results_of({"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0], "r-dfcil": [29.0]}))
    text = page([[decided(claim, evidence, "cpu")] for claim in claims()], ["cpu"], evidence)
    assert all(entry["says"] in text for entry in (*claims(), *proofs()))
    row = "| `efc++ > efc` (holds) | cifar100-cold10-cpu | 3 | 31.0 | 21.0 | +10.0 ± 0.1 | < 0.001 | 2 |"
    assert row in text
    assert "| `efc++ > r-dfcil` | cifar100-cold10-cpu | 1 | 30.0 | 29.0 | +1.0 |  | 2 |" in text
    assert "| `r-dfcil` | 42.1 | 29.0 (1 seed) |" in text and "| `efc` | 43.6 | 21.0 ± 1.0 (3 seeds) |" in text


def test_the_command_writes_the_page_and_refuses_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(",".join(COLUMNS) + "\n")
    assert main(["claims", "--results", str(table), "--out", str(tmp_path / "CLAIMS.md")]) == 0
    assert "not run" in (tmp_path / "CLAIMS.md").read_text()
    capsys.readouterr()
    assert main(["claims", "--results", str(table), "--json"]) == 0
    told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {claim["id"] for claim in told} == {claim["id"] for claim in claims()}
    assert main(["claims", "--results", str(table), "--runs", str(tmp_path / "none")]) == 2
    assert "There is no run" in capsys.readouterr().err
    assert main(["claims", "--results", str(table), "--runs", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["claims", "--results", str(tmp_path / "none.csv")]) == 2
    assert re.search("There is no results file .* efcil bench --presets .* --methods .*", capsys.readouterr().err)
    assert main(["claims", "--results", str(table), "--scales", "huge"]) == 2
    assert "No preset ends in -huge" in capsys.readouterr().err


def test_the_command_tells_a_line_for_each_claim_or_all_about_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = tmp_path / "runs.csv"
    table.write_text(",".join(COLUMNS) + "\n")
    assert main(["claims", "--results", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-2])) <= 80 and all(any(claim["id"] in line for line in lines) for claim in claims())
    paper = sum(not claim.get("ours") for claim in claims())
    assert lines[-2].startswith(f"Of the paper's {paper} claims") and f"{paper} were not run" in lines[-2]
    rich = results_of({"efc++": [20.0], "efc++:options.drift=oracle": [30.0], "efc++:options.covariance=oracle": [9.0]})
    verdicts = [[decided(claim, Evidence(rich), "cpu"), decided(claim, Evidence(rich), "fast")] for claim in claims()]
    print_rows(summary(verdicts, ["a", "b"]), as_json=False)
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert {claim["id"] for claim in claims()} <= set(listed)  # each whole, however long its verdict is
    assert main(["claims", "cargo-warm", "rank", "--results", str(table)]) == 0
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if line.startswith("## ")] == ["## cargo-warm", "## rank"]
    assert "**fast: not run**" in told and "    efcil bench --presets cifar100-warm10-fast" in told
    assert main(["claims", "rank", "--results", str(table), "--json"]) == 0
    assert [claim["id"] for claim in json.loads(capsys.readouterr().out)] == ["rank"]
    assert main(["claims", "time-f", "rank", "cargo-damping", "--results", str(table), "--scales", "fast,fast"]) == 0
    told = capsys.readouterr().out
    begun = [line for line in told.splitlines() if line.startswith("## ")]  # or how they begin
    assert begun[:2] == ["## time-frozen", "## rank"] and len(begun) > 3
    assert all(line.startswith("## cargo-damping-") for line in begun[2:])
    assert told.count("**fast: ") == len(begun)  # one verdict each
    assert main(["claims", "ranks", "--results", str(table)]) == 2
    assert "There is no claim called 'ranks'; did you mean rank" in capsys.readouterr().err
    assert main(["claims", "rank", "--results", str(table), "--out", str(tmp_path / "page.md")]) == 2
    assert "give either --out, or names" in capsys.readouterr().err and not (tmp_path / "page.md").exists()


def test_the_page_of_the_project_is_what_its_results_say(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    out = tmp_path / "CLAIMS.md"
    results, figures = (str(root / "results" / name) for name in ("runs.csv", "figures"))
    assert main(["claims", "--results", results, "--figures", figures, "--out", str(out)]) == 0
    assert out.read_text() == (root / "CLAIMS.md").read_text(), "run efcil claims --out CLAIMS.md"
