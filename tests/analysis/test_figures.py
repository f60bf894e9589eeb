"""Figures from results and runs, as commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import make_blobs, make_learner
from efcil.analysis.bars import bars
from efcil.analysis.bars import draw as draw_bars
from efcil.analysis.curves import LABEL_GAP, apart, curves
from efcil.analysis.curves import draw as draw_curves
from efcil.analysis.grid import grid, searched
from efcil.analysis.measured import measured_results
from efcil.analysis.perturbation import draw as draw_noise
from efcil.analysis.runs import Run
from efcil.analysis.spectrum import draw as draw_spectra
from efcil.analysis.spectrum import spectrum_row
from efcil.analysis.style import VERMILLION
from efcil.analysis.sweep import draw, sweep, told
from efcil.bench.results import Cell, append_result
from efcil.cli import main
from efcil.config import RunConfig
from efcil.engine import numerics
from efcil.errors import Notice, UserError

RESULTS = Path(__file__).parent.parent.parent / "results" / "runs.csv"


def test_curves_are_the_rows_of_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured_results(["digits-cold5"], ["efc++", "finetune"], RESULTS)
    rows = curves(found)
    last = {row["method"]: row for row in rows if row["step"] == 5}
    ends = [one.per_step[-1] for one in found if one.label == "efc++"]
    assert len(rows) == 10 and last["efc++"]["seeds"] == len(ends) > 1
    assert last["efc++"]["per_step_accuracy"] == pytest.approx(np.mean(ends))
    assert last["efc++"]["std"] == pytest.approx(np.std(ends, ddof=1))
    assert last["efc++"]["per_step_accuracy"] > last["finetune"]["per_step_accuracy"] + 20
    out = tmp_path / "curves.png"
    assert (
        main(["figure", "curves", "digits-cold5", "efc++", "finetune", "--results", str(RESULTS), "--out", str(out)])
        == 0
    )
    with Image.open(out) as picture:
        assert picture.width > 500 and len(picture.convert("RGB").getcolors(1 << 20) or []) > 20
    said = capsys.readouterr().out
    assert str(out) in said and said.startswith(f"efc++ on digits-cold5: {len(ends)} seeds")


def test_rows_are_found_however_their_settings_are_written(tmp_path: Path) -> None:
    table, numbers = tmp_path / "runs.csv", {"kept_bytes": 8, "accuracy_matrix": [[64.0]]}
    numbers |= {**NUMBERS, "per_step_accuracy": 64.0, "steps": [{"per_step_accuracy": 64.0}]}
    for changes in (("options.drift=ridge", "options.eta=3"), ("options.eta=3.0", "options.drift=ridge")):
        append_result(table, Cell("digits-cold5", "efc++", changes, 0), numbers)
        (found,) = measured_results(["digits-cold5"], ["efc++:options.eta=3,options.drift=ridge"], table)  # once
        assert found.per_step == [64.0] and found.label == "efc++ options.eta=3 options.drift=ridge"


def test_bars_are_the_last_rows_of_the_results(tmp_path: Path) -> None:
    found = measured_results(["digits-warm4"], ["efc++"], RESULTS)
    rows = bars(found)
    assert [row["task"] for row in rows] == [0, 1, 2, 3, 4]  # a warm start begins with step 0
    expected = np.mean([one.per_task for one in found], axis=0)
    assert [row["accuracy"] for row in rows] == pytest.approx(expected.tolist())
    command = ["figure", "13", "--preset", "digits-cold5,digits-warm4", "--methods", "efc++", "--results", str(RESULTS)]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"figure13.csv", "figure13.svg", "figure13.png"}


NUMBERS = {"average_incremental_accuracy": 1.0, "average_forgetting": 2.0, "plasticity": 3.0, "seconds": 1.0}


def add_runs(table: Path, preset: str, changes: tuple[str, ...], accuracies: dict[int, float]) -> None:
    """Rows of efc++ with these changes, by seed."""
    for seed, value in accuracies.items():
        reached = {"per_step_accuracy": value}
        metrics = {**NUMBERS, **reached, "kept_bytes": 0, "steps": [reached], "accuracy_matrix": [[value]]}
        append_result(table, Cell(preset, "efc++", changes, seed), metrics)


HELD = "data.held_out=14"


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    table = tmp_path / "runs.csv"
    add_runs(table, "digits-cold5", (HELD,), {0: 40.0, 1: 50.0, 2: 60.0})
    add_runs(table, "digits-cold5", (HELD, "options.eta=2"), {0: 41.0, 1: 53.0, 7: 99.0})
    add_runs(table, "digits-cold5", ("classifier.options.eta=0.01", HELD), {0: 30.0, 1: 40.0, 2: 62.0})
    add_runs(table, "digits-cold5", (HELD, "options.eta=5"), {8: 99.0})  # no seed in common
    add_runs(table, "digits-cold5", (HELD, "options.eta=3", "options.sigma=1"), {0: 99.0})  # something else differs too
    add_runs(table, "digits-cold5", ("options.eta=4",), {0: 99.0})  # not on held-out images
    add_runs(table, "digits-warm4", (HELD,), {0: 10.0})
    add_runs(table, "digits-warm4", (HELD, "options.drift=none"), {0: 9.0})
    add_runs(table, "digits-warm4", (HELD, "options.eta=0.2"), {0: 9.0})
    return table


def test_a_sweep_compares_the_values_of_one_setting_seed_by_seed_with_the_one_that_is_set(swept: Path) -> None:
    rows = sweep(["digits-cold5", "digits-warm4", "digits-cold5"], "efc++", "options.eta", [HELD], swept)
    said = [(row["preset"], row["value"], row["own"], row["seeds"], row["per_step_accuracy"]) for row in rows]
    assert said == [
        ("digits-cold5", "0.01", False, 3, 44.0),
        ("digits-cold5", "0.1", True, 3, 50.0),
        ("digits-cold5", "2", False, 2, 47.0),
        ("digits-warm4", "0.1", True, 1, 10.0),
        ("digits-warm4", "0.2", False, 1, 9.0),
    ]
    assert [row["difference"] for row in rows] == [-6.0, 0.0, 2.0, 0.0, -1.0]
    assert [row["std"] for row in rows] == pytest.approx(
        [np.std([-10, -10, 2], ddof=1), 0, np.std([1, 3], ddof=1), 0, 0]
    )
    assert told(rows).splitlines() == [
        "digits-cold5: options.eta=0.1, as it is set, has 50.00 % over 3 seeds; "
        "the best of 3 values, 2, is 2.00 ± 1.41 above it",
        "digits-warm4: options.eta=0.1, as it is set, has 10.00 % over 1 seed; none of 1 other values is above it",
    ]
    lines = swept.read_text().splitlines()
    stale = [line.replace(line.split(",")[-2], "f" * 16) for line in lines]  # of defaults that there were once
    (swept.parent / "more.csv").write_text("\n".join([*lines, *(line.replace(",50.", ",99.") for line in stale[1:])]))
    assert sweep(["digits-cold5", "digits-warm4"], "efc++", "options.eta", [HELD], swept.parent / "more.csv") == rows
    older = swept.read_text().replace(f",{numerics.VERSION}\n", ",1\n")
    (swept.parent / "older.csv").write_text(older)
    for table, told_why in (("older.csv", True), ("runs.csv", False)):
        with pytest.raises(UserError, match="There are no results") as error:
            sweep(["digits-cold5"], "efc++", "options.eta", ["width=8"], swept.parent / table)
        assert ("(those of older numerics do not count)" in str(error.value)) == told_why


def test_a_sweep_is_drawn_over_numbers_or_words(swept: Path) -> None:
    (panel,) = draw(sweep(["digits-cold5", "digits-warm4"], "efc++", "options.eta", [HELD], swept)).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["0.01", "0.1", "0.2", "2"]
    cold, _, warm, _ = (
        line for line in panel.get_lines() if line.get_linestyle() != "None" or line.get_color() == VERMILLION
    )
    assert cold.get_xdata().tolist() == [0, 1, 3] and cold.get_ydata().tolist() == [-6, 0, 2]
    assert warm.get_xdata() == pytest.approx([1, 2], abs=0.1) and warm.get_ydata().tolist() == [0, -1]
    bars = [len(bars[2]) for bars in panel.containers]
    assert bars == [1, 0]  # one seed has no spread
    (words,) = draw(sweep(["digits-warm4"], "efc++", "options.drift", [HELD], swept)).axes
    assert [tick.get_text() for tick in words.get_xticklabels()] == ["efm", "none"]


def test_a_sweep_as_a_command(swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["figure", "sweep", "digits-cold5", "efc++", "options.eta", "--results", str(swept)]
    assert main([*command, "--set", HELD, "--out", str(tmp_path / "drawn")]) == 0
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {
        f"sweep-efc++-options.eta.{kind}" for kind in ("csv", "svg", "png")
    }
    assert "2.00 ± 1.41 above it" in capsys.readouterr().out
    for field in ("first.milestones", "stream.tasks", "first.rotation", "width"):  # of every kind
        assert main(["figure", "sweep", "digits-cold5", "efc++", field, "--results", str(swept)]) == 2
        assert f"efc++:{field}=VALUE" in capsys.readouterr().err
    for field in ("seed", "method", "classifier.method", "workers", "device", "data.packed"):
        assert main(["figure", "sweep", "digits-cold5", "efc++", field, "--results", str(swept)]) == 2
        assert f"There is nothing to sweep over {field}: runs of one method are compared" in capsys.readouterr().err
    assert main(["figure", "sweep", "digits-cold5", "efc++", "options.etta", "--results", str(swept)]) == 2
    assert "no setting called 'options.etta'; did you mean options.eta" in capsys.readouterr().err
    assert main(["figure", "sweep", "digits-cold5", "efc++", "eta", "--results", str(swept)]) == 2
    assert "There is no setting eta; did you mean options.eta?" in capsys.readouterr().err


def test_the_grid_has_a_cell_for_every_pair_that_was_run(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    numbers = {"average_incremental_accuracy": 1.0, "average_forgetting": 2.0, "plasticity": 3.0, "seconds": 1.0}
    cells = {(1, 0.1): (10.0, 20.0), (100, 0.1): (30.0, 50.0), (7, 0.5): (35.0,)}  # the last is not of @figure11
    for (lambda_efm, eta), values in cells.items():
        for seed, value in enumerate(values):
            cell = Cell("digits-cold5", "efc++", (f"options.lambda_efm={lambda_efm}", f"options.eta={eta}"), seed)
            step = {**numbers, "per_step_accuracy": value}
            append_result(table, cell, {**step, "kept_bytes": 1, "steps": [step], "accuracy_matrix": [[value]]})
    append_result(
        table,
        Cell("digits-cold5", "efc++", ("options.lambda_efm=1", "width=8"), 0),
        {**step, "kept_bytes": 1, "steps": [step], "accuracy_matrix": [[value]]},
    )
    found = searched(["digits-cold5"], table)
    older = [replace(one, numerics="1", numbers=dict.fromkeys(one.numbers, 99.0)) for one in found]
    rows = grid([*found, *older])  # what older numerics made is in no mean with newer
    assert {(row["lambda_efm"], row["eta"]): row["per_step_accuracy"] for row in rows} == {
        (1, 0.1): 15.0,
        (100, 0.1): 40.0,
        (7, 0.5): 35.0,
    }
    assert main(["figure", "11", "--preset", "digits-cold5", "--results", str(table), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figure11.png").exists()


def test_a_grid_of_rows_that_differ_in_more_is_refused(swept: Path) -> None:
    preset, held = ["digits-cold5"], f"efc++:{HELD}"
    assert [row["seeds"] for row in grid(measured_results(preset, [held, f"{held},options.eta=2"], swept))] == [3, 3]
    for table, methods in ((RESULTS, ["efc++", "efc"]), (swept, [held, "efc++:options.eta=4"])):
        labels = " and ".join(method.replace(":", " ") for method in methods).replace("+", r"\+")
        with pytest.raises(UserError, match=f"{labels} on digits-cold5 differ in more than λ, η and seed;"):
            grid(measured_results(preset, methods, table))


def test_what_is_named_twice_counts_once(swept: Path) -> None:
    held, again = f"efc++:{HELD}", f"efc++:{HELD},options.eta=0.1"
    found = measured_results(["digits-cold5", "digits-warm4", "digits-cold5"], [held, again, held], swept)
    once = [("digits-cold5", seed) for seed in (0, 1, 2)] + [("digits-warm4", 0)]
    assert [(one.preset, one.seed) for one in found] == once
    assert {one.label for one in found} == {f"efc++ {HELD}"}


def test_two_presets_of_one_file_name_are_two_panels(tmp_path: Path) -> None:
    presets, table = [str(tmp_path / name / "mine.yaml") for name in "ab"], tmp_path / "runs.csv"
    for number, preset in enumerate(presets):
        Path(preset).parent.mkdir()
        Path(preset).write_text("like: digits-cold5")
        add_runs(table, preset, (), {0: 40.0 + number})
    found = measured_results(presets, ["efc++"], table)
    assert [(one.preset, one.per_step) for one in found] == [(presets[0], [40.0]), (presets[1], [41.0])]
    assert [one.preset for one in measured_results(presets[:1], ["efc++"], table)] == ["mine"]


@pytest.mark.parametrize(
    ("preset", "out", "sentence"), [("cifar100-cold20", "a.png", "no run"), ("digits-cold5", "a.xyz", "drawn")]
)
def test_what_cannot_be_drawn(
    preset: str, out: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "curves", preset, "efc++", "--results", str(RESULTS), "--out", str(tmp_path / out)]) == 2
    assert sentence in capsys.readouterr().err


def test_what_has_no_rows_is_named_with_what_comes_near(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ["--results", str(swept), "--out", str(tmp_path / "drawn")]
    held = f"efc++:{HELD}"
    with pytest.warns(Notice, match=r"left out: .*runs\.csv has no run of efc data\.held_out=14 on digits-cold5$"):
        assert main(["figure", "curves", "digits-cold5", held, f"efc:{HELD}", *found]) == 0
    with pytest.warns(
        Notice, match="no run of efc\\+\\+ options.eta=2 on digits-cold5, but of efc\\+\\+:data.held_out=14,"
    ):
        assert main(["figure", "6", "--preset", "digits-cold5", "--methods", held, "efc++:options.eta=2", *found]) == 0
    with pytest.warns(Notice, match="no run of .* on digits-warm4"):
        command = ["figure", "14", "--preset", "digits-cold5,digits-warm4", "--methods", f"{held},options.eta=2"]
        assert main([*command, *found]) == 0
    assert main(["figure", "curves", "digits-cold5", held, "nofo", *found]) == 2
    assert "There is no method called 'nofo'" in capsys.readouterr().err
    assert main(["figure", "17", "--preset", "digits-cold5,nope", "--methods", held, *found]) == 2
    assert "There is no preset called 'nope'" in capsys.readouterr().err
    assert main(["figure", "curves", "digits-cold5", "efc++", *found]) == 2
    said = capsys.readouterr().err
    assert "has no run of efc++ on digits-cold5, but of efc++:options.eta=4 and efc++:data.held_out=14;" in said
    assert "efcil bench --presets digits-cold5 --methods efc++" in said
    assert main(["figure", "11", "--preset", "digits-cold5", "--results", str(swept), "--out", str(tmp_path)]) == 0


def test_a_long_label_has_room_for_its_lines() -> None:
    ends = {"fecam": 39.0, "efc++ options.lambda_efm=0 options.drift=ridge": 40.0, "efc++": 41.0}
    rows = [
        {"preset": "p", "method": label, "seeds": 1, "step": step, "per_step_accuracy": value, "std": 0.0}
        for label, end in ends.items()
        for step, value in ((1, 90.0), (2, end))
    ]
    (panel,) = draw_curves(rows).axes
    low, middle, high = sorted(text.xyann[1] for text in panel.texts)
    assert [text.get_text().count("\n") for text in panel.texts] == [0, 2, 0]
    gap = LABEL_GAP * panel.get_ylim()[1]
    assert min(middle - low, high - middle) == pytest.approx(2 * gap)  # half of three lines, and half of one


def test_a_method_that_only_a_later_panel_has_is_in_the_legend() -> None:
    rows = [
        {"preset": preset, "method": method, "seeds": 1, "task": 1, "accuracy": 50.0, "std": 0.0}
        for preset, methods in {"p": ["efc++"], "q": ["efc++", "fecam"]}.items()
        for method in methods
    ]
    picture = draw_bars(rows)
    assert [text.get_text() for text in picture.legends[0].texts] == ["efc++", "fecam"]


def test_noise_is_drawn_in_the_mean_over_the_runs_of_a_method() -> None:
    """The first panels are of the method that comes first, and say so where there are several."""
    levels = {("efc++", "a"): 60.0, ("efc++", "b"): 70.0, ("efc", "c"): 50.0}
    rows = [
        {"panel": panel, "preset": "p", "run": run, "method": method, "step": 3, "direction": direction}
        | {"strength": strength, "measure": measure, "value": value - 5 * strength}
        for (method, run), value in levels.items()
        for panel, measure in (
            ("first task", "change of probabilities"),
            ("all tasks", "accuracy on task 1"),
            ("end", "A_step"),
        )
        for direction in ("along", "across")
        for strength in (0.0, 1.0)
    ]
    left, middle, right = draw_noise(rows).axes
    assert [panel.get_title(loc="left") for panel in (left, right)] == ["After the first task, efc++", "At the end"]
    assert [list(line.get_ydata()) for panel in (left, middle) for line in panel.lines] == [[65, 60]] * 4
    ends = {"efc++, {}, 3 steps, 2 seeds": [65, 60], "efc, {}, 3 steps": [50, 45]}
    assert {line.get_label(): list(line.get_ydata()) for line in right.lines} == {
        name.format(direction): values for name, values in ends.items() for direction in ("along", "across")
    }


def test_spectra_of_many_runs_stand_in_rows_with_their_names() -> None:
    about = {"classes": 3, "rank": 2, "eta/lambda": 0.1, "method": "efc++"}
    rows = [
        {**about, "run": f"run{seed}", "seed": seed, "step": step, "index": index, "eigenvalue": 1 / index}
        for seed in range(4)
        for step in (1, 2)
        for index in (1, 2)
    ]
    panels = [panel for panel in draw_spectra(rows).axes if panel.get_visible() and panel.get_xlabel()]
    titles = [panel.get_title(loc="left") for panel in panels]
    assert titles == [f"Spectrum of $E_t$: efc++, seed {seed}" for seed in range(4)]
    tops = [round(panel.get_position().y1, 1) for panel in panels]
    assert tops[0] == tops[1] == tops[2] > tops[3]


def test_labels_are_set_apart() -> None:
    heights = apart([1.0, 1.01, 1.02, 5.0], 0.5)
    assert np.all(np.diff(heights) >= 0.5 - 1e-9) and heights[3] == 5.0 and np.mean(heights[:3]) == pytest.approx(1.01)


def test_the_rank_is_one_less_than_the_classes(tmp_path: Path) -> None:
    learner = make_learner("efc++", options={"rebalancing": {"epochs": 1}}, width=8)
    learner.partial_fit(*make_blobs(["a", "b", "c", "d"])).save(tmp_path / "run" / "state.efcil")
    row = spectrum_row(Run(tmp_path / "run", {}, RunConfig()))
    assert row["non-zero"] == 3 and row["features"] == 64 and row["greatest"] >= row["mean"] > 0
