"""The command line: quick help, JSON for programs, and exit code 2 with one sentence for every mistake."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import efcil
from conftest import cli_command, cli_environment, run_cli
from efcil import __version__
from efcil.bench.scenarios import preset_names
from efcil.cli import main, parser
from efcil.methods import METHODS


def commands(of: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and command of a command, such as () and ("data", "list")."""
    yield path
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*path, name))


COMMANDS = list(commands(parser()))


def failed(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line that a wrong call prints on standard error; its exit code is 2 and its output is empty."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out.strip() == ""
    line = err.strip()
    assert line.startswith("efcil: ") and "\n" not in line and "Traceback" not in line
    return line


# Help


def test_the_commands_are_there() -> None:
    assert {("run",), ("demo",), ("methods",), ("presets",)} <= set(COMMANDS)


def test_help_describes_every_command_and_option_without_torch() -> None:
    """One process asks for every help text; none of them may import torch."""
    code = f"""
import contextlib, io, sys
from efcil.cli import main
for command in {COMMANDS!r}:
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            main([*command, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, command
    assert text.getvalue().startswith("usage: efcil " + " ".join(command)), command
    assert "torch" not in sys.modules and "numpy" not in sys.modules, command
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", [(), ("run",)], ids=["efcil", "efcil run"])
def test_help_answers_in_less_than_a_second(command: tuple[str, ...]) -> None:
    """A second of the processor, of which other programs take none."""
    before = os.times()
    done = run_cli(*command, "--help")
    after = os.times()
    assert done.returncode == 0 and "usage: efcil" in done.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1


def test_every_option_has_a_help_text() -> None:
    def walk(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
        for action in of._actions:
            yield action
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from walk(inner)

    plain = [action for action in walk(parser()) if not isinstance(action, argparse._SubParsersAction)]
    assert plain and all(action.help for action in plain)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"efcil {__version__}\n"


# Lists


def test_methods_lists_every_method(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(METHODS)
    assert all(row["idea"] and row["stores"] and isinstance(row["year"], int) for row in rows)
    assert {row["name"] for row in rows if not row["exemplar_free"]} == {"joint"}
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^ +{re.escape(row['name'])} +{row['year']} +(yes|no) ", text, re.MULTILINE) for row in rows)
    assert "(1.1 MB per class, 1.0 MB once)" in text  # EFC++ at 512 features


def test_presets_lists_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == preset_names() and all(row["description"] for row in rows)
    assert main(["presets"]) == 0
    text = re.sub(r"\s", "", capsys.readouterr().out)
    assert all(name in text for name in preset_names())


def test_presets_come_with_the_command_that_runs_them() -> None:
    for path in (Path(efcil.__file__).parent / "bench/presets").iterdir():
        comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
        assert any(f"efcil run {path.stem}" in line for line in comment), path.name


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    process = subprocess.Popen(
        cli_command("presets", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cli_environment(),
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert "Traceback" not in error and "Exception" not in error


# Interrupted


@pytest.mark.slow
@pytest.mark.parametrize("module", ["argparse", "yaml", "numpy", "torch.nn", "torch.optim"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_modules_are_loaded_is_one_sentence(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Python tells on standard error which modules it has loaded; the signal is sent as soon as this one is among."""
    process = subprocess.Popen(
        cli_command("run", "digits-cold5", "--out", tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**cli_environment(), "PYTHONPROFILEIMPORTTIME": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run where Ctrl-C is ignored
    )
    assert process.stderr is not None
    while not re.search(rf"\| +{module}$", process.stderr.readline().rstrip()):
        assert process.poll() is None
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
        process.communicate()
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    again = "(the same command with --resume goes on|nothing was changed)"
    assert out.strip() == "" and len(said) == 1 and re.fullmatch(rf"efcil: interrupted; {again}\.", said[0])
    assert process.returncode == 130


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits-cold"], "no preset called 'digits-cold'; did you mean digits-cold5"),
        (["zzz"], "no preset called 'zzz'; `efcil presets` lists all [0-9]+"),
        (["digits-cold5", "--method", "ecf"], "no method called 'ecf'; did you mean"),
        (["digits-cold5", "--set", "widht=4"], "called 'widht'; did you mean width"),
        (["digits-cold5", "--method", "cargo", "--set", "damping=2"], "no field damping; did you mean options.damping"),
        (["digits-cold5", "--set", "tasks=2"], "no field tasks; did you mean stream.tasks"),
        (["digits-cold5", "--set", "first.epoch=4"], "called 'epoch'; did you mean epochs"),
        (["digits-cold5", "--set", "options.lambda=4"], "called 'lambda'; did you mean lambda_efm"),
        (["digits-cold5", "--set", "stream.step=4"], "called 'step'; did you mean steps"),
        (["digits-cold5", "--set", "width"], "--set takes field=value"),
        (["digits-cold5", "--set", "width=x"], "classifier.width must be a whole number, not 'x'"),
        (["digits-cold5", "--set", "stream.steps=11"], "too few for 11 steps; lower stream.steps"),
        (["digits-cold5", "--set", "data.name=digit"], "no data set called 'digit'; did you mean digits"),
        (["digits-cold5", "--set", "backbone=resnet"], "no backbone called 'resnet'; did you mean resnet9 or resnet18"),
        (["digits-cold5", "--set", "device=nonsense"], "device 'nonsense' cannot be used"),
        (["digits-cold5", "--seed", "-1"], "seed must be at least 0"),
        (["nowhere.yaml"], "preset file nowhere.yaml cannot be read"),
        (["folder-cold2"], "data does not exist; check --data-root"),
        (["folder-cold2", "--data-root", "nowhere"], "nowhere.* does not exist; check --data-root"),
        (["cifar100-cold10", "--data-root", "nowhere"], "nowhere"),
        (["folder-cold2", "--data-root", "file.txt"], "file.txt is a file; give the folder .* --data-root"),
        (["digits-cold5", "--out", "file.txt"], r"file.txt is a file; give a folder for the runs, with --out\.$"),
        (["digits-cold5", "--out", "file.txt/runs"], "file.txt is a file; give a folder for the runs"),
    ],
)
def test_a_wrong_run_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EFCIL_DATA", raising=False)
    Path("file.txt").touch()
    assert re.search(message, failed(capsys, "run", "--out", "runs", *arguments))


@pytest.mark.parametrize(
    "arguments",
    [["bench", "--presets", "digits-cold5", "--methods", "efc"], ["tune", "digits-cold5", "--search", "width=4..8"]],
)
def test_runs_go_to_no_file(arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file.txt").touch()
    said = failed(capsys, *arguments, "--out", tmp_path / "file.txt" / "runs")
    assert said.endswith("file.txt is a file; give a folder for the runs, with --out.")


@pytest.mark.parametrize(
    "arguments", [["digits-cold5", "--method", "ecf"], ["folder-cold2"], ["digits-cold5", "--set", "stream.steps=11"]]
)
def test_a_wrong_run_leaves_no_folder_behind(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed(capsys, "run", *arguments, "--out", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_preset_file_that_is_no_yaml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("classifier: {width: [")
    assert "own.yaml is not valid YAML" in failed(capsys, "run", path, "--out", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND must be given; `efcil --help` shows what it takes."),
        (["fly"], "There is no command called 'fly'; `efcil --help` lists them."),
        (["lern"], "There is no command called 'lern'; did you mean learn?"),
        (["data"], "ACTION must be given; `efcil data --help` shows what it takes."),
        (["data", "chekc", "digits"], "There is no action called 'chekc'; did you mean check?"),
        (["figure", "9"], "RUN must be given; `efcil figure 9 --help` shows what it takes."),
        (
            ["figure", "20"],
            "There is no figure called '20'; there are: 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ",
        ),
        (
            ["figure", "4", "a", "--dataroot=b"],
            "There is no option --dataroot of efcil figure 4; `efcil figure 4 --help`",
        ),
        (
            ["learn", "a.efcil", "b", "--metod", "lda"],
            "There is no option --metod of efcil learn; did you mean --method?",
        ),
        (["run", "digits-cold5", "--seeds", "0-2"], "There is no option --seeds of efcil run; did you mean --seed?"),
        (["run", "--seeds", "0-2", "digits-cold5"], "There is no option --seeds of efcil run; did you mean --seed?"),
        (["run", "--se", "0"], "Ambiguous option: --se could match --seed, --set; `efcil run --help` shows"),
        (["run"], "PRESET must be given; `efcil run --help` shows what it takes."),
        (["run", "a", "b"], "There is no place for 'b'; `efcil run --help` shows what it takes."),
        (["run", "a", "--seed", "x"], "Argument --seed: invalid int value: 'x'; `efcil run --help` shows"),
        (["run", "a", "--precision", "fp8"], "--precision takes bf16, fp16 or fp32, not 'fp8'."),
        (["completion", "fish"], "shell takes bash, tcsh or zsh, not 'fish'."),
    ],
)
def test_wrong_usage_is_one_sentence_with_what_may_have_been_meant(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(capsys, *arguments).startswith(f"efcil: {message}")


def test_an_abbreviated_option_is_no_mistake() -> None:
    assert parser().parse_args(["run", "digits-cold5", "--meth", "efc"]).method == "efc"


def test_exit_codes_reach_the_shell() -> None:
    done = run_cli("run", "digits-cold")
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.strip() == "efcil: There is no preset called 'digits-cold'; " + done.stderr.strip().split("; ")[1]
    )


def test_training_that_cannot_go_on_is_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny = ["width=4", "stem_stride=2", "data.images_per_class=3", "first.lr=1e30", "first.epochs=3"]
    changes = [argument for change in tiny for argument in ("--set", change)]
    assert main(["run", "digits-cold5", *changes, "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "task 1" in error and "learning rate" in error and "Traceback" not in error
