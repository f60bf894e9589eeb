"""`efcil table`: the paper's layout, ours beside the published numbers, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from efcil.analysis.tables.comparison import PAPER, Comparison, compared
from efcil.analysis.tables.latex import escaped, latex
from efcil.analysis.tables.layouts import LAYOUTS
from efcil.analysis.tables.scale import Scale, scales
from efcil.analysis.tables.terminal import terminal
from efcil.bench.campaign import cells
from efcil.bench.published import TABLES, Place
from efcil.bench.results import append_result, read_results
from efcil.bench.scenarios import number_settings, recorded, resolve
from efcil.cli import main
from efcil.commands.table import FORMATS, asked
from efcil.engine import numerics

COLD10 = "cifar100-cold10-cpu"
COMMITTED = Path(__file__).parents[2] / "results" / "runs.csv"


def add(path: Path, preset: str, method: str, values: Iterable[float], first_seed: int = 0) -> None:
    """Rows as a campaign would write them today, one per value of A_step, from this seed on."""
    values = list(values)
    for cell, value in zip(cells([preset], [method], range(first_seed, first_seed + len(values))), values, strict=True):
        numbers = {
            "per_step_accuracy": value,
            "average_incremental_accuracy": value + 10,
            "average_forgetting": value / 2,
            "plasticity": value + 20,
            "seconds": 60.0,
        }
        matrix = [[value, None], [value, value]]
        append_result(path, cell, {**numbers, "kept_bytes": 4, "steps": [numbers], "accuracy_matrix": matrix})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two sizes of one scenario, and one of another."""
    path = tmp_path / "runs.csv"
    add(path, COLD10, "efc++", [20.0, 22.0])
    add(path, COLD10, "efc", [19.0, 19.5])
    add(path, COLD10, "ewc", [10.0])
    add(path, COLD10, "efc++:options.drift=none", [18.0, 15.0, 3.0])
    add(path, "cifar100-cold10", "efc++", [47.0])
    add(path, "cifar100-cold20-cpu", "efc++", [14.0])
    return path


def table(number: int, path: Path, *presets: str) -> Comparison:
    return compared(number, presets, read_results(path))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["table", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def edited(path: Path, change: Callable[[dict[str, str]], None]) -> None:
    """The results with rows changed, as older ones or foreign ones would be; the records are gone."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        change(row)
    shutil.rmtree(path.with_suffix(".records"))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())


# What is shown


def test_a_cell_is_the_mean_and_the_spread_over_seeds_and_blank_where_nothing_was_run(results: Path) -> None:
    shown = table(2, results, COLD10).shown
    place = Place("cifar100", "cold", 10, "EFC++", "A_step")
    assert shown["ours", place][:2] == ("21.00", "1.41") and shown[PAPER, place][:2] == ("47.52", "0.68")
    assert shown["ours", place._replace(metric="A_inc")].mean == "31.00"
    assert shown["ours", place._replace(row="EWC")][:2] == ("10.00", "")
    assert ("ours", place._replace(row="LwF")) not in shown
    assert not any(source == "ours" and place[:3] != ("cifar100", "cold", 10) for source, place in shown)


def test_best_and_second_of_ours_and_of_the_paper_are_apart(results: Path) -> None:
    shown = table(2, results, COLD10).shown
    column = [("EFC++", 1, 1), ("EFC", 2, 2), ("EWC", 0, 0)]
    for row, ours, paper in column:
        place = Place("cifar100", "cold", 10, row, "A_step")
        assert (shown["ours", place].rank, shown[PAPER, place].rank) == (ours, paper)
    assert table(2, results, "cifar100-cold10").shown[
        "ours", Place("cifar100", "cold", 10, "EFC++", "A_step")
    ].rank == (0)  # alone it has won nothing


def test_less_forgetting_is_better_and_of_two_there_is_no_second(results: Path) -> None:
    add(results, COLD10, "efc++:options.regularizer=kd", [30.0])
    add(results, COLD10, "efc++:options.lambda_efm=0", [25.0])
    shown = table(4, results, COLD10).shown
    ranks = {
        (metric, row): shown["ours", Place("cifar100", "cold", 10, row, metric)].rank
        for metric in ("F", "PL")
        for row in ("KD", "FD squared", "EFM")
    }
    assert ranks == {
        **{("F", "EFM"): 1, ("F", "FD squared"): 2, ("F", "KD"): 0},
        **{("PL", "KD"): 1, ("PL", "FD squared"): 2, ("PL", "EFM"): 0},
    }
    pair = table(5, results, COLD10).shown
    assert [pair["ours", Place("cifar100", "cold", 10, row, "A_step")].rank for row in "✓✗"] == [1, 0]


def test_a_gain_is_that_of_the_seeds_that_both_have(results: Path) -> None:
    shown = table(6, results).shown
    place = Place("cifar100", "cold", 10, "EFM / Fixed", "delta")
    assert shown["ours, cpu", place].mean == "+4.50"  # (20 − 18 + 22 − 15) / 2, without the third seed
    assert ("ours, cpu", place._replace(row="Fixed / Fixed")) not in shown
    assert ("ours, cpu", place._replace(steps=20)) not in shown  # fixed prototypes were not run there


def test_sizes_stand_side_by_side_and_a_size_has_its_column_only_where_it_was_chosen(results: Path) -> None:
    found = table(2, results)
    assert [preset.preset for preset in found.presets] == ["cifar100-cold10", COLD10, "cifar100-cold20-cpu"]
    assert found.sources == [PAPER, "ours, full size", "ours, cpu"]
    columns = [
        (column.group.fixes["start"], column.column.heading, column.source)
        for column in found.columns(found.layout.groups)
        if column.group.fixes["metric"] == "A_step"
    ]
    assert columns == [
        *[("warm", "10 Step", PAPER), ("warm", "20 Step", PAPER)],
        *[("cold", "10 Step", source) for source in found.sources],
        *[("cold", "20 Step", source) for source in (PAPER, "ours, cpu")],
    ]
    assert table(2, results, "cifar100-warm20").sources == [PAPER, "ours"]  # asked for, so it has a column, all blank


def test_a_preset_of_ones_own_stands_in_its_scenario(results: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(f"like: {COLD10}\nclassifier: {{width: 8}}\n")
    twin = tmp_path / "twin" / "mine.yaml"
    twin.parent.mkdir()
    twin.write_text(own.read_text())
    add(results, str(own), "efc++", [5.0])
    found = table(2, results, COLD10, str(own), str(twin))
    assert found.sources == [PAPER, "ours, cpu", "ours, mine", f"ours, {twin}"]
    assert found.shown["ours, mine", Place("cifar100", "cold", 10, "EFC++", "A_step")].mean == "5.00"


def test_methods_of_ones_own_are_rows_below_the_papers(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(results, COLD10, "cargo", [25.0, 27.0])
    add(results, COLD10, "joint", [60.0])
    asked_for = ["--methods", "efc++", "cargo", "lda", "efc++:options.drift=none", "joint"]
    text = run(capsys, 2, COLD10, "--results", results, "--format", "csv", *asked_for)
    rows = list(csv.DictReader(text.splitlines()))
    own = [row for row in rows if (row["data"], row["metric"], row["source"]) == ("cifar100", "A_step", "ours")]
    assert [row["row"] for row in own[-5:]] == ["EFC++", "cargo", "lda", "efc++ options.drift=none", "joint"]
    assert [row["mean"] for row in own[-5:]] == ["21.00", "26.00", "", "12.00", "60.00"]
    assert [row["rank"] for row in own[-5:]] == ["2", "1", "", "", ""]  # joint is given all images again
    paper = [row for row in rows if row["source"] == PAPER and row["row"] == "cargo"]
    assert len(paper) == 24 and {row["mean"] for row in paper} == {""}
    for form in ("markdown", "terminal", "latex"):
        out = run(capsys, 2, COLD10, "--results", results, "--format", form, *asked_for)
        assert any({"cargo", "26.00"} <= set(re.findall(r"[\w.]+", line)) for line in out.splitlines()), form
        assert "Rows that the paper does not have" in " ".join(out.split()) and "Not run: lda." in out
    assert run(capsys, 3, "--results", results, "--methods", "@table3") == run(capsys, 3, "--results", results)


@pytest.mark.parametrize("number", [3, 8])
def test_domains_of_ones_own_stand_beside_dn4il(number: int, results: Path) -> None:
    add(results, "domains", "efc++", [60.0])
    found = table(number, results)
    place = Place("dn4il", "cold", 6, "EFC++", "A_step")
    assert found.shown["ours, domains", place].mean == "60.00"  # never under the name of DN4IL alone
    assert "Another set of domains in 1 step, not DN4IL" in scales(found)[0].sentence


def test_a_table_without_runs_shows_the_paper_and_blanks(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = table(7, results)
    assert [preset.preset for preset in found.presets] == [
        *("imagenet1k-cold10", "imagenet1k-cold20", "imagenet1k-warm10", "imagenet1k-warm20")
    ]
    assert {source for source, _ in found.shown} == {PAPER}
    assert "not run" in run(capsys, 7, "--results", results)


@pytest.mark.parametrize("number", TABLES)
def test_without_a_results_file_the_paper_stands_alone_with_the_command_for_more(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = json.loads(run(capsys, number, "--json"))
    assert {entry["source"] for entry in said["numbers"]} == {PAPER}
    assert f"--methods @table{number}` has written rows to results/runs.csv" in said["notes"][-1]
    for form in FORMATS:
        assert run(capsys, number, "--format", form)


# Rows of different making


def test_stale_rows_are_shown_alone_and_said(results: Path) -> None:
    def older(row: dict[str, str]) -> None:
        if row["method"] == "ewc":
            row["numerics"] = str(numerics.VERSION - 1)

    edited(results, older)
    (scale,) = scales(table(2, results, COLD10))
    assert scale.stale == "EWC" and f"today's numerics are version {numerics.VERSION}" in scale.sentence
    add(results, COLD10, "ewc", [12.0], first_seed=5)  # today's, of another seed
    found = table(2, results, COLD10)
    assert found.shown["ours", Place("cifar100", "cold", 10, "EWC", "A_step")][:2] == ("12.00", "")
    (scale,) = scales(found)
    assert scale.stale == "" and "1 more row of these runs is left out" in scale.sentence


def test_rows_with_other_settings_are_left_out(results: Path) -> None:
    def other(row: dict[str, str]) -> None:
        if row["method"] == "efc":
            row["config_digest"] = "0" * 16

    edited(results, other)
    found = table(2, results, COLD10)
    assert ("ours", Place("cifar100", "cold", 10, "EFC", "A_step")) not in found.shown
    assert "2 more rows of these runs are left out" in scales(found)[0].sentence


def test_no_gain_between_rows_of_different_numerics(results: Path) -> None:
    def older(row: dict[str, str]) -> None:
        if row["changes"] == "options.drift=none":
            row["numerics"] = str(numerics.VERSION - 1)

    edited(results, older)
    assert ("ours", Place("cifar100", "cold", 10, "EFM / Fixed", "delta")) not in table(6, results, COLD10).shown


# The scale


def test_the_scale_is_the_one_that_the_rows_were_made_at(results: Path) -> None:
    add(results, COLD10, "pass", [9.0])
    (scale,) = scales(table(2, results, COLD10))
    assert scale == Scale(
        preset=COLD10,
        source="ours",
        network="resnet18 of width 16 (stem_stride 2)",
        features=128,
        image_size=32,
        images_per_class=200,
        first_epochs="30 epochs",
        later_epochs="15 epochs",
        other_epochs="PASS: 6 epochs",
        seeds="1 seed (EFC, EFC++: 2 seeds)",
        numerics=str(numerics.VERSION),
        stale="",
        remarks="",
    )

    def wider(row: dict[str, str]) -> None:
        row["settings"] = row["settings"].replace("width=16", "width=32")

    edited(results, wider)
    assert scales(table(2, results, COLD10))[0].features == 256


def test_the_settings_of_a_row_can_be_read_again() -> None:
    rows = read_results(COMMITTED).values()
    for settings, method in {(row["settings"], row["method"]) for row in rows if row["preset"] == COLD10}:
        config = recorded(method, settings)
        assert config.classifier.image_size == 32 and config.data.images_per_class == 200
    cell = cells(["imagenet1k-warm20"], ["r-dfcil"], [0])[0]
    again, wanted = number_settings(recorded("r-dfcil", cell.settings)), number_settings(cell.config)
    assert again == wanted
    assert recorded("efc++", "").stream == resolve("cifar100-cold10", "efc++", 0).stream


# Formats


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("number", TABLES)
def test_a_window_has_room_for_every_table(number: int, width: int, results: Path) -> None:
    sizes = [preset.preset for preset in table(number, results).presets]
    text = terminal(table(number, results), width).plain
    assert max(map(len, text.splitlines())) <= width
    numbers = text.count("±")
    printed = sum(bool(number.std) for number in table(number, results).shown.values())
    assert numbers == printed, sizes  # nothing is lost when columns go below each other


def test_the_best_is_bold_and_the_second_underlined_in_a_window(results: Path) -> None:
    text = terminal(table(2, results, COLD10), 80)
    styled = {(text.plain[span.start : span.end], str(span.style)) for span in text.spans}
    assert {("21.00", "bold"), ("19.25", "underline"), ("47.52", "bold"), ("43.62", "underline")} <= styled
    assert isinstance(text, Text) and ("10.00", "bold") not in styled


def test_the_command_prints_the_table_and_its_scale(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, 4, COLD10, "--results", results)
    assert out.startswith("Table 4. Ablation study on regularizers") and "A_step (↑)" in out
    assert "21.00±1.41" in out and "FD squared" in out
    said = " ".join(out.split())
    assert "resnet18 of width 16 (stem_stride 2), 128 features, 32 pixels; 200 images per class" in said
    assert "30 epochs for the first task, 15 epochs for each later one; 2 seeds" in said


def test_markdown(results: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "table.md"
    assert run(capsys, 2, COLD10, "--results", results, "--out", out).strip() == str(out)
    lines = out.read_text().splitlines()
    tables = [line for line in lines if line.startswith("|")]
    warm, cold = tables[: len(tables) // 2], tables[len(tables) // 2 :]
    assert {line.count("|") for line in warm} == {6} and {line.count("|") for line in cold} == {8}
    assert cold[0].split(" | ")[2] == "A_step<br>10 Step<br>ours" and "Cold Start (CS):" in lines
    assert cold[3].startswith("| EWC | 31.17 ± 2.94 | 10.00 |")
    efc, best = cold[12], cold[13]
    assert efc.startswith("| EFC | <ins>43.62</ins> ± 0.70 | <ins>19.25</ins> ± 0.35 |")
    assert best.startswith("| EFC++ | **47.52** ± 0.68 | **21.00** ± 1.41 | **33.71** ± 1.41 |")
    assert "| Fusion | – |  | – | – |  | – |" in cold
    assert lines[-1].startswith(f"- {COLD10} (ours): resnet18")


def widths(text: str) -> list[tuple[int, int]]:
    """For each tabular, the columns that it has and those that each of its rows fills."""
    found = []
    for spec, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        for line in re.findall(r"^(.*) \\\\$", body, re.MULTILINE):
            spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            found.append((len(spec), line.replace(r"\&", "").count("&") + 1 + sum(spans) - len(spans)))
    return found


def document(results: Path, packages: str) -> str:
    parts = [latex(table(number, results), ["a & b_c, 3 % ± λ~#{}"]) for number in TABLES]
    return "\n".join([r"\documentclass{article}", packages, r"\begin{document}", *parts, r"\end{document}"])


def test_latex_has_rows_of_equal_length_and_closes_what_it_opens(results: Path) -> None:
    text = document(results, "")
    found = widths(text)
    assert len(found) > 150 and all(wanted == filled for wanted, filled in found)
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("{") == unescaped.count("}") and unescaped.count("$") % 2 == 0
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert sum(1 if kind == "begin" else -1 for kind, _ in opened) == 0
    assert text.isascii()
    assert r"EFC++ & \textbf{47.52} $\pm$ 0.68 & 47.00 & \textbf{21.00} $\pm$ 1.41 & \textbf{33.71} $\pm$ 1.41" in text
    assert escaped("A_step ✓ 5 % of a_b") == r"$A_{\mathrm{step}}^K$ $\surd$ 5 \% of a\_b"


@pytest.mark.parametrize("packages", ["", r"\usepackage{graphicx}"])
def test_latex_compiles_in_a_plain_document(packages: str, results: Path, tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("install LaTeX to compile the tables")
    (tmp_path / "tables.tex").write_text(document(results, packages))
    done = subprocess.run(
        [program, "-halt-on-error", "-interaction=nonstopmode", "tables.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Missing" not in done.stdout and b"Undefined" not in done.stdout


def test_csv_has_every_cell_with_its_scale(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(run(capsys, 2, COLD10, "--results", results, "--format", "csv").splitlines()))
    assert len(rows) == 264 + 22  # the paper's, and two metrics of eleven methods
    of = {(row["row"], row["metric"], row["source"]): row for row in rows if row["data"] == "cifar100"}
    ours = of["EFC++", "A_step", "ours"]
    assert (ours["mean"], ours["std"], ours["rank"], ours["seeds"]) == ("21.00", "1.41", "1", "2")
    assert (ours["preset"], ours["features"], ours["images_per_class"], ours["stale"]) == (
        COLD10,
        "128",
        "200",
        "False",
    )
    assert of["LwF", "A_step", "ours"]["mean"] == "" and of["LwF", "A_step", "ours"]["preset"] == COLD10
    assert of["Fusion", "A_step", "paper"]["mean"] == ""


def test_json_has_the_numbers_the_scales_and_the_notes(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: dict[str, Any] = json.loads(run(capsys, 6, "--results", results, "--json"))
    assert said["table"] == 6 and len(said["scales"]) == 3 and any("Delta" in note for note in said["notes"])
    numbers = {(n["source"], n["steps"], n["row"], n["metric"]): n for n in said["numbers"]}
    assert numbers["ours, cpu", 10, "EFM / Fixed", "A_step"]["mean"] == 21.0
    assert numbers["paper", 10, "EFM / Fixed", "delta"]["mean"] == 1.22
    assert numbers["ours, cpu", 20, "EFM / Real", "A_step"]["mean"] is None


def test_presets_may_stand_behind_an_option(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run(capsys, 2, COLD10, "cifar100-cold10", "--results", results, "--format", "csv")
    assert run(capsys, 2, "--results", results, "--format", "csv", COLD10, "cifar100-cold10") == before
    for words in ([COLD10, "--format", "csv", "cifar100-cold10"], ["--format", "csv", COLD10, "--jsn"]):
        assert main(["table", "2", *words]) == 2  # in two places, and with an option that there is not


def test_a_file_for_a_window(results: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, 8, "--results", results, "--out", tmp_path / "table.txt")
    assert "39.32±0.15" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize("number", TABLES)
def test_the_committed_results_fill_every_table(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(run(capsys, number, "--results", COMMITTED, "--json"))
    assert len({n["row"] for n in said["numbers"]}) == len({place.row for place in LAYOUTS[number].places()})


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["11"], "There is no Table 11 of numbers in the paper; there are 2 to 10"),
        (["1"], "`efcil presets` lists"),
        (["two"], "There is no Table two"),
        ([COLD10], f"There is no Table {COLD10}"),
        ([], "Give the number of a table, such as `efcil table 2`"),
        (["2", "cifar100-cold10-gpu"], "no preset called 'cifar100-cold10-gpu'; did you mean"),
        (["2", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["2", "digits-cold5"], "Table 2 has no column for the preset digits-cold5 (digits, cold start, 5 steps)"),
        (["6", "cifar100-warm10-cpu"], f"presets that fit: cifar100-cold10, {COLD10}"),
        (["8", "folder-cold2"], "presets that fit: dn4il, domains"),
        (["2", "--results", "nowhere.csv"], "There is no results file nowhere.csv"),
        (["2", "--methods", "cargo", COLD10], f"{COLD10} is a preset; presets stand behind the number of the table."),
        (["2", "--methods", "crago"], "no method called 'crago'; did you mean cargo"),
        (["2", "--methods", "cargo:options.damp=1"], "no field in options called 'damp'; did you mean damping"),
        (["5", "--methods", "cargo"], "Only Tables 2, 3, 7 and 8 have methods for rows"),
        (["2", "--out", "."], ". cannot be written"),
        (["2", "--out", "table.docx"], "follows from .md, .tex, .csv or .txt; or give --format"),
        (["--update", "empty.csv", "--results", "nowhere.csv"], "There is no results file nowhere.csv"),
        (["--update", "nowhere.md"], "nowhere.md cannot be read"),
        (["--update", "empty.csv"], "empty.csv has no table under an `efcil bench` command"),
        (["2", "--update", "page.md"], "and not both"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    sentence: str,
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text(results.read_text().splitlines()[0] + "\n")
    given = arguments if "--results" in arguments else [*arguments, "--results", str(results)]
    assert main(["table", *given]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


# Pages


def test_the_tables_of_a_page_are_written_anew(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    text = "Words.\n\n    efcil bench --presets {} --seeds 0-1 \\\n        --methods efc++ efc\n\n| old |\n\nMore.\n"
    page.write_text(text.format(COLD10))
    assert json.loads(run(capsys, "--update", page, "--results", results, "--json"))["tables"] == 1
    lines = page.read_text().splitlines()
    assert lines[0] == "Words." and lines[-1] == "More." and "| old |" not in lines
    rows = [line for line in lines if line.startswith("| `")]
    assert rows[0].startswith("| `efc++` | 2 | 21.0 ± 1.4 |") and "| 47.5 / 61.6 |" in rows[0]
    assert rows[1].startswith("| `efc` | 2 | 19.2 ± 0.4 |") and len(rows) == 2


def test_a_command_on_a_page_asks_for_what_it_would_run(tmp_path: Path) -> None:
    assert asked(f"efcil bench --presets {COLD10} --methods efc++") == cells([COLD10], ["efc++"], [0])
    command = f"efcil bench --presets {COLD10} --methods efc++ efc:width=4 --set width=8 --seeds 0-1"
    assert asked(command) == cells([COLD10], ["efc++:width=8", "efc:width=4"], [0, 1])
    file = tmp_path / "campaign.yaml"
    file.write_text(f"presets: {COLD10}\nmethods: [efc]\nseeds: 3\n")
    assert asked(f"efcil bench {file}") == cells([COLD10], ["efc"], [3])
