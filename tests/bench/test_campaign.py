"""Campaigns: what is done is skipped, a crash stops no other run, and the table adds up."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from conftest import cli_command, cli_environment
from efcil.bench.campaign import Job, campaign, cells, next_job, seed_list
from efcil.bench.display import campaign_table, summary_table
from efcil.bench.grids import GRIDS, expanded
from efcil.bench.published import PUBLISHED, published
from efcil.bench.results import Cell, append_result, read_results, rows_of, summary
from efcil.bench.scenarios import preset_names, resolve
from efcil.cli import main
from efcil.errors import UserError
from efcil.methods import build_method

TINY = "width=8,first.epochs=1,incremental.epochs=1,stream.steps=2"


def metrics(a_step: float, a_inc: float = 50.0) -> dict[str, object]:
    return {
        "per_step_accuracy": a_step,
        "average_incremental_accuracy": a_inc,
        "average_forgetting": 1.0,
        "plasticity": 2.0,
        "seconds": 120.0,
        "kept_bytes": 4000,
        "steps": [{"per_step_accuracy": 90.0}, {"per_step_accuracy": a_step}],
        "accuracy_matrix": [[90.0, None], [10.0, a_step]],
    }


def test_cells_are_every_combination_with_changes() -> None:
    found = cells(["a", "b"], ["efc", "efc++:options.eta=1,width=8"], [0, 1])
    assert len(found) == 8
    assert found[1] == Cell("a", "efc++", ("options.eta=1", "width=8"), 0)
    assert found[1].label == "efc++ options.eta=1 width=8"


def test_the_grids_of_tables_4_to_6_are_the_rows_of_the_paper() -> None:
    found = {cell.label for cell in cells(["cifar100-cold10"], expanded(["@table4", "@table5", "@table6"]), [0])}
    rows = {label for label in PUBLISHED["cifar100-cold10"] if label == "joint" or label.startswith("efc++")}
    assert found == rows and len(rows) == 9


def test_every_grid_can_be_resolved() -> None:
    assert [len(GRIDS[name].methods) for name in ("table2", "figure11", "efim", "fd")] == [11, 25, 5, 6]
    for cell in cells(["cifar100-cold10-cpu"], expanded(f"@{name}" for name in GRIDS), [0]):
        options = resolve(cell.preset, cell.method, 0, cell.changes).classifier.options
        assert all(change.startswith("options.") for change in cell.changes)
        build_method(cell.method, options)
    assert expanded(["@table5", "efc", "efc++"]) == ["efc++", "efc++:options.drift=none", "efc"]
    with pytest.raises(UserError, match="did you mean"):
        expanded(["@table3"])


def test_seeds_are_lists_or_ranges() -> None:
    assert seed_list("3,1") == [3, 1]
    assert seed_list("0-2") == [0, 1, 2]
    with pytest.raises(UserError, match="--seeds takes numbers"):
        seed_list("one")


def test_a_result_replaces_its_own_row_only(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for seed, value in ((0, 10.0), (1, 20.0), (0, 30.0)):
        append_result(table, Cell("digits-cold5", "efc++", (), seed), metrics(value))
    rows = read_results(table)
    assert {key[3]: float(row["per_step_accuracy"]) for key, row in rows.items()} == {"0": 30.0, "1": 20.0}
    (line,) = summary(rows.values())
    assert (line["per_step_accuracy"], line["minutes"], line["seeds"]) == (25.0, 2.0, 2)
    assert line["per_step_accuracy_std"] == pytest.approx(50**0.5)  # two values 10 apart, unbiased


def test_a_row_counts_only_for_the_settings_it_was_made_with(tmp_path: Path) -> None:
    table, preset = tmp_path / "runs.csv", tmp_path / "mine.yaml"
    preset.write_text("like: digits-cold5\nclassifier: {width: 8, device: cpu}\n")
    cell = Cell(str(preset), "ssre", ("incremental.milestones=[0.5,0.9]",), 3)
    assert {"width=8", "data.name=digits", "incremental.milestones=[0.5,0.9]"} < set(cell.settings.split())
    assert not any(word in cell.settings for word in ("seed", "device", "options"))
    append_result(table, cell, metrics(64.0))
    assert len(rows_of(read_results(table), [cell])) == 1
    preset.write_text("like: digits-cold5\nclassifier: {width: 9}\n")
    edited = Cell(*dataclasses.astuple(cell))
    assert rows_of(read_results(table), [edited]) == []
    append_result(table, edited, metrics(65.0))
    (row,) = read_results(table).values()
    assert row["per_step_accuracy"] == "65.0000" and "width=9" in row["settings"]


def test_a_foreign_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="not a table of efcil results"):
        read_results(tmp_path / "other.csv")


def test_published_numbers_belong_to_presets_and_stand_beside_ours() -> None:
    assert set(PUBLISHED) <= set(preset_names())
    assert published("cifar100-cold10-cpu", "efc++") == (47.52, 61.57)
    assert published("digits-cold5", "efc++") is None
    for preset, numbers in PUBLISHED.items():
        for label in numbers:
            method, *changes = label.split()
            assert resolve(preset, method, 0, changes).classifier.method == method


@pytest.mark.parametrize(
    ("preset", "label", "numbers"),
    [
        ("cifar100-warm20", "r-dfcil", (40.97, 55.65)),  # Table 2, a cell of every block
        ("tiny-imagenet-cold10", "lwf", (26.09, 45.14)),
        ("tiny-imagenet-warm10", "fusion", (46.92, None)),
        ("tiny-imagenet-cold10", "fusion", None),
        ("imagenet-subset-cold20", "abd", (22.40, 44.89)),
        ("imagenet1k-warm10", "fecam", (58.73, 65.83)),  # Table 7
        ("imagenet1k-cold20", "efc", (36.32, 49.80)),
        ("dn4il", "ssre", (32.05, 41.25)),  # Table 8
        ("cifar100-cold20", "efc++ options.regularizer=kd", (26.39, None)),  # Table 4
        ("imagenet-subset-warm20", "efc++ options.drift=none", (62.77, None)),  # Table 5
        ("cifar100-cold10", "efc++ options.covariance=oracle", (47.37, None)),  # Table 6
        ("tiny-imagenet-cold20", "efc++ options.drift=oracle options.covariance=oracle", (37.00, None)),  # Table 10
    ],
)
def test_a_published_number_stands_in_its_cell(
    preset: str, label: str, numbers: tuple[float, float | None] | None
) -> None:
    assert published(preset, label) == numbers


def test_a_campaign_skips_what_is_done_and_survives_a_crash(tmp_path: Path) -> None:
    table, out = tmp_path / "results" / "runs.csv", tmp_path / "runs"
    todo = cells(["digits-cold5"], [f"finetune:{TINY}", f"finetune:{TINY},first.lr=1e30"], [0])
    good, bad = campaign(todo, out, table, None, workers=2)
    assert (good.status, bad.status) == ("done", "failed")
    assert "stopped being" in bad.message  # the run's own sentence
    assert list(read_results(table)) == [good.cell.key]
    content = json.loads((good.folder / "metrics.json").read_text())
    (row,) = read_results(table).values()
    assert float(row["per_step_accuracy"]) == pytest.approx(content["per_step_accuracy"], abs=1e-4)

    stamp = (good.folder / "metrics.json").stat().st_mtime_ns
    (again,) = campaign(todo[:1], out, table, None, workers=1)
    assert again.status == "done"
    assert (good.folder / "metrics.json").stat().st_mtime_ns == stamp


def test_a_campaign_that_is_killed_takes_its_runs_with_it(tmp_path: Path) -> None:
    """And the same command goes on with them."""
    command = [
        "bench",
        "--presets",
        "digits-cold5",
        "--methods",
        "finetune:width=8,first.epochs=200",
        "--out",
        tmp_path,
    ]
    process = subprocess.Popen(
        cli_command(*command, "--results", tmp_path / "runs.csv"),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": cli_environment()},
    )
    wait_for(lambda: any(tmp_path.glob("*/checkpoint.efcil")))
    process.terminate()
    assert "interrupted; the same command goes on" in process.communicate(timeout=30)[1]
    assert process.returncode == 130
    (checkpoint,) = tmp_path.glob("*/checkpoint.efcil")
    written = checkpoint.stat().st_mtime_ns
    time.sleep(1.5)  # several epochs, if anybody were still training
    assert checkpoint.stat().st_mtime_ns == written


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_runs_that_can_share_a_first_task_do_not_both_train_it(tmp_path: Path) -> None:
    jobs = [Job(cell, tmp_path / f"{n}") for n, cell in enumerate(cells(["a"], ["efc++", "efc"], [0, 1]))]
    assert next_job(jobs) is jobs[0]
    jobs[0].status = "running"
    assert next_job(jobs) is jobs[2]  # the other seed
    jobs[2].status = "running"
    assert next_job(jobs) is jobs[1]  # nothing better to do
    jobs[0].folder.mkdir()
    (jobs[0].folder / "metrics.json").write_text(json.dumps({"steps": [{}]}))
    jobs[1].status = "done"
    assert next_job(jobs) is jobs[3]
    jobs[3].status = "done"
    assert next_job(jobs) is None


def test_a_wrong_name_fails_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean .*efc"):
        campaign(cells(["digits-cold5"], ["finetune", "ecf"], [0]), tmp_path / "runs", tmp_path / "r.csv", None, 1)
    assert not (tmp_path / "runs").exists()


def test_the_command_prints_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "runs.csv"
    append_result(table, Cell("digits-cold5", "efc++", (), 0), metrics(64.0, 81.5))
    arguments = ["--presets", "digits-cold5", "--methods", "efc++", "--results", str(table), "--out", str(tmp_path)]
    assert main(["bench", *arguments, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["per_step_accuracy"], line["per_step_accuracy_std"]) == (64.0, None)


def test_numbers_stay_whole_in_a_narrow_window(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for seed in range(2):
        append_result(table, Cell("cifar100-cold10", "efc++", (), seed), metrics(64.0 + seed, 81.5))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(summary_table("cifar100-cold10", summary(read_results(table).values())))
    assert all(number in captured.get() for number in ("cifar100-cold10", "efc++", "64.5±0.7", "47.5/61.6"))


def test_runs_at_work_stand_on_top_of_the_live_table_and_waiting_ones_are_counted(tmp_path: Path) -> None:
    statuses = ["done", "failed", "running", *["waiting"] * 60]
    todo = cells(["imagenet-subset-cold10"], ["adagauss"], range(len(statuses)))
    jobs = [Job(cell, tmp_path / str(cell.seed), status) for cell, status in zip(todo, statuses, strict=True)]
    jobs[2].folder.mkdir()
    (jobs[2].folder / "metrics.json").write_text(json.dumps({**metrics(64.0), "classes_per_task": [10] * 10}))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(campaign_table(jobs))
    _, title, _, *rows = captured.get().splitlines()
    assert title.strip() == "1 of 63 runs done, 60 waiting"
    assert [row.split()[3] for row in rows] == ["running", "failed", "done"]
    assert rows[0].split() == ["imagenet-subset-cold10", "adagauss", "2", "running", "2/10", "64.0", "50.0", "2.0"]


def test_methods_share_the_first_task_and_end_as_if_they_had_not(tmp_path: Path) -> None:
    arguments = [part for change in TINY.split(",") for part in ("--set", change)]
    for out, shared in (("alone", []), ("shared", ["--first-tasks", str(tmp_path / "first-tasks")])):
        for method in ("finetune", "efc++", "joint"):
            command = ["run", "digits-cold5", "--method", method, "--out", str(tmp_path / out), *arguments, *shared]
            assert main(command) == 0
    assert len(list((tmp_path / "first-tasks").iterdir())) == 1  # trained once for all three
    for state in (tmp_path / "alone").glob("*/state.efcil"):
        assert state.read_bytes() == (tmp_path / "shared" / state.parent.name / "state.efcil").read_bytes()
