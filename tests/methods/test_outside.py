"""Methods that other packages bring: a real package in a folder of its own, on the path of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import cli_command, cli_environment
from efcil import IncrementalClassifier, available_methods
from efcil.errors import UserError
from efcil.methods import METHODS, build_method

MODULE = """
from dataclasses import dataclass

from efcil.engine.method import Method


class Brave(Method):
    name = "brave"
    year = 2031
    idea = "forgets bravely"
    recipe = {"incremental": {"lr": 0.5}}

    @dataclass(frozen=True)
    class Options:
        courage: float = 1.0


class Nameless(Method):
    pass


class Stranger:
    pass


number = 3
"""
SETTINGS = "width=4,stem_stride=2,data.images_per_class=4,first.epochs=1,incremental.epochs=1,stream.steps=2"
TINY = [part for change in SETTINGS.split(",") for part in ("--set", change)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip would leave it: a module and its metadata with entry points, one of them broken."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "brave_methods.py").write_text(MODULE)
    (folder / "torn_methods.py").write_text("import nowhere_to_be_found\n")
    (folder / "empty_methods.py").write_text("from efcil.engine.method import Method\n")
    about = folder / "brave_methods-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brave-methods\nVersion: 1.0\n")
    entries = "brave = brave_methods:Brave\nefc++ = brave_methods:Brave\ntorn = torn_methods:Torn\n"
    (about / "entry_points.txt").write_text(f"[efcil.methods]\n{entries}")
    return folder


def shell(site: Path | None, *arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = cli_environment()
    if site is not None:
        environment["PYTHONPATH"] = f"{site}:{environment.get('PYTHONPATH', '')}"
    return subprocess.run(cli_command(*arguments), capture_output=True, text=True, env=environment, check=False)


def test_entry_points_are_listed_and_a_broken_one_hides_nothing(site: Path) -> None:
    done = shell(site, "methods", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0 and list(rows) == [*METHODS, "brave"]
    assert rows["brave"]["year"] == 2031 and rows["efc++"]["year"] != 2031  # names of the package stay its own
    assert "'torn' cannot be loaded (ModuleNotFoundError: No module named 'nowhere_to_be_found')" in done.stderr


def test_a_method_in_the_current_folder_needs_no_path(site: Path) -> None:
    words = ["settings", "brave_methods:Brave", "--json"]
    done = subprocess.run(cli_command(*words), cwd=site, capture_output=True, text=True, env=cli_environment())
    assert done.returncode == 0, done.stderr
    assert {"name": "options.courage", "value": 1.0}.items() <= json.loads(done.stdout)[0].items()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["brave", "brave_methods:Brave"])
def test_a_method_from_outside_runs_saves_and_loads(name: str, site: Path, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"like: digits-cold5\nmethods: {{'{name}': {{options: {{courage: 2.5}}}}}}\n")
    done = shell(site, "run", preset, "--method", name, *TINY, "--out", tmp_path / "runs", "--json")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["folder"])
    assert ":" not in folder.name
    settings = (folder / "config.yaml").read_text()
    assert "courage: 2.5" in settings and "lr: 0.5" in settings  # its section of the preset and its recipe
    load = f"import efcil; print(efcil.load({str(folder / 'state.efcil')!r}).config.method)"
    environment = {**cli_environment(), "PYTHONPATH": f"{site}:{cli_environment().get('PYTHONPATH', '')}"}
    loaded = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, env=environment, check=False)
    assert loaded.stdout == f"{name}\n", loaded.stderr
    sentence = "cannot be loaded" if ":" in name else "There is no method called 'brave'"
    with pytest.raises(UserError, match=sentence) as caught:  # without the package
        IncrementalClassifier.load(folder / "state.efcil")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_campaign_takes_methods_from_outside_with_changes(site: Path, tmp_path: Path) -> None:
    methods = [f"brave_methods:Brave:options.courage=3,{SETTINGS}"]
    where = ["--out", tmp_path / "runs", "--results", tmp_path / "runs.csv", "--json"]
    done = shell(site, "bench", "--presets", "digits-cold5", "--methods", *methods, *where)
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)
    assert line["method"] == "brave_methods:Brave" and line["changes"].startswith("options.courage=3 ")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("brave_methods:Stranger", "is not a subclass of efcil.engine.method.Method"),
        ("brave_methods:number", "is not a subclass of efcil.engine.method.Method"),
        ("brave_methods:Nameless", "does not say its name and year and idea"),
        ("brave_methods:Missing", "no method in the module brave_methods called 'Missing'; there are: Brave, Nameless"),
        ("brave_methods:Braver", "in the module brave_methods called 'Braver'; did you mean Brave"),
        ("empty_methods:Brave", "in the module empty_methods called 'Brave'; there is none"),
        ("torn_methods:Torn", "No module named 'nowhere_to_be_found'"),
        (
            "not_there:Class",
            r"No module named 'not_there'\); install its package, go to its folder, or put that on PYTHON",
        ),
        ("brave_methods:", "must be a name from `efcil methods`, or module:Class"),
        (":Brave", "must be a name from"),
        ("a b:c-d", "must be a name from"),
        ("bravo", "There is no method called 'bravo'; did you mean brave"),
    ],
)
def test_a_wrong_method_from_outside_gets_one_sentence(
    name: str, sentence: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(UserError, match=sentence) as caught:
        IncrementalClassifier(method=name)
    assert "\n" not in str(caught.value)


def test_python_takes_them_too(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    assert available_methods() == [*METHODS, "brave", "torn"]
    assert IncrementalClassifier(method="brave_methods:Brave").config.incremental.lr == 0.5
    assert build_method("brave", {"courage": 4.0}).options.courage == 4.0
