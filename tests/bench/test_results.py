"""Rows of results: each from a record of its own, and counted only for what it was made with."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from efcil.bench.results import (
    COLUMNS,
    FIRST_COLUMNS,
    Cell,
    append_result,
    newest_rows,
    read_results,
    record_path,
    records_folder,
    rows_of,
    stale_rows,
    summary,
    write_table,
)
from efcil.bench.scenarios import config_digest, deviations, number_settings, resolve
from efcil.cli import main
from efcil.config import Training
from efcil.engine import numerics
from efcil.errors import UserError
from efcil.paper.rebalancing import Rebalancing

ROOT = Path(__file__).parents[2]
CELL = Cell("digits-cold5", "efc++", (), 0)


def metrics(a_step: float) -> dict[str, Any]:
    return {
        "per_step_accuracy": a_step,
        "average_incremental_accuracy": 50.0,
        "average_forgetting": 1.0,
        "plasticity": 2.0,
        "seconds": 120.0,
        "kept_bytes": 4000,
        "steps": [{"per_step_accuracy": 90.0}, {"per_step_accuracy": a_step}],
        "accuracy_matrix": [[90.0, None], [10.0, a_step]],
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "runs.csv"


def anew(cell: Cell) -> Cell:
    """The same cell, resolved anew."""
    return Cell(*dataclasses.astuple(cell))


# What a row counts for


def test_a_result_replaces_its_own_row_only(table: Path) -> None:
    for seed, value in ((0, 10.0), (1, 20.0), (0, 30.0)):
        append_result(table, dataclasses.replace(CELL, seed=seed), metrics(value))
    rows = read_results(table)
    assert {key[3]: float(row["per_step_accuracy"]) for key, row in rows.items()} == {"0": 30.0, "1": 20.0}
    (line,) = summary(rows.values())
    assert (line["per_step_accuracy"], line["minutes"], line["seeds"]) == (25.0, 2.0, 2)
    assert line["per_step_accuracy_std"] == pytest.approx(50**0.5)  # two values 10 apart, unbiased


def test_a_row_whose_numbers_are_the_same_stays_as_it_is(table: Path) -> None:
    append_result(table, CELL, metrics(10.0))
    before = table.read_bytes()
    append_result(table, CELL, {**metrics(10.0), "seconds": 7.0})  # run again elsewhere, or for its states
    assert table.read_bytes() == before
    for record in records_folder(table).glob("*.json"):  # as in a repository that has the table alone
        record.unlink()
    append_result(table, CELL, {**metrics(10.0), "seconds": 7.0})
    assert table.read_bytes() == before and not list(records_folder(table).glob("*.json"))
    append_result(table, CELL, {**metrics(10.5), "seconds": 7.0})
    (row,) = read_results(table).values()
    assert (row["per_step_accuracy"], row["seconds"]) == ("10.5000", "7")


def test_a_row_counts_only_for_the_settings_it_was_made_with(table: Path, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("like: digits-cold5\nclassifier: {width: 8, device: cpu}\n")
    cell = Cell(str(preset), "ssre", ("incremental.milestones=[0.5,0.9]",), 3)
    assert {"width=8", "data.name=digits", "incremental.milestones=[0.5,0.9]"} < set(cell.settings.split())
    assert not any(word in cell.settings for word in ("seed", "device", "options"))
    append_result(table, cell, metrics(64.0))
    assert len(rows_of(read_results(table), [cell])) == 1
    preset.write_text("like: digits-cold5\nclassifier: {width: 9}\n")
    edited = anew(cell)
    assert rows_of(read_results(table), [edited]) == []
    append_result(table, edited, metrics(65.0))
    (row,) = rows_of(read_results(table), [edited])
    assert row["per_step_accuracy"] == "65.0000" and "width=9" in row["settings"]
    (stale,) = stale_rows(read_results(table), [edited])  # kept, and counted for nothing
    assert stale["per_step_accuracy"] == "64.0000"
    assert sorted(line["seeds"] for line in summary(read_results(table).values())) == [1, 1]


@pytest.mark.parametrize(
    ("cls", "field", "value"),
    [(Training, "batch_size", 65), (Rebalancing, "views", 77)],
    ids=["field", "option"],
)
def test_a_changed_default_makes_old_rows_stale(
    cls: Any, field: str, value: int, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("cifar100-cold10", "efc++", (), 0)
    append_result(table, cell, metrics(64.0))
    assert rows_of(read_results(table), [anew(cell)])
    defaults = cls.__init__.__defaults__
    place = [f.name for f in dataclasses.fields(cls)].index(field)
    monkeypatch.setattr(cls.__init__, "__defaults__", (*defaults[:place], value, *defaults[place + 1 :]))
    now = anew(cell)
    assert now.settings == cell.settings  # the line of deviations does not show it
    assert rows_of(read_results(table), [now]) == [] and len(stale_rows(read_results(table), [now])) == 1


def test_other_numerics_make_old_rows_stale(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_result(table, CELL, metrics(64.0))
    monkeypatch.setattr(numerics, "VERSION", numerics.VERSION + 1)
    assert rows_of(read_results(table), [CELL]) == [] and len(stale_rows(read_results(table), [CELL])) == 1
    (old,) = newest_rows(read_results(table), [CELL])  # tables show it, and say so
    assert summary([old])[0]["numerics"] == numerics.VERSION - 1
    append_result(table, CELL, metrics(65.0))
    assert [row["per_step_accuracy"] for row in newest_rows(read_results(table), [CELL])] == ["65.0000"]
    assert [line["seeds"] for line in summary(read_results(table).values())] == [1, 1]  # never in one mean


def test_the_digest_knows_every_setting_but_seed_and_place() -> None:
    def digest(*changes: str, seed: int = 0, method: str = "efc++") -> str:
        return config_digest(resolve("digits-cold5", method, seed, changes))

    same = {digest(), digest(seed=4), digest("device=cpu"), digest("workers=0", "cache_mb=1", "checkpoint_seconds=3")}
    assert len(same) == 1
    config = resolve("digits-cold5", "efc++", 0, ())
    assert not {"skip_classes", "tasks"} & number_settings(config)["stream"].keys()  # which older settings do not have
    assert digest("stream.skip_classes=0") == digest() != digest("stream.skip_classes=2")
    assert deviations(resolve("digits-cold5", "efc++", 0, ["stream.skip_classes=2"])).count("skip_classes=2") == 1
    others = ["width=9", "options.eta=0.7", "options.rebalancing.views=9", "data.held_out=3", "first.gamma=0.5"]
    assert len({digest(), digest(method="efc"), *(digest(change) for change in others)}) == 2 + len(others)


def test_the_rows_in_the_repository_are_of_numerics_1_and_stale() -> None:
    rows = read_results(ROOT / "results" / "runs.csv")
    first = [row for row in rows.values() if row["numerics"] == "1"]
    assert len(first) == 192 and {row["config_digest"] for row in first} == {""}
    asked = [Cell(row["preset"], row["method"], tuple(row["changes"].split()), int(row["seed"])) for row in first]
    assert not [row for row in rows_of(rows, asked) if row["numerics"] == "1"]
    shown = newest_rows(rows, asked)
    assert len({(row["preset"], row["method"], row["changes"]) for row in shown}) == len(summary(shown))


def test_a_dry_run_lists_what_is_done_what_is_stale_and_what_would_be_run(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append_result(table, CELL, metrics(64.0))
    asked = ["--presets", "digits-cold5", "--methods", "efc++", "freeze", "--results", str(table)]
    out = ["--out", str(tmp_path / "runs")]
    assert main(["bench", *asked, *out, "--dry-run", "--json"]) == 0
    printed = capsys.readouterr()
    assert [line["status"] for line in json.loads(printed.out)] == ["done", "to run"]
    monkeypatch.setattr(numerics, "VERSION", numerics.VERSION + 1)
    assert main(["bench", *asked, *out, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "0 done, 2 to run, 1 stale rows" in shown
    assert f"stale: numerics {numerics.VERSION - 1}, now {numerics.VERSION}" in shown
    assert not (tmp_path / "runs").exists()
    append_result(table, CELL, metrics(65.0))
    assert main(["bench", *asked[:3], "efc++", "--results", str(table), *out]) == 0
    assert ": 1, made with other settings" in " ".join(capsys.readouterr().out.split())


def test_a_dry_run_says_which_runs_have_not_kept_their_states(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append_result(table, CELL, metrics(64.0))
    places = ["--results", str(table), "--out", str(tmp_path / "runs")]
    asked = ["--presets", "digits-cold5", "--methods", "efc++", *places]
    assert main(["bench", *asked, "--keep-states", "--dry-run", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["status"] == "to run: its states are not kept" and line["hours"] == pytest.approx(2 / 60)
    assert main(["bench", *asked, "--keep-states", "--dry-run"]) == 0
    assert "0 done, 1 to run" in capsys.readouterr().out


# Records and the table


def test_the_table_is_generated_from_the_records(table: Path) -> None:
    written = [dataclasses.replace(CELL, seed=seed) for seed in (2, 0, 1)]
    for cell in written:
        append_result(table, cell, metrics(64.0 + cell.seed))
    before = table.read_text()
    assert before.splitlines()[0].split(",") == [*COLUMNS]
    table.unlink()
    write_table(table)
    assert table.read_text() == before  # whatever the order of writing
    assert len(read_results(table)) == 3
    assert len({record_path(table, cell) for cell in written}) == 3


def test_a_record_from_another_machine_needs_no_table(table: Path, tmp_path: Path) -> None:
    append_result(table, CELL, metrics(64.0))
    other = tmp_path / "other" / "runs.csv"
    append_result(other, dataclasses.replace(CELL, seed=1), metrics(65.0))
    for record in records_folder(other).glob("*.json"):
        record.rename(records_folder(table) / record.name)
    assert len(read_results(table)) == 2


def test_rows_that_only_the_table_has_stay(table: Path) -> None:
    old = [
        "digits-cold5",
        "efc++",
        "",
        "7",
        "width=16",
        "60.0",
        "70.0",
        "1.0",
        "2.0",
        "60",
        "10",
        "0.1.0",
        "60.0",
        "60.0",
    ]
    table.write_text(",".join(FIRST_COLUMNS) + "\n" + ",".join(old) + "\n")
    append_result(table, CELL, metrics(64.0))
    rows = read_results(table)
    assert {row["seed"]: row["numerics"] for row in rows.values()} == {"7": "1", "0": str(numerics.VERSION)}
    assert rows_of(rows, [dataclasses.replace(CELL, seed=7)]) == []


def test_presets_of_the_same_name_in_two_folders_have_two_records(table: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text("like: digits-cold5\n")
        append_result(table, Cell(str(tmp_path / folder / "mine.yaml"), "efc++", (), 0), metrics(64.0))
    assert len(read_results(table)) == len(list(records_folder(table).glob("*.json"))) == 2


# Files from elsewhere


def test_a_table_saved_by_a_spreadsheet_is_read(table: Path) -> None:
    append_result(table, CELL, metrics(64.0))
    records_folder(table).rename(table.with_name("away"))
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert len(rows_of(read_results(table), [CELL])) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a,b\n1,2\n", "is not a table of efcil results"),
        (b"", "is not a table of efcil results"),
        (b"\xff\xfe\x00", "cannot be read as a table"),
        ((",".join(COLUMNS) + "\na,b\n").encode(), r"line 2, has 2 cells instead of 16"),
    ],
)
def test_a_foreign_table_is_refused(content: bytes, sentence: str, table: Path) -> None:
    table.write_bytes(content)
    with pytest.raises(UserError, match=sentence) as caught:
        read_results(table)
    assert str(table) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["per_step_accuracy", "seconds", "kept_bytes", "seed", "numerics"])
def test_a_word_where_a_number_belongs_is_named(name: str, table: Path) -> None:
    append_result(table, CELL, metrics(64.0))
    record = record_path(table, CELL)
    row = json.loads(record.read_text())
    record.write_text(json.dumps({**row, name: "n/a"}))
    with pytest.raises(UserError, match=rf"{re.escape(record.name)} has 'n/a' where the number {name}"):
        read_results(table)
    record.unlink()
    table.write_text(
        ",".join(COLUMNS) + "\n" + ",".join({**row, "settings": "", name: "n/a"}[c] for c in COLUMNS) + "\n"
    )
    with pytest.raises(UserError, match=rf"runs.csv, line 2, has 'n/a' where the number {name}"):
        read_results(table)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"preset": 3}'])
def test_a_broken_record_gets_one_sentence(
    content: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records_folder(table).mkdir()
    (records_folder(table) / "mine.json").write_text(content)
    asked = ["--presets", "digits-cold5", "--methods", "efc++", "--results", str(table), "--out", str(tmp_path)]
    assert main(["bench", *asked]) == 2
    error = capsys.readouterr().err
    assert "mine.json" in error and error.count("\n") == 1
