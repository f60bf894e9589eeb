"""The report on runs: its numbers are those of the runs, it needs nothing outside itself, and says what is missing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from html_page import Page

from efcil.analysis.mean_drift import mean_drifts
from efcil.analysis.prototype_distance import prototype_distances
from efcil.analysis.runs import read_runs
from efcil.bench.metrics import NAMES
from efcil.bench.scenarios import config_digest, resolve
from efcil.cli import main
from efcil.commands.demo import with_report
from efcil.engine import numerics
from efcil.report.found import find_runs, written
from efcil.report.scenario import scenarios

TINY = ["width=4", "stem_stride=2", "data.images_per_class=20", "stream.steps=3", "first.epochs=1"]
TINY += ["first.rotation=false", "incremental.epochs=1", "incremental.lr=1.0e-05"]
BALANCING = ["options.rebalancing.epochs=1", "options.rebalancing.views=1"]


def run(out: Path, method: str, seed: int = 0, changes: list[str] = TINY, *more: str) -> Path:
    sets = [word for change in changes for word in ("--set", change)]
    before = set(out.glob("*"))
    assert main(["run", "digits-cold5", "--method", method, "--seed", str(seed), *sets, "--out", str(out), *more]) == 0
    (folder,) = set(out.glob("*")) - before
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three real runs: EFC++ with two seeds, and fine-tuning."""
    out = tmp_path_factory.mktemp("runs")
    run(out, "efc++", 0, TINY + BALANCING, "--keep-states")
    run(out, "efc++", 1, TINY + BALANCING)
    run(out, "finetune")
    return out


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


def folder_of(runs: Path, method: str, seed: int = 0) -> Path:
    (folder,) = runs.glob(f"*_{method}_seed{seed}_*")
    return folder


def metrics_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())  # type: ignore[no-any-return]


def change(folder: Path, name: str, how: Callable[[dict[str, Any]], object]) -> None:
    """Write a JSON file of a run anew."""
    content = json.loads((folder / name).read_text())
    how(content)
    (folder / name).write_text(json.dumps(content))


def page_of(*given: Path, out: Path) -> Page:
    assert main(["report", *map(str, given), "--out", str(out)]) == 0
    return Page(out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one sentence of a call that bad input ends."""
    capsys.readouterr()
    assert main(["report", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("efcil: ") and "Traceback" not in err
    return err


# The numbers are those of the runs


def test_tables_have_the_numbers_of_the_runs(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    rows = page.tables["Every run"]
    found = {(row[0][0].split()[0], int(row[1][1])): [float(value) for _, value in row[2:6]] for row in rows}
    every = [metrics_of(folder) for folder in runs.iterdir()]
    assert found == {(m["method"], m["seed"]): [m[name] for name in NAMES] for m in every}
    assert [int(value) for value in page.column("Every run", "kept")].count(0) == 1  # fine-tuning keeps nothing
    best = max(m["per_step_accuracy"] for m in every if m["method"] == "finetune")
    assert f"finetune {best:.1f} %" in page.text or f"finetune names {best:.1f} %" in page.text


def test_matrices_steps_phases_and_spectrum_are_those_of_the_run(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "efc++")
    metrics, page = metrics_of(folder), page_of(folder, out=tmp_path / "r.html")
    (caption,) = [name for name in page.tables if name.startswith("Accuracy matrix")]
    rows = [[None if value == "" else float(value) for _, value in row[1:]] for row in page.tables[caption]]
    assert rows == metrics["accuracy_matrix"]
    heat = page.matrix("after step")
    assert heat["text"] == [["" if v is None else f"{v:.1f}" for v in row] for row in metrics["accuracy_matrix"]]
    counts = page.matrix("taken for")
    assert [[int(text or 0) for text in row] for row in counts["text"]] == metrics["confusion_matrix"]
    order = json.loads((folder / "run.json").read_text())["class_order"]
    assert counts["rows"] == [name for step in order for name in step]
    (steps,) = [name for name in page.tables if name.startswith("Steps of")]
    assert [float(v) for v in page.column(steps, "A_step")] == [s["per_step_accuracy"] for s in metrics["steps"]]
    assert [int(v) for v in page.column(steps, "kept")] == [s["kept_bytes"] for s in metrics["steps"]]
    spent: dict[str, float] = {}
    for step in metrics["steps"]:
        for name, seconds in step["phase_seconds"].items():
            spent[name] = spent.get(name, 0.0) + seconds
    for name in spent.keys() - {"other"}:
        assert float(page.column("Time of each phase", name)[0]) == pytest.approx(spent[name])
    assert float(page.column("Time of each phase", "in all")[0]) == pytest.approx(metrics["seconds"], abs=0.05)
    (spectrum,) = [name for name in page.tables if name.startswith("Spectrum of")]
    assert [int(v) for v in page.column(spectrum, "above zero")] == [len(s["spectrum"]) for s in metrics["steps"]]
    assert [float(v) for v in page.column(spectrum, "greatest")] == [max(s["spectrum"]) for s in metrics["steps"]]


def test_what_is_lost_of_each_task_is_its_best_minus_its_last(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "finetune")
    matrix, page = metrics_of(folder)["accuracy_matrix"], page_of(folder, out=tmp_path / "r.html")
    (row,) = page.tables["Lost of each task at the end, points"]
    lost = [max(matrix[0][0], matrix[1][0]) - matrix[2][0], matrix[1][1] - matrix[2][1]]
    assert [float(value) for _, value in row[1:]] == pytest.approx(lost)
    assert sum(lost) / 2 == pytest.approx(metrics_of(folder)["average_forgetting"])


def test_seeds_are_one_curve_with_their_mean_and_spread(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    values = [metrics_of(folder_of(runs, "efc++", seed))["per_step_accuracy"] for seed in (0, 1)]
    (row,) = [row for row in page.tables["Mean ± standard deviation over seeds"] if row[1][0] == "2"]
    assert float(row[2][1]) == pytest.approx(statistics.mean(values))
    assert row[2][0] == f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
    assert len(page.chart("A_step after each step")["series"]) == 2
    steps = zip(
        *([s["per_step_accuracy"] for s in metrics_of(folder_of(runs, "efc++", seed))["steps"]] for seed in (0, 1)),
        strict=True,
    )
    (series,) = [s for s in page.chart("A_step after each step")["series"] if s["name"].startswith("efc++")]
    assert series["text"] == [f"{statistics.mean(pair):.1f}" for pair in steps]


def test_the_drift_of_prototypes_is_that_of_the_figures(runs: Path, tmp_path: Path) -> None:
    kept, other = folder_of(runs, "efc++"), folder_of(runs, "efc++", 1)
    page = page_of(runs, out=tmp_path / "r.html")
    (row_of,) = [chart for title, chart in page.charts if title.startswith("Prototypes of efc++") and "seed 0" in title]
    rows = prototype_distances(read_runs([kept]), None)
    assert len(rows) == 2 and {s["name"]: s["text"] for s in row_of["series"]} == {
        "as they were learnt": [f"{row['fixed']:.2f}" for row in rows],
        "as they were moved": [f"{row['updated']:.2f}" for row in rows],
    }
    (series,) = page.chart("Class means along E_t")["series"]
    assert series["text"] == [f"{row['drift']:.3g}" for row in mean_drifts(read_runs([kept]), None)]
    assert series["name"].endswith("(1 of 2 seeds)")
    missing = r"is not shown of efc\+\+[^,]*{}, whose states were not kept \(efcil run … --keep-states\)\."
    assert re.search(missing.format(", seed 1"), page.text)
    assert re.search(missing.format(""), page_of(other, out=tmp_path / "other.html").text)
    next((kept / "states").iterdir()).unlink()
    assert "could not be computed: The run in" in page_of(kept, out=tmp_path / "broken.html").text


def test_the_drift_of_other_methods_is_shown_where_they_show_class_means_and_others_are_named(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    run(out, "cargo", 0, [*TINY, "options.rank=3"], "--keep-states")
    run(out, "finetune", 0, TINY, "--keep-states")
    page = page_of(out, out=tmp_path / "r.html")
    assert [title for title, _ in page.charts if title.startswith("Prototypes of cargo")]
    assert not [title for title, _ in page.charts if title.startswith("Class means along")]
    assert "Not in the drift of prototypes: finetune, which does not show class means." in page.text


def test_nothing_is_asked_for_where_there_is_no_later_step(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    run(out, "efc++", 0, [*TINY, *BALANCING, "stream.tasks=1"], "--keep-states")
    assert "drift of prototypes" not in page_of(out, out=tmp_path / "r.html").text.lower()


# Run it again


def test_the_command_on_the_page_has_the_settings_of_the_run(runs: Path, tmp_path: Path) -> None:
    for folder in runs.iterdir():
        page = page_of(folder, out=tmp_path / "r.html")
        (command,) = re.findall(r"efcil run digits-cold5 .*? --out runs(?: --keep-states)?", page.text)
        words = shlex.split(command)
        assert ("--keep-states" in words) == (folder / "states").is_dir()
        changes = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
        config = resolve(words[2], words[4], int(words[6]), changes)
        assert config_digest(config) == metrics_of(folder)["config_digest"]
        assert config.classifier.incremental.lr == 1e-5 and config.classifier.seed == metrics_of(folder)["seed"]


@pytest.mark.parametrize(("value", "text"), [(1e-5, "1.0e-05"), ([0.5, 0.9], "[0.5, 0.9]"), (None, "null"), ("a", "a")])
def test_values_are_written_as_set_reads_them(value: Any, text: str) -> None:
    assert written(value) == text


def test_a_preset_that_is_gone_is_told(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "finetune")
    change(folder, "metrics.json", lambda metrics: metrics.update(preset="mine.yaml"))
    assert "not at hand here: The preset file mine.yaml cannot be read" in page_of(folder, out=tmp_path / "r.html").text


def test_settings_of_another_version_are_told(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "finetune")
    with (folder / "config.yaml").open("a") as file:
        file.write("  courage: 3\n")
    assert "other settings than the run: classifier.courage" in page_of(folder, out=tmp_path / "r.html").text


def test_versions_class_order_and_every_setting_are_there(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "efc++")
    about, page = json.loads((folder / "run.json").read_text()), page_of(folder, out=tmp_path / "r.html")
    assert all(version in page.words for version in about["versions"].values())
    assert all(", ".join(names) in page.words for names in about["class_order"])
    assert (folder / "config.yaml").read_text() in page.words


# A page by itself


def test_a_page_needs_nothing_outside_itself(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    for tag, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    text = (tmp_path / "r.html").read_text()
    assert "http" not in re.sub('<meta http-equiv="Content-Security-Policy"', "", text)
    assert "url(" not in text and "@import" not in text and "default-src 'none'" in text


def test_every_chart_has_a_text_and_a_table_and_can_be_reached(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    charts = page.all("div", "chart")
    assert len(charts) == len(page.all("figure")) == len(page.all("details", "values")) > 10
    assert all(chart["tabindex"] == "0" and chart["aria-label"] for chart in charts)
    drawings = [svg for svg in page.all("svg") if "swatch" not in svg.get("class", "")]
    assert len(drawings) == len(charts) + 1  # A_step has one for wide and one for narrow screens
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 20 for svg in drawings)
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in page.all("div", "scroll"))


def test_names_are_once_and_links_lead_somewhere(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    links = [attributes["href"][1:] for attributes in page.all("a")]
    assert len(links) > 8 and set(links) <= set(names)


def test_markup_in_names_is_text(runs: Path, tmp_path: Path) -> None:
    folder, wicked = folder_of(runs, "efc++"), "<script>alert(1)</script>\"'&"

    def rename(about: dict[str, Any]) -> None:
        about["class_order"][0][0] = wicked

    change(folder, "run.json", rename)
    change(folder, "metrics.json", lambda metrics: metrics.update(method=f"mine:{wicked}"))
    plain = page_of(folder_of(runs, "finetune"), out=tmp_path / "plain.html")
    page = page_of(folder, out=tmp_path / "r.html")
    kinds = {attributes.get("type", "") for attributes in page.all("script")}
    assert kinds == {"", "application/json"} and len([s for s in page.all("script") if not s]) == 1
    assert page.scripts[-1] == plain.scripts[-1]  # the page's own script, and no other
    assert any(wicked in words for words in page.words)
    counts = page.matrix("taken for")
    assert counts["rows"][0] == wicked


# What is missing, mixed or wrong


def test_older_runs_leave_sections_out_and_say_so(runs: Path, tmp_path: Path) -> None:
    folder = folder_of(runs, "efc++")

    def older(metrics: dict[str, Any]) -> None:
        del metrics["confusion_matrix"]
        for step in metrics["steps"]:
            for name in ("phase_seconds", "kept_bytes", "spectrum"):
                del step[name]

    before = page_of(folder, out=tmp_path / "before.html")
    assert "was not written down" not in before.text and "did not write down" not in before.text
    change(folder, "metrics.json", older)
    page = page_of(folder, out=tmp_path / "r.html")
    for what in ("confusion matrix", "time of each phase", "bytes kept after each step", "spectrum of the EFM"):
        assert re.search(rf"The [\w ]*{what} was not written down by", page.text), what
    assert "Confusion matrices" in before.text and "Confusion matrices" not in page.text
    assert "Spectrum of the Empirical" in before.text and "Spectrum of the Empirical" not in page.text
    titles = [title for title, _ in page.charts]
    assert "Time of each run" in titles and "Time of each phase" not in titles


def test_scenarios_are_not_mixed(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(runs, "finetune", changes=[*TINY[:3], "stream.steps=2", *TINY[4:]])
    capsys.readouterr()
    page = page_of(runs, out=tmp_path / "r.html")
    assert "Numbers can be compared within a scenario only" in page.text and len(page.all("article")) == 2
    assert "digits-cold5 data.images_per_class=20 stream.steps=2" in page.text
    assert "These runs are of 2 scenarios" in capsys.readouterr().out


def test_two_runs_of_one_seed_are_told_apart_by_their_folders(runs: Path) -> None:
    shutil.copytree(folder_of(runs, "finetune"), runs / "again" / "copy")
    (scenario,) = scenarios(find_runs([runs]).runs)
    names = [entry.name for entry in scenario.entries]
    assert len(names) == len(set(names)) == 3 and sum("(" in name for name in names) == 1


def test_seeds_of_different_numerics_are_different_curves(runs: Path) -> None:
    change(folder_of(runs, "efc++", 1), "metrics.json", lambda metrics: metrics.update(numerics=1))
    (scenario,) = scenarios(find_runs([runs]).runs)
    assert [len(entry.runs) for entry in scenario.entries] == [1, 1, 1]
    assert sorted(entry.name.partition(" (")[2] for entry in scenario.entries) == [
        "",
        "numerics 1)",
        f"numerics {numerics.VERSION})",
    ]


def test_settings_that_differ_are_those_that_somebody_changed_by_the_names_that_set_takes(
    runs: Path, tmp_path: Path
) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    caption = "Settings that differ between the curves"
    assert sorted(page.column(caption, "setting")) == ["options.rebalancing.epochs", "options.rebalancing.views"]
    assert [[text for text, _ in row[1:]].count("–") for row in page.tables[caption]] == [1, 1]  # of fine-tuning


def test_forgetting_is_in_points_wherever_it_is_shown(runs: Path, tmp_path: Path) -> None:
    page = page_of(runs, out=tmp_path / "r.html")
    of = {name.partition(" after each step, ")[0]: name for name in page.tables if " after each step, " in name}
    assert {symbol: of[symbol].rpartition(", ")[2] for symbol, _ in NAMES.values()} == {
        **dict.fromkeys(("A_step", "A_inc", "PL"), "percent"),
        "F": "points",
    }


def test_a_run_that_is_given_twice_counts_once(runs: Path) -> None:
    assert len(find_runs([runs, folder_of(runs, "finetune")]).runs) == 3


def test_unfinished_and_damaged_runs_are_left_out_of_a_folder_and_refused_by_name(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, damaged = folder_of(runs, "finetune"), folder_of(runs, "efc++", 1)
    change(cut, "metrics.json", lambda metrics: metrics.update(finished=False))
    (damaged / "run.json").write_text("{")
    page = page_of(runs, out=tmp_path / "r.html")
    assert "2 runs were left out" in page.text and "is not finished (3 of 3 steps)" in page.text
    assert capsys.readouterr().out.count("left out: ") == 2
    assert "is not finished" in refused(capsys, cut) and "--resume" in refused(capsys, cut)
    assert "run.json is damaged" in refused(capsys, damaged)
    shutil.rmtree(folder_of(runs, "efc++"))
    assert "No run here is finished" in refused(capsys, runs)


def test_wrong_names_are_one_sentence(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = folder_of(runs, "finetune")
    wrong = there.with_name(there.name.replace("finetune", "finetune2"))
    assert re.search(rf"did you mean .*{re.escape(str(there))}", refused(capsys, wrong))
    assert "There is no run or model" in refused(capsys, tmp_path / "nothing" / "here")
    (tmp_path / "empty").mkdir()
    assert "holds no run" in refused(capsys, tmp_path / "empty")
    assert "--photos is for a model" in refused(capsys, there, "--photos", tmp_path)
    assert "is a folder; give a file" in refused(capsys, there, "--out", tmp_path)
    assert "cannot be written" in refused(capsys, there, "--out", there / "log.txt" / "r.html")
    assert "is a model; a report is on one model" in refused(capsys, there / "state.efcil", there)


def test_json_says_what_is_in_the_page(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["report", str(runs), "--out", str(tmp_path / "r.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(tmp_path / "r.html") and len(told["runs"]) == 3 and told["left_out"] == []


def test_the_demo_ends_with_a_report_or_with_the_way_to_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [folder_of(runs, "efc++"), folder_of(runs, "finetune")]
    assert with_report(given, tmp_path / "r.html").endswith(str(tmp_path / "r.html"))
    assert len(Page(tmp_path / "r.html").tables["Every run"]) == 2
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert with_report(given, tmp_path / "other.html") == "A report needs jinja2; run: pip install 'efcil[report]'"
    assert not (tmp_path / "other.html").exists()
