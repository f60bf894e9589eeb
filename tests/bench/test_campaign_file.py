"""A campaign in one file: what it says is run, flags win over it, and a mistake is named with file and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_campaign import metrics

from efcil.bench.campaign import method_and_changes
from efcil.bench.campaign_file import change_value, combined, last_words, read_campaign
from efcil.bench.grids import expanded
from efcil.bench.results import Cell, append_result, read_results
from efcil.cli import main
from efcil.commands.table import asked

EXAMPLE = Path(__file__).parents[2] / "examples" / "campaign.yaml"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


def test_one_change_has_one_name_however_it_is_written(write: Any) -> None:
    long, short = "classifier.options.damping=0.5", "options.damping=0.5"
    file = read_campaign(write(f"methods: ['cargo:{long}']\nsettings: {{classifier: {{width: 8}}}}\n"))
    assert file.methods == (("cargo", (short,)),) and file.settings == ("width=8",)
    assert asked(f"efcil bench --presets digits-cold5 --methods cargo --set {long}") == asked(
        f"efcil bench --presets digits-cold5 --methods cargo:{short}"
    )


def test_the_campaign_of_the_papers_tables_has_every_cell_of_them() -> None:
    file = read_campaign(EXAMPLE.parent / "tables-fast.yaml")
    rows = [method_and_changes(entry) for entry in expanded(["@table2", "@table4", "@table5", "@table6"])]
    assert set(rows) - set(file.methods) == {("joint", ())}  # which takes a day
    cells = combined(file.presets, file.methods, file.seeds)
    assert len(cells) == len(file.presets) * len(set(file.methods)) * 3
    assert all(cell.config.stream.steps for cell in cells if cell.seed == 0)  # settings that resolve


def test_a_file_says_what_to_run(write: Any) -> None:
    file = read_campaign(
        write(
            "presets: [digits-cold5, own.yaml]\n"
            "methods: [efc, 'efc++:options.eta=1', '@table5', {method: lwf, settings: {incremental: {lr: 1e-3}}}]\n"
            "seeds: 1-2\n"
            "settings: {first: {milestones: [0.5, 0.9]}, width: 8, options.drift: none, incremental.steps: null}\n"
            "workers: 3\nout: there\ntrack: mlflow\nlauncher: slurm\nslurm: {partition: gpu, time: 60}\n"
        )
    )
    assert file.presets == ("digits-cold5", str(write("").parent / "own.yaml"))  # a file is looked for beside it
    assert file.methods == (
        ("efc", ()),
        ("efc++", ("options.eta=1",)),
        ("efc++", ()),
        ("efc++", ("options.drift=none",)),
        ("lwf", ("incremental.lr=1e-3",)),
    )
    assert file.seeds == (1, 2) and file.workers == 3 and file.out == Path("there")
    assert file.settings == ("first.milestones=[0.5,0.9]", "width=8", "options.drift=none", "incremental.steps=null")
    assert (file.track, file.launcher, file.slurm) == (("mlflow",), "slurm", {"partition": "gpu", "time": 60})


def test_settings_are_for_all_and_a_methods_own_win() -> None:
    found = combined(["a"], [("efc", ()), ("lwf", ("width=4",)), ("efc", ())], [0], ["width=8", "first.epochs=1"])
    assert found == [
        Cell("a", "efc", ("width=8", "first.epochs=1"), 0),
        Cell("a", "lwf", ("first.epochs=1", "width=4"), 0),
    ]
    assert last_words(["options={a: 1}", "b=1", "b=2", "options.a=2"]) == ("options={a: 1}", "b=2", "options.a=2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("none", "none"),
        ("1e-3", "1e-3"),
        ("true", '"true"'),
        (True, "true"),
        ([1, 2.5], "[1,2.5]"),
        ("[a", '"[a"'),
    ],
)
def test_a_value_is_written_as_it_is_read_back(value: Any, text: str) -> None:
    assert change_value(value) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("presets: [digits-cold5]\nmethod: efc", "no field in the campaign file {file} called 'method'; did you mean"),
        ("presets: [digit-cold5]\nmethods: efc", "In {file}, presets: There is no preset called 'digit-cold5'; did"),
        ("presets: digits-cold5\nmethods: [ecf]", "In {file}, methods: There is no method called 'ecf'; did you"),
        ("presets: digits-cold5\nmethods: ['@tabel2']", "In {file}, methods: There is no grid called 'tabel2'"),
        ("presets: digits-cold5\nmethods: ['efc:options.etta=1']", "In {file}, methods: There is no field in options"),
        ("presets: digits-cold5\nmethods: [{method: efc, seed: 1}]", "In {file}, methods: There is no field of a me"),
        ("presets: digits-cold5\nmethods: [3]", "In {file}, methods: takes methods such as efc++ or"),
        ("presets: digits-cold5\nmethods: efc\nsettings: {widht: 8}", "In {file}, settings: There is no field in"),
        ("presets: digits-cold5\nmethods: efc\nsettings: 8", "In {file}, settings: takes fields such as"),
        ("presets: digits-cold5\nmethods: efc\nseeds: 3-1", "In {file}, seeds: --seeds takes numbers"),
        ("presets: digits-cold5\nmethods: efc\nseeds: [a]", "In {file}, seeds: takes numbers such as"),
        ("presets: digits-cold5\nmethods: efc\nworkers: two", "In {file}, workers: takes a whole number, not 'two'"),
        ("presets: digits-cold5\nmethods: efc\nout: 3", "In {file}, out: takes a word, not 3"),
        ("presets: digits-cold5\nmethods: efc\nslurm: gpu", "In {file}, slurm: takes fields of its own"),
        ("presets: digits-cold5\nmethods: efc\ntrack: [4]", "In {file}, track: takes the names of trackers"),
        ("presets: digits-cold5\nmethods: efc\ntrack: tensorbord", "no tracker called 'tensorbord'; did you mean"),
        ("presets: digits-cold5\nmethods: efc\nlauncher: slrm", "no launcher called 'slrm'; did you mean slurm"),
        ("presets: digits-cold5", "{file} has no methods; give --methods"),
        ("methods: efc", "{file} has no presets; give --presets"),
        ("presets: [", "{file} is not valid YAML"),
        ("just words", "{file} must be a list of fields: description, presets, methods"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_field(
    text: str, sentence: str, write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(text)
    assert main(["bench", str(file), "--results", str(tmp_path / "r.csv"), "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert sentence.format(file=file) in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_missing_file_and_a_missing_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml cannot be read: No such file" in capsys.readouterr().err
    assert main(["bench", "--methods", "efc"]) == 2
    assert "--presets is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_flags_win_over_the_file_and_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example as it stands, its results taken as done; then quickly, with other seeds, methods and settings."""
    monkeypatch.chdir(tmp_path)
    file = read_campaign(EXAMPLE)
    for cell in combined(file.presets, file.methods, file.seeds, file.settings):
        append_result(Path("results/digits.csv"), cell, metrics(64.0 + cell.seed))
    assert main(["bench", str(EXAMPLE), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    epochs = "first.epochs=10 incremental.epochs=10"
    labels = [f"efc++ {epochs}", f"efc++ {epochs} options.drift=none", f"finetune {epochs}"]
    assert [(line["label"], line["seeds"]) for line in lines] == [(label, 2) for label in labels]

    quick = ["width=8", "first.epochs=1", "incremental.epochs=1", "data.images_per_class=4", "stream.steps=2"]
    changed = [part for change in quick for part in ("--set", change)]
    again = [str(EXAMPLE), "--methods", "finetune", "--seeds", "5", *changed, "--track", "tensorboard"]
    assert main(["bench", *again, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["changes"].split() == ["width=8", *quick[1:3], *quick[3:]] and line["seeds"] == 1
    assert len(read_results(Path("results/digits.csv"))) == 7
    assert len(list(Path("runs").glob("*/tensorboard/events*"))) == 1
