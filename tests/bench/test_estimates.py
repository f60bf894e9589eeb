"""A dry run says about how long a campaign takes, and what that is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_campaign import metrics

from efcil.bench.estimates import Estimator, total_sentence
from efcil.bench.results import Cell, append_result, read_results
from efcil.cli import main

SHORT = ("width=8", "first.epochs=2", "incremental.epochs=1", "first.rotation=false", "data.images_per_class=10")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "runs.csv"


def record(table: Path, cell: Cell, seconds: float) -> None:
    append_result(table, cell, {**metrics(50.0), "seconds": seconds})


def estimator(table: Path) -> Estimator:
    return Estimator(read_results(table), None)


def test_runs_of_the_same_cell_with_other_seeds_come_first(table: Path) -> None:
    record(table, Cell("digits-cold5", "efc++", SHORT, 0), 100)
    record(table, Cell("digits-cold5", "efc++", SHORT, 1), 200)
    record(table, Cell("digits-cold5", "lwf", SHORT, 1), 9000)
    found = estimator(table).estimate(Cell("digits-cold5", "efc++", SHORT, 2))
    assert (found.seconds, found.source) == (150, "2 recorded runs")


def test_then_runs_of_the_method_with_other_settings_scaled_by_their_work(table: Path) -> None:
    """100 images: the first 20 shown twice, 80 once, against all of them ten times as often."""
    record(table, Cell("digits-cold5", "efc++", SHORT, 0), 120)
    record(table, Cell("digits-cold5", "lwf", SHORT, 0), 9000)
    longer = tuple(change.replace("epochs=2", "epochs=20").replace("epochs=1", "epochs=10") for change in SHORT)
    found = estimator(table).estimate(Cell("digits-cold5", "efc++", longer, 0))
    assert found.seconds == pytest.approx(1200)
    assert found.source == "1 recorded run of efc++ with other settings, 1,200 images"


def test_then_runs_of_the_method_on_other_presets_of_the_same_network(table: Path) -> None:
    record(table, Cell("digits-warm4", "efc++", SHORT, 0), 120)
    record(table, Cell("digits-warm4", "efc++", ("width=16", *SHORT[1:]), 0), 9000)
    record(table, Cell("digits-cold5", "lwf", SHORT, 0), 9000)
    asked = estimator(table)
    cells = [Cell(preset, "efc++", SHORT, 1) for preset in ("digits-cold5", "digits-warm4")]
    images = [asked.work(cell.config) for cell in cells]
    found = asked.estimate(cells[0])
    assert found.seconds == pytest.approx(120 * images[0] / images[1])
    assert found.source.startswith("1 recorded run of efc++ on other presets of this network, ")


def test_then_runs_of_other_methods_on_the_preset(table: Path) -> None:
    record(table, Cell("digits-cold5", "lwf", SHORT, 0), 240)
    found = estimator(table).estimate(Cell("digits-cold5", "efc", SHORT, 0))
    assert found.seconds == pytest.approx(240) and found.source == "1 recorded run of other methods, 120 images"
    frozen = estimator(table).estimate(Cell("digits-cold5", "freeze", SHORT, 0))  # trains its first task alone
    assert frozen.seconds == pytest.approx(80)


@pytest.mark.parametrize(("method", "images"), [("efc++", 120), ("freeze", 40)])
def test_else_a_few_steps_are_tried(method: str, images: int, table: Path) -> None:
    asked = estimator(table)
    found = asked.estimate(Cell("digits-cold5", method, SHORT, 0))
    assert found.source.startswith(f"{images} images, ") and found.source.endswith("per second when tried now")
    (rate,) = asked.tried.values()
    assert found.seconds == pytest.approx(rate * images) and 0 < rate < 10
    asked.estimate(Cell("digits-cold5", method, SHORT, 1))
    assert len(asked.tried) == 1  # not tried again for the next seed


def test_without_images_the_time_is_not_known(tmp_path: Path, table: Path) -> None:
    found = Estimator({}, tmp_path).estimate(Cell("cifar100-cold10", "efc++", (), 0))
    assert found.seconds is None and found.source.startswith("not known: ")


@pytest.mark.parametrize(
    ("seconds", "at_once", "sentence"),
    [
        ([3600, 3600], 2, "to run: about 2.0 hours of computing, 1.0 hours with 2 at once"),
        ([7200, 60], 2, "to run: about 2.0 hours of computing, 2.0 hours with 2 at once"),  # the longest run decides
        ([30], 1, "to run: about 0.5 minutes of computing"),
        ([3600, None], 1, "to run: about 1.0 hours of computing; 1 of 2 runs not counted, their time is not known"),
        ([None, None], 2, "to run: for how long is not known"),
    ],
)
def test_the_hours_of_a_campaign(seconds: list[float | None], at_once: int, sentence: str) -> None:
    assert total_sentence(seconds, at_once) == sentence


def test_a_dry_run_prints_the_hours_and_what_they_are_from(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, seconds in ((0, 1800), (1, 5400)):
        record(table, Cell("digits-cold5", "efc++", (), seed), seconds)
    asked = ["--presets", "digits-cold5", "--methods", "efc++", "--seeds", "0-3", "--results", str(table)]
    assert main(["bench", *asked, "--workers", "2", "--dry-run", "--json"]) == 0
    printed = capsys.readouterr()
    plan: list[dict[str, Any]] = json.loads(printed.out)
    assert [(line["status"], line.get("hours"), line.get("hours_from")) for line in plan] == [
        *[("done", None, None)] * 2,
        *[("to run", 1.0, "2 recorded runs")] * 2,
    ]
    assert "2 done, 2 to run" in printed.err
    assert "to run: about 2.0 hours of computing, 1.0 hours with 2 at once" in printed.err


def test_why_the_time_is_not_known_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--presets", "cifar100-cold10", "--methods", "efc++", "efc", "--seeds", "0-2", "--dry-run"]
    assert main([*command, "--data-root", str(tmp_path), "--results", str(tmp_path / "runs.csv")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("to run not known") == 6 and out.count("does not exist") == 1
