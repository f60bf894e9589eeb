"""Verdicts on the paper's claims: the test behind them, paired seeds, and the page that tells them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from efcil.analysis.claims import FAILS, HOLDS, NOT_RUN, OPEN, claims, decided, judged, one_sided, paired, upper_tail
from efcil.analysis.claims_page import command, page
from efcil.bench.campaign import cells
from efcil.bench.results import COLUMNS, Results
from efcil.bench.scenarios import preset_names, resolve
from efcil.cli import main
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


def test_seeds_are_paired_within_one_version_of_the_numerics() -> None:
    results = results_of({"efc++": [20.0, 30.0, 25.0], "efc": [19.0, 28.0]})
    differences, version = paired(results, "cifar100-cold10-cpu", "efc++", "efc", "per_step_accuracy")
    assert differences == {0: 1.0, 1: 2.0} and version == str(numerics.VERSION)
    mixed = results_of({"efc++": [20.0, 30.0]}) | results_of({"efc": [19.0, 28.0]}, version=1)
    assert paired(mixed, "cifar100-cold10-cpu", "efc++", "efc", "per_step_accuracy") == ({}, "")


def test_a_claim_holds_only_if_all_of_it_does() -> None:
    claim = {**CLAIM, "compare": [["efc++", ">", ["efc", "lwf"]]]}
    ahead = {"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0]}

    def verdict(lwf: list[float]) -> str:
        return decided(claim, results_of({**ahead, "lwf": lwf}), "cpu").by_preset["cifar100-cold10-cpu"]

    assert verdict([10.0, 11.0, 12.1]) == HOLDS
    assert verdict([40.0, 41.0, 42.1]) == FAILS
    assert verdict([29.0, 35.0, 30.0]) == OPEN
    assert verdict([10.0]) == OPEN  # one common seed is too few
    assert decided(claim, {}, "cpu").by_preset == {"cifar100-cold10-cpu": NOT_RUN}


def test_a_gain_compares_two_scenarios_seed_by_seed() -> None:
    claim = {**CLAIM, "gain": ["efc++", "efc"], "scenarios": ["cifar100-cold10", "cifar100-warm10"]}
    cold = results_of({"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0]})
    warm = results_of({"efc++": [50.0, 51.0, 52.0], "efc": [49.0, 50.1, 51.0]}, "cifar100-warm10-cpu")
    (comparison,) = decided(claim, cold | warm, "cpu").comparisons
    assert comparison.differences == pytest.approx((9.0, 9.0, 9.0)) and comparison.verdict == HOLDS


def test_every_claim_can_be_run() -> None:
    """Scenarios that some preset has, methods that exist, and a command that names them all."""
    listed = claims()
    assert len(listed) >= 20 and len({claim["id"] for claim in listed}) == len(listed)
    for claim in listed:
        words = command(claim, ["cpu", "fast"])
        presets = words.split("--presets ")[1].split()[0].split(",")
        assert set(presets) <= set(preset_names())
        for method in words.split("--methods ")[1].split():
            (cell,) = cells(presets[:1], [method], [0])
            resolve(cell.preset, cell.method, 0, cell.changes)


def test_the_page_tells_every_claim_and_its_numbers() -> None:
    results = results_of({"efc++": [30.0, 31.0, 32.0], "efc": [20.0, 21.1, 22.0]})
    text = page([[decided(claim, results, "cpu")] for claim in claims()], ["cpu"])
    assert all(claim["says"] in text for claim in claims())
    assert "| `efc++ > efc` (holds) | cifar100-cold10-cpu | 3 | +10.0 ± 0.1 | 0.000 |" in text


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
    assert main(["claims", "--results", str(tmp_path / "none.csv")]) == 2
    assert "There is no results file" in capsys.readouterr().err
    assert main(["claims", "--results", str(table), "--scales", "huge"]) == 2
    assert "No preset ends in -huge" in capsys.readouterr().err


def test_the_page_of_the_project_is_what_its_results_say(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    out = tmp_path / "CLAIMS.md"
    assert main(["claims", "--results", str(root / "results" / "runs.csv"), "--out", str(out)]) == 0
    assert out.read_text() == (root / "CLAIMS.md").read_text(), "run efcil claims --out CLAIMS.md"
