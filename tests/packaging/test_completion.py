"""The Tab key: bash runs the script and is asked what may stand where the cursor is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing, run_cli
from efcil.bench.scenarios import preset_names
from efcil.cli import COMMANDS, main
from efcil.methods import METHODS

ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_efcil; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("bash") is None:
        missing("bash is not installed")
    done = run_cli("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path_factory.mktemp("completion") / "efcil"
    path.write_text(done.stdout)
    return path


def offered(script: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash offers in the place of the last word."""
    command = ["bash", "--norc", "-c", ASK, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert "compopt" in done.stderr or done.stderr == ""  # outside of a terminal compopt has nothing to do
    return done.stdout.split()


def test_commands(script: Path) -> None:
    assert offered(script, "efcil", "le") == ["learn"]
    assert offered(script, "efcil", "") == list(COMMANDS)


def test_presets(script: Path) -> None:
    assert offered(script, "efcil", "run", "di") == ["digits-cold5", "digits-warm4"]
    assert offered(script, "efcil", "tune", "") == preset_names()


def test_options_and_methods(script: Path) -> None:
    assert offered(script, "efcil", "run", "digits-cold5", "--me") == ["--method"]
    assert offered(script, "efcil", "run", "digits-cold5", "--method", "efc") == ["efc++", "efc"]
    assert offered(script, "efcil", "learn", "a.efcil", "photos", "--method", "") == list(METHODS)
    assert offered(script, "efcil", "run", "digits-cold5", "--track", "m") == ["mlflow"]
    assert offered(script, "efcil", "data", "get", "cif") == ["cifar100"]


def test_files(script: Path, tmp_path: Path) -> None:
    (tmp_path / "pets.efcil").touch()
    (tmp_path / "photos").mkdir()
    assert offered(script, "efcil", "predict", "", folder=tmp_path) == ["pets.efcil", "photos"]
    assert offered(script, "efcil", "run", "digits-cold5", "--out", "", folder=tmp_path) == ["photos"]


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef efcil"), ("tcsh", "complete efcil")])
def test_other_shells(shell: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert sign in script and "digits-cold5" in script and "adagauss" in script


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'efcil[completion]'" in capsys.readouterr().err
