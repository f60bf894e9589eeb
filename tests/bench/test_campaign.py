"""Campaigns: what is done is skipped, a crash stops no other run, and the table adds up."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from conftest import cli_command, cli_environment
from efcil.bench.campaign import Job, campaign, cells, in_turn, jobs_of, seed_list
from efcil.bench.display import CampaignLog, campaign_table, summary_table
from efcil.bench.grids import GRIDS, expanded
from efcil.bench.results import Cell, append_result, read_results, summary
from efcil.bench.scenarios import resolve
from efcil.bench.states import state_path, states_size
from efcil.cli import main
from efcil.errors import UserError
from efcil.methods import build_method

TINY = "width=8,first.epochs=1,incremental.epochs=1,stream.steps=2"


def metrics(a_step: float, a_inc: float = 50.0) -> dict[str, object]:
    numbers = {
        "per_step_accuracy": a_step,
        "average_incremental_accuracy": a_inc,
        "average_forgetting": 1.0,
        "plasticity": 2.0,
        "seconds": 120.0,
    }
    return {
        **numbers,
        "preset": "digits-cold5",
        "method": "efc++",
        "seed": 0,
        "kept_bytes": 4000,
        "steps": [{**numbers, "step": 1, "per_step_accuracy": 90.0}, {**numbers, "step": 2}],
        "accuracy_matrix": [[90.0, None], [10.0, a_step]],
        "classes_per_task": [10] * 10,
        "first_step": 1,
        "finished": False,
    }


def test_cells_are_every_combination_with_changes() -> None:
    found = cells(["a", "b"], ["efc", "efc++:options.eta=1,width=8"], [0, 1])
    assert len(found) == 8
    assert found[1] == Cell("a", "efc++", ("options.eta=1", "width=8"), 0)
    assert found[1].label == "efc++ options.eta=1 width=8"


@pytest.mark.parametrize(
    ("entry", "method", "changes"),
    [
        ("efc++:first.milestones=[0.4,0.8],options.eta=1", "efc++", ("first.milestones=[0.4,0.8]", "options.eta=1")),
        ("efc++:options={a: [1,2],b: 3},width=8,", "efc++", ("options={a: [1,2],b: 3}", "width=8")),
        ("efc++:options.x=[[1,2],[3,4]]", "efc++", ("options.x=[[1,2],[3,4]]",)),
        ("my.module:Mine", "my.module:Mine", ()),
        ("my.module:Mine:options.x=a:b,width=8", "my.module:Mine", ("options.x=a:b", "width=8")),
        ("efc++:options.x=a:b", "efc++", ("options.x=a:b",)),
        ("efc++:", "efc++", ()),
    ],
)
def test_a_method_and_its_changes_are_told_apart(entry: str, method: str, changes: tuple[str, ...]) -> None:
    (cell,) = cells(["a"], [entry], [0])
    assert (cell.method, cell.changes) == (method, changes)


def test_milestones_of_a_campaign_arrive() -> None:
    (cell,) = cells(["digits-cold5"], ["efc++:first.milestones=[0.4,0.8],options.eta=1"], [0])
    assert cell.config.classifier.first.milestones == (0.4, 0.8) and cell.config.classifier.options["eta"] == 1.0


def test_every_grid_can_be_resolved() -> None:
    assert [len(GRIDS[name].methods) for name in ("table2", "figure11", "efim", "fd")] == [11, 25, 5, 6]
    for name in GRIDS:
        for cell in cells(["cifar100-cold10-cpu"], expanded([f"@{name}"]), [0]):
            build_method(cell.method, resolve(cell.preset, cell.method, 0, cell.changes).classifier.options)
            if name not in ("recipe", "trials"):  # others compare methods, which learn by the recipe of the preset
                assert all(change.startswith(("options.", "stream.")) for change in cell.changes)
    tried = Counter(cell.method for cell in cells(["cifar100-cold10-fast"], expanded(["@trials"]), [7]))
    assert tried == dict.fromkeys(GRIDS["table2"].methods, 4)  # none was given more than another
    assert expanded(["@table5", "efc", "efc++"]) == ["efc++", "efc++:options.drift=none", "efc"]
    with pytest.raises(UserError, match="did you mean"):
        expanded(["@table1"])


def test_seeds_are_lists_or_ranges() -> None:
    assert seed_list("3,1") == [3, 1]
    assert seed_list("0-2") == [0, 1, 2]
    for wrong in ("one", "3-1", "", "-1"):
        with pytest.raises(UserError, match="--seeds takes numbers"):
            seed_list(wrong)


@pytest.mark.parametrize(
    ("arguments", "sentence"), [(["--workers", "-1"], "--workers"), (["--seeds", "3-1"], "--seeds")]
)
def test_campaigns_of_nothing_are_refused(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "runs.csv")]
    assert main(["bench", "--presets", "digits-cold5", "--methods", "freeze", *arguments, *places]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert main(["bench", "--presets", "digits-cold5", "--methods", "freeze", "--workers", "0", *places]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_campaign_skips_what_is_done_and_survives_a_crash(tmp_path: Path) -> None:
    table, out = tmp_path / "results" / "runs.csv", tmp_path / "runs"
    todo = cells(["digits-cold5"], [f"finetune:{TINY}", f"finetune:{TINY},first.lr=1e30"], [0])
    good, bad = campaign(todo, out, table, None, workers=2)
    assert (good.status, bad.status) == ("done", "failed")
    assert "stopped being" in bad.message  # the run's own sentence
    assert list(read_results(table)) == [good.cell.identity]
    content = json.loads((good.folder / "metrics.json").read_text())
    (row,) = read_results(table).values()
    assert float(row["per_step_accuracy"]) == pytest.approx(content["per_step_accuracy"], abs=1e-4)

    stamp = (good.folder / "metrics.json").stat().st_mtime_ns
    (again,) = campaign(todo[:1], out, table, None, workers=1)
    assert again.status == "done"
    assert (good.folder / "metrics.json").stat().st_mtime_ns == stamp

    (without,) = campaign(todo[:1], out, table, None, workers=1, keep_states=True)
    assert without.status == "failed" and "--keep-states" in without.message  # not made over what is finished
    (kept,) = campaign(todo[:1], tmp_path / "kept", table, None, workers=1, keep_states=True)
    assert kept.status == "done" and states_size(kept.folder)[0] == 2
    state_path(kept.folder, 1).unlink()  # as if it had been interrupted: some states are not all
    assert [job.status for job in jobs_of(todo[:1], tmp_path / "kept", table, keep_states=True)] == ["waiting"]


@pytest.mark.slow
def test_a_campaign_that_is_killed_takes_its_runs_with_it(tmp_path: Path) -> None:
    """And the same command goes on with them."""
    command = [
        "bench",
        "--presets",
        "digits-cold5",
        "--methods",
        "finetune:width=8,first.epochs=200,checkpoint_seconds=0",
        "--out",
        tmp_path,
    ]
    process = subprocess.Popen(
        cli_command(*command, "--results", tmp_path / "runs.csv"),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": cli_environment()},
    )
    wait_for(lambda: any(tmp_path.glob("*/checkpoint.efcil")))
    process.terminate()
    assert "interrupted; the same command goes on" in process.communicate(timeout=600)[1]
    assert process.returncode == 130
    (checkpoint,) = tmp_path.glob("*/checkpoint.efcil")
    written = checkpoint.stat().st_mtime_ns
    time.sleep(1.5)  # several epochs, if anybody were still training
    assert checkpoint.stat().st_mtime_ns == written


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_runs_that_can_share_a_first_task_do_not_both_train_it(tmp_path: Path) -> None:
    jobs = [Job(cell, tmp_path / f"{n}") for n, cell in enumerate(cells(["a"], ["efc++", "efc"], [0, 1]))]
    first = in_turn(jobs)
    assert next(first) is jobs[0]
    jobs[0].status = "running"
    assert next(first) is jobs[2]  # the other seed
    jobs[2].status = "running"
    assert next(first) is jobs[1]  # nothing better to do
    jobs[0].folder.mkdir()
    (jobs[0].folder / "metrics.json").write_text(json.dumps(metrics(64.0)))
    assert next(in_turn(jobs)) is jobs[1]
    jobs[1].status = "done"
    assert list(in_turn(jobs)) == [jobs[3]]
    jobs[3].status = "done"
    assert list(in_turn(jobs)) == []


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


def test_what_all_lines_have_in_common_is_said_once_and_values_are_in_order(tmp_path: Path) -> None:
    table, held_out = tmp_path / "runs.csv", "data.held_out=50"

    def shown(*changes: str) -> list[str]:
        for one in changes:
            append_result(table, Cell("digits-cold5", "cargo", (held_out, *one.split()), 0), metrics(64.0))
        console = Console(width=120)
        with console.capture() as captured:
            console.print(summary_table("digits-cold5", summary(read_results(table).values())))
        return [line.strip().split("  ")[0] for line in captured.get().splitlines() if line.strip()]

    assert shown("options.damping=16")[-1] == f"cargo {held_out} options.damping=16"  # of one line nothing is shared
    *title, _, first, half, two, sixteen = shown("options.damping=2", "options.damping=0.5", "")
    assert " ".join(title).endswith(f"in %, all with {held_out}")
    assert [first, half, two, sixteen] == ["cargo", *(f"cargo options.damping={value}" for value in ("0.5", "2", "16"))]


def test_runs_at_work_stand_on_top_of_the_live_table_and_waiting_ones_are_counted(tmp_path: Path) -> None:
    statuses = ["done", "failed", "running", *["waiting"] * 60]
    todo = cells(["imagenet-subset-cold10"], ["adagauss"], range(len(statuses)))
    jobs = [Job(cell, tmp_path / str(cell.seed), status) for cell, status in zip(todo, statuses, strict=True)]
    jobs[2].folder.mkdir()
    (jobs[2].folder / "metrics.json").write_text(json.dumps(metrics(64.0)))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(campaign_table(jobs))
    _, title, _, *rows = captured.get().splitlines()
    assert title.strip() == "1 of 63 runs done, 60 waiting"
    assert [row.split()[3] for row in rows] == ["running", "failed", "done"]
    assert rows[0].split() == ["imagenet-subset-cold10", "adagauss", "2", "running", "2/10", "64.0", "50.0", "2.0"]


@pytest.mark.slow
def test_methods_share_the_first_task_and_end_as_if_they_had_not(tmp_path: Path) -> None:
    arguments = [part for change in TINY.split(",") for part in ("--set", change)]
    for out, shared in (("alone", []), ("shared", ["--first-tasks", str(tmp_path / "first-tasks")])):
        for method in ("finetune", "efc++", "joint"):
            command = ["run", "digits-cold5", "--method", method, "--out", str(tmp_path / out), *arguments, *shared]
            assert main(command) == 0
    assert len(list((tmp_path / "first-tasks").iterdir())) == 1  # trained once for all three
    for state in (tmp_path / "alone").glob("*/state.efcil"):
        assert state.read_bytes() == (tmp_path / "shared" / state.parent.name / "state.efcil").read_bytes()


# Several campaigns


def bench_command(table: Path, out: Path, seeds: str) -> list[str]:
    where = ["--results", str(table), "--out", str(out), "--workers", "1"]
    return cli_command("bench", "--presets", "digits-cold5", "--methods", f"finetune:{QUICK}", "--seeds", seeds, *where)


QUICK = f"{TINY},data.images_per_class=4,stem_stride=2"


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "others"), [("0-1", "2-3"), ("0-2", "0-2")], ids=["apart", "the same"])
def test_two_campaigns_at_once_lose_no_row_and_do_nothing_twice(seeds: str, others: str, tmp_path: Path) -> None:
    table = tmp_path / "results" / "runs.csv"
    started = [
        subprocess.Popen(bench_command(table, tmp_path / "runs", asked), env=cli_environment(), stdout=subprocess.PIPE)
        for asked in (seeds, others)
    ]
    for process in started:
        process.communicate(timeout=1800)
    assert [process.returncode for process in started] == [0, 0]
    wanted = cells(["digits-cold5"], [f"finetune:{QUICK}"], sorted({*seed_list(seeds), *seed_list(others)}))
    assert list(read_results(table)) == [cell.identity for cell in wanted]
    assert len(table.read_text().splitlines()) == 1 + len(wanted)  # the table itself has them all
    for cell in wanted:  # each was run by one of the two
        assert (tmp_path / "runs" / cell.name / "log.txt").read_text().count("2 tasks with") == 1


@pytest.mark.slow
def test_a_preset_that_is_edited_while_a_campaign_runs_makes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset, table = tmp_path / "mine.yaml", tmp_path / "runs.csv"
    text = "like: digits-cold5\nclassifier: {width: 8, first: {epochs: 1}, incremental: {epochs: 1}}\n"
    preset.write_text(text)
    (cell,) = cells([str(preset)], ["finetune:data.images_per_class=4,stream.steps=2"], [0])
    assert cell.config.classifier.width == 8  # the campaign has read it
    preset.write_text(text.replace("width: 8", "width: 4"))
    (job,) = campaign([cell], tmp_path / "runs", table, None, workers=1)
    assert job.status == "failed" and "changed while the campaign ran" in job.message
    assert read_results(table) == {}


def test_where_no_terminal_is_every_change_is_a_line(tmp_path: Path) -> None:
    jobs = [Job(cell, tmp_path / str(cell.seed)) for cell in cells(["digits-cold5"], ["efc:width=8"], range(4))]
    jobs[3].status = "done"
    said: list[str] = []
    log = CampaignLog(said.append)
    jobs[0].status = jobs[1].status = "running"
    log(jobs)
    log(jobs)  # nothing has changed
    name = "digits-cold5 efc width=8 seed"
    begun = [f"1/4 done; {name} {seed}: started" for seed in (0, 1)]
    assert said == ["1 of 4 runs done before", *begun]
    jobs[0].folder.mkdir()
    (jobs[0].folder / "metrics.json").write_text(json.dumps({**metrics(64.0), "finished": True}))
    jobs[0].status, jobs[1].status, jobs[1].message = "done", "failed", "there is no memory"
    log(jobs)
    finished = f"2/4 done; {name} 0: finished with A_step 64.0 % in 2.0 minutes"
    assert said[3:] == [finished, f"2/4 done; {name} 1: failed: there is no memory"]


@pytest.mark.slow
def test_a_campaign_into_a_file_says_what_goes_on(tmp_path: Path) -> None:
    places = ["--out", tmp_path / "runs", "--results", tmp_path / "runs.csv"]
    words = ["bench", "--presets", "digits-cold5", "--methods", f"finetune:{TINY}", "--seeds", "3", *places]
    done = subprocess.run(cli_command(*words), capture_output=True, text=True, env=cli_environment(), check=True)
    before, started, finished = done.stdout.splitlines()[:3]
    assert before == "0 of 1 runs done before" and started.endswith(" seed 3: started")
    assert " seed 3: finished with A_step " in finished
