"""The documentation says what the code does: names exist, options and tensors are described, blocks run, links lead."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from efcil import IncrementalClassifier
from efcil.analysis.tables.comparison import compared
from efcil.analysis.tables.layouts import LAYOUTS
from efcil.bench.campaign import method_and_changes
from efcil.bench.page import COMMANDS_AND_TABLE, with_tables
from efcil.bench.published import TABLES, run_of
from efcil.bench.results import read_results
from efcil.bench.scenarios import flat
from efcil.bench.scenarios import resolve as resolved
from efcil.cli import main
from efcil.commands.table import asked
from efcil.config import to_dict
from efcil.methods import METHODS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md"))
    if path.is_file()
)
PAPER_MAP = (DOCS / "paper-map.md").read_text()
STATE_FORMAT = (DOCS / "state-format.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


# The paper map


def resolve(name: str) -> Any:
    """The object with this dotted name: as many parts as possible are modules, the rest attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found: Any = importlib.import_module(".".join(parts[:length]))
            for attribute in parts[length:]:
                found = getattr(found, attribute)
            return found
    raise AssertionError(f"there is no {name}")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(efcil(?:\.\w+)+)`", PAPER_MAP))))
def test_every_function_of_the_paper_map_exists(name: str) -> None:
    assert callable(resolve(name))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAPER_MAP))))
def test_every_test_of_the_paper_map_exists(name: str) -> None:
    file, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_equation_has_its_row() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|(.*) \|$", PAPER_MAP.partition("## Algorithm 1")[0], re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 24))
    assert all(test.strip().startswith("`tests/") or "not yet" in function for _, function, test in rows)


# The methods


def options(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every option with its default, those of sections as ``section.name``."""
    for name, default in ((f.name, getattr(cls(), f.name)) for f in dataclasses.fields(cls)):
        if dataclasses.is_dataclass(default):
            yield from options(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", default


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_with_all_options_and_their_defaults(method: str) -> None:
    text = (DOCS / "methods" / f"{method}.md").read_text()
    assert "## Differences from the publication" in text
    assert f"--method {method}" in text
    assert f"**A class taught again** is {'refined' if METHODS[method].refines else 'refused'}" in text
    option_default_from_what = r"^\| `([\w.]+)` \| (.*?) \| .* \| .* \|$"
    described = dict(re.findall(option_default_from_what, text, re.MULTILINE))
    for name, default in options(METHODS[method].Options):
        shown = described[name].strip("`")
        assert (float(shown) == default) if type(default) in (int, float) else (shown == str(default).lower())


# The saved file


Contents = tuple[dict[str, tuple[int, ...]], dict[str, Any]]


def contents(path: Path) -> Contents:
    """Shapes and description of a file."""
    with safe_open(path, framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return shapes, json.loads(file.metadata()["efcil"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Contents]:
    """A small EFC++ classifier of 2 + 1 classes and the checkpoint of its first task."""
    folder = tmp_path_factory.mktemp("saved")
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    classifier = IncrementalClassifier("efc++", width=8, epochs=1)
    classifier.partial_fit(images[:4], ["a", "a", "b", "b"], checkpoint=folder / "checkpoint.efcil")
    classifier.partial_fit(images[4:], ["c", "c"]).save(folder / "state.efcil")
    return contents(folder / "state.efcil"), contents(folder / "checkpoint.efcil")


def documented_tensors() -> list[re.Pattern[str]]:
    """Patterns for the names in the page; B and K stand for numbers, a leading * for the name of a layer."""
    names = re.findall(r"`((?:model\.|method\.|\*\.)[\w.{},*]*)`", STATE_FORMAT)
    named = {name for name in names if not name.endswith("*")}  # `method.*` would describe anything
    return [
        re.compile(re.sub(r"\\\.[BK](?=\\\.|$)", r"\\.\\d+", re.escape(name)).replace(r"\*", ".*")) for name in named
    ]


def test_every_tensor_is_described(files: tuple[Contents, Contents]) -> None:
    patterns = documented_tensors()
    names = {name for shapes, _ in files for name in shapes if not name.startswith("optimizer.")}
    assert [name for name in names if not any(pattern.fullmatch(name) for pattern in patterns)] == []


def test_tensors_of_the_method_have_the_shapes_that_are_said(files: tuple[Contents, Contents]) -> None:
    shapes, _ = files[0]
    row = next(line for line in STATE_FORMAT.splitlines() if line.startswith("| `efc++`, `efc`, `ceos-acb` | `method."))
    sizes = {"m": 3, "n": 64, "r": 3}  # two images of each class
    said = {
        name: tuple(sizes[part] for part in shape.split(", "))
        for name, shape in re.findall(r"`(method\.\w+)` \(([mnr, ]+)\)", row)
    }
    assert said == {name: shape for name, shape in shapes.items() if name.startswith("method.")}


def test_every_key_of_the_descriptions_is_described(files: tuple[Contents, Contents]) -> None:
    (_, header), (shapes, checkpoint) = files
    keys = {*header, *header["config"], *header["config"]["first"], *header["preprocessing"], *checkpoint}
    keys |= {name.split(".")[2] for name in shapes if name.startswith("optimizer.")}
    assert [key for key in keys if f"`{key}`" not in STATE_FORMAT] == []


def test_the_measured_size_is_the_one_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(code for code in blocks("state-format.md", "python") if "getsize" in code)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert f"| `efc++`, `efc` | {int(printed.getvalue()):,} |" in STATE_FORMAT


# Your own images


def make_photos(root: Path, folders: list[str], per_class: int = 6) -> None:
    """Noise around a colour for each class folder."""
    rng = np.random.default_rng(0)
    for folder in folders:
        (root / folder).mkdir(parents=True)
        colour = rng.integers(40, 215, 3)
        for index in range(per_class):
            pixels = (colour + rng.normal(0, 20, (40, 48, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{index}.png")


def quick(code: str) -> str:
    """The same code with one epoch of a narrow network."""
    return code.replace("epochs=40", "epochs=1").replace("width=32", "width=8")


def test_the_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_photos(tmp_path, ["photos/first/cat", "photos/first/dog", "photos/later/bird", "photos/later/fish"])
    monkeypatch.chdir(tmp_path)
    for code in (*blocks("own-images.md", "python"), blocks("state-format.md", "python")[0]):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(quick(code), {})
    assert IncrementalClassifier.load("photos.efcil").classes_.tolist() == ["cat", "dog", "bird", "fish"]
    assert IncrementalClassifier.load("photos.efcil").config.backbone == "efficientnet-lite0"


@pytest.mark.slow
def test_the_shell_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_photos(tmp_path / "animals", ["cat", "dog", "bird", "fish"])
    make_photos(tmp_path / "sources", ["photo/cat", "photo/dog", "sketch/cat", "sketch/dog"])
    make_photos(tmp_path / "photos", ["first/cat", "first/dog", "later/bird", "later/fish"])
    monkeypatch.chdir(tmp_path)
    lines = [line for code in blocks("own-images.md", "sh") for line in code.splitlines()]
    short = [part for name in ("first.epochs=1", "incremental.epochs=1", "width=8") for part in ("--set", name)]
    for line in lines:
        program, command, *rest = shlex.split(line)
        assert program == "efcil"
        assert main([command, *rest, *(short if command == "run" else [])]) == 0
    runs = list(tmp_path.glob("runs/*"))
    assert len(runs) == sum(line.startswith("efcil run") for line in lines)
    for run in runs:
        metrics = json.loads((run / "metrics.json").read_text())
        about = json.loads((run / "run.json").read_text())
        names = {path.name for path in run.iterdir()}
        keys = {*metrics, *metrics["steps"][0], *about, *about["versions"], *names}
        assert [key for key in keys if f"`{key}`" not in STATE_FORMAT] == []


# For researchers


def test_the_preset_on_the_page_changes_what_it_says(tmp_path: Path) -> None:
    (text,) = blocks("researchers.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text)

    def changed(method: str) -> dict[str, Any]:
        usual, mine = (
            flat(to_dict(resolved(preset, method, 0))) for preset in ("digits-cold5", str(tmp_path / "mine.yaml"))
        )
        return {name: value for name, value in mine.items() if value != usual[name]}

    assert changed("finetune") == {"classifier.first.epochs": 1}
    assert changed("efc++") == {"classifier.first.epochs": 1, "classifier.options.lambda_efm": 5.0}


# Tables and figures


def test_the_commands_for_tables_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for code in blocks("tables-and-figures.md", "sh") for line in code.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("efcil table")]
    assert len(commands) >= 6
    for _, *arguments in commands:
        words = [str(tmp_path / word) if word.startswith("table2.") else word for word in arguments]
        assert main([*words, "--results", str(ROOT / "results" / "runs.csv")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"table2.tex", "table2.csv"}
    assert capsys.readouterr().out.startswith("Table 2. Small-scale")


def test_the_runs_that_fill_a_table_are_asked_for_as_printed_and_fit_it() -> None:
    lines = re.findall(r"^\| (\d+) \| .*\| `(efcil bench .*)` \|$", (DOCS / "tables-and-figures.md").read_text(), re.M)
    assert [int(number) for number, _ in lines] == list(TABLES)
    for number, command in lines:
        found = asked(command)
        methods = {(cell.method, cell.changes) for cell in found}
        rows = {method_and_changes(run_of(place.row)) for place in LAYOUTS[int(number)].places()}
        assert methods <= rows and "--data-root DIR" in command
        assert compared(int(number), [cell.preset for cell in found], {}).layout == LAYOUTS[int(number)]


# Links


def without_blocks(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name} links to {target}"


# Measured numbers


def test_the_tables_of_measured_numbers_are_those_of_the_results() -> None:
    results = read_results(ROOT / "results" / "runs.csv")
    page = (ROOT / "REPRODUCIBILITY.md").read_text()
    assert len(COMMANDS_AND_TABLE.findall(page)) == page.count("| method | seeds |") > 0
    assert with_tables(page, results, asked) == page
    assert with_tables(page, {}, asked) != page
