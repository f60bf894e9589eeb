"""The paper's numbers: every digit is the one of its source, and each stands beside the run that it belongs to."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conftest import missing
from efcil.analysis.tables.comparison import PAPER, Shown, ranked
from efcil.analysis.tables.layouts import LAYOUTS
from efcil.bench.grids import GRIDS
from efcil.bench.published import TABLES, Place, label_of, means, number_at, printed, published, run_of
from efcil.bench.scenarios import FIRST_CLASSES, preset_names, resolve, scenario_of

# Reading the LaTeX source: cells are spread over the columns and rows that they span, and a number's place is what the
# headings above it and the names beside it say.

DATA = {
    "CIFAR-100": "cifar100",
    "Tiny-ImageNet": "tiny-imagenet",
    "ImageNet-Subset": "imagenet-subset",
    "ImageNet-1K": "imagenet-1k",
    "DN4IL": "dn4il",
}
NOT_IN_THE_CELLS: dict[int, dict[str, Any]] = {  # but in the caption or in the text
    2: {},
    3: {"metric": "A_step"},
    4: {},
    5: {"metric": "A_step"},
    6: {"data": "cifar100", "start": "cold"},
    7: {"data": "imagenet-1k"},
    8: {},
    9: {"data": "imagenet-subset", "start": "cold"},
    10: {"data": "tiny-imagenet", "start": "cold"},
}
NUMBER = re.compile(r"(?P<mean>[+-]?\d+\.\d+)(?:±(?P<std>\d+\.\d+))?|(?P<dash>[-—])")


@cache
def source() -> str:
    default = Path(__file__).parents[2].parent / "shared" / "paper" / "efcpp.tex"
    path = Path(os.environ.get("EFCIL_PAPER") or default)
    if not path.is_file():
        missing("set EFCIL_PAPER to the LaTeX source of the paper to compare every number with it")
    return path.read_text(encoding="utf-8")


def brace_end(text: str, start: int) -> int:
    """Behind the brace that closes the one at ``start``."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise AssertionError("a brace is not closed")


def arguments(text: str, start: int, count: int) -> tuple[list[str], int]:
    found, at = [], start
    while len(found) < count:
        at = text.index("{", at)
        end = brace_end(text, at)
        found.append(text[at + 1 : end - 1])
        at = end
    return found, at


def flat(text: str) -> str:
    """What a reader sees: of each command its last argument, or nothing."""
    shown, at = "", 0
    silent = {"phantom": 1, "cellcolor": 1, "footnotemark": 0, "quad": 0, "rotatebox": 2, "multirow": 3}
    while at < len(text):
        if text[at] == "\\" and (command := re.match(r"\\([A-Za-z]+|.)(\[[^\]]*\])?", text[at:])):
            at += len(command[0])
            name = command[1]
            if name in ("rotatebox", "multirow"):
                inner, at = arguments(text, at, silent[name])
                shown += flat(inner[-1])
            elif name in silent:
                at = arguments(text, at, silent[name])[1]
            else:
                shown += {"pm": "±", "cmark": "✓", "xmark": "✗", "downarrow": "", "uparrow": ""}.get(name, "")
        else:
            shown += "" if text[at] in "${}~" else text[at]
            at += 1
    return " ".join(shown.split())


Grid = list[list[tuple[str, str]]]  # text and source of each cell


def grid(table: int) -> Grid:
    """The cells of a table, each repeated wherever it reaches."""
    tables = re.findall(r"\\begin\{table\*?\}(.*?)\\end\{table\*?\}", source(), re.DOTALL)
    body = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*)\\end\{tabular\}", tables[table - 1], re.DOTALL)
    assert body is not None
    text = re.sub(r"(?<!\\)%.*", "", body[1])
    text = re.sub(r"\\(?:top|mid|bottom)rule|\\cmidrule(?:\[[^\]]*\])?(?:\([^)]*\))?\{[^}]*\}", "", text)
    rows: Grid = []
    reaching: dict[int, tuple[tuple[str, str], int]] = {}  # by column: a cell and how many rows more it covers
    for line in text.split(r"\\"):
        row: list[tuple[str, str]] = []
        for part in line.split("&"):
            span = 1
            if wide := re.match(r"\s*\\multicolumn", part):
                (count, _, part), _ = arguments(part, wide.end(), 3)
                span = int(count)
            cell = (flat(part), part.strip())
            if tall := re.match(r"\\multirow\{(\d+)\}", part.strip()):
                reaching[len(row)] = (cell, int(tall[1]))
            for _ in range(span):
                above, left = reaching.get(len(row), (cell, 0))
                reaching[len(row)] = (above, left - 1)
                row.append(above if left > 0 and not cell[0] else cell)
        if any(words for words, _ in row):
            rows.append(row)
    return rows


def said(words: str) -> dict[str, Any]:
    """What a heading or a name says of the place of a number."""
    found: dict[str, Any] = {}
    if "step" in words and "Step" not in words:
        found["metric"] = "A_step"
    elif re.match(r"A_\w*inc", words):
        found["metric"] = "A_inc"
    elif words.startswith(("PL", "F^K")):
        found["metric"] = words[:2] if words.startswith("PL") else "F"
    elif words in ("Accuracy", "Delta"):
        found["metric"] = {"Accuracy": "A_step", "Delta": "delta"}[words]
    elif words in ("✗", "✓"):
        found["row"] = words
    for start, pattern in (("warm", r"\bWS\b|Warm Start"), ("cold", r"\bCS\b|Cold Start")):
        if re.search(pattern, words):
            found["start"] = start
    if named := [data for name, data in DATA.items() if words.startswith(name)]:
        (found["data"],) = named
    if steps := re.search(r"\b(\d+) Step|^(\d+)$", words):
        found["steps"] = int(steps[1] or steps[2])
    return found


@cache
def read(table: int) -> dict[Place, tuple[str, str, int]]:
    """Every number with its standard deviation and whether it is bold (1) or underlined (2)."""
    cells = grid(table)
    first = next(at for at, row in enumerate(cells) if re.search(r"\d\.\d", row[-1][0] + row[-2][0] + row[-3][0]))
    found: dict[Place, tuple[str, str, int]] = {}
    for row in cells[first:]:
        names = [words for words, _ in row if not NUMBER.fullmatch(words.removesuffix(" (Ours)").replace(" ", ""))]
        beside: dict[str, Any] = {}
        for words in names:
            beside |= said(words)
        others = list(dict.fromkeys(words for words in names if words and not said(words)))
        if table in (6, 9, 10) and "Joint Training" not in others:
            others = [" / ".join(words for words, _ in row[1:3])]
        if others:
            (beside["row"],) = others
        for column, (words, raw) in enumerate(row):
            number = NUMBER.fullmatch(words.removesuffix("(Ours)").replace(" ", ""))
            if number is None:
                continue
            above: dict[str, Any] = {}
            for heading in cells[:first]:
                above |= said(heading[column][0]) if column < len(heading) else {}
            place = Place(**{"steps": None, **NOT_IN_THE_CELLS[table], **above, **beside})
            assert place not in found, place
            style = re.search(r"\\(textbf|mathbf|underline)\{\\?[\dp]", raw)
            rank = 0 if style is None else 2 if style[1] == "underline" else 1
            found[place] = ("-" if number["dash"] else number["mean"], number["std"] or "", rank)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_number_and_every_spread_is_the_papers(table: int) -> None:
    assert {place: number[:2] for place, number in read(table).items()} == dict(printed(table))


def test_no_table_is_read_in_part() -> None:
    assert [len(printed(table)) for table in TABLES] == [264, 15, 24, 24, 21, 40, 18, 20, 20]
    assert [sum(number.std != "" for number in printed(table).values()) for table in TABLES] == [
        *(264 - 3 * 8 - 8, 15, 0, 24, 10, 40, 18, 10, 10)  # Fusion, and two methods on ImageNet-Subset, have none
    ]


@pytest.mark.parametrize("table", [2, 3, 4, 5, 7, 8])
def test_best_and_second_are_those_that_the_paper_marks(table: int) -> None:
    shown = {(PAPER, place): Shown(*number) for place, number in printed(table).items()}
    assert {place: number.rank for (_, place), number in ranked(shown).items()} == {
        place: rank for place, (_, _, rank) in read(table).items()
    }


# Without the source


@pytest.mark.parametrize(
    ("table", "place", "number"),
    [
        (2, ("cifar100", "warm", 20, "R-DFCIL", "A_step"), ("40.97", "0.12")),  # a cell of every block
        (2, ("tiny-imagenet", "cold", 10, "LwF", "A_inc"), ("45.14", "0.88")),
        (2, ("tiny-imagenet", "warm", 10, "Fusion", "A_inc"), ("-", "")),
        (2, ("imagenet-subset", "warm", 20, "R-DFCIL", "A_inc"), ("56.8", "0.69")),
        (3, ("dn4il", "cold", 6, "FeCAM", "A_step"), ("36.42", "0.12")),
        (4, ("cifar100", "cold", 20, "FD", "F"), ("8.78", "")),
        (5, ("imagenet-subset", "cold", 20, "✗", "A_step"), ("39.10", "1.67")),
        (6, ("cifar100", "cold", 20, "Real / Real", "delta"), ("+6.88", "")),
        (6, ("cifar100", "cold", 20, "Joint Training", "A_step"), ("71.00", "")),
        (7, ("imagenet-1k", "warm", 10, "FeCAM", "A_inc"), ("65.83", "0.14")),
        (8, ("dn4il", "cold", 6, "SSRE", "A_inc"), ("41.25", "0.18")),
        (9, ("imagenet-subset", "cold", 20, "Fixed / Fixed", "A_step"), ("39.10", "0.86")),
        (9, ("imagenet-subset", "cold", 10, "EFM / Real", "delta"), ("-0.51", "")),
        (10, ("tiny-imagenet", "cold", 10, "Fixed / Fixed", "A_step"), ("36.17", "0.48")),
    ],
)
def test_a_number_stands_in_its_cell(table: int, place: Any, number: tuple[str, str]) -> None:
    assert number_at(table, Place(*place)) == number


@pytest.mark.parametrize("table", TABLES)
def test_a_layout_has_every_number_of_its_table_and_no_other(table: int) -> None:
    places = LAYOUTS[table].places()
    assert len(places) == len(set(places))
    ours = {place for place in places if place.row == "FD squared"}
    blank = {place for place in places if place.row == "Joint Training" and place.metric == "delta"}
    alike = {place._replace(steps=None) if place.row == "Joint Training" else place for place in places}
    blank = {place._replace(steps=None) for place in blank}
    assert alike - ours - blank == printed(table).keys()
    assert len(ours) == (6 if table == 4 else 0)


@pytest.mark.parametrize("table", TABLES)
def test_the_grid_of_a_table_has_its_rows(table: int) -> None:
    rows = dict.fromkeys(run_of(place.row) for place in LAYOUTS[table].places())
    assert set(rows) == set(GRIDS[f"table{table}"].methods)
    for entry in rows:
        method, *changes = label_of(entry).split()
        assert resolve("cifar100-cold10", method, 0, changes).classifier.method == method


def test_a_number_in_several_tables_is_the_same_in_each() -> None:
    for table in TABLES:
        for place, number in printed(table).items():
            if number.value is not None:
                found = means()[place.data, place.start, place.steps, label_of(run_of(place.row))]
                assert found[place.metric] == number.value, (table, place)


# Scenarios


@pytest.mark.parametrize(
    ("preset", "label", "numbers"),
    [
        ("cifar100-cold10-cpu", "efc++", (47.52, 61.57)),
        ("digits-cold5", "efc++", None),
        ("domains", "efc++", None),
        ("cifar100-warm20", "r-dfcil", (40.97, 55.65)),
        ("tiny-imagenet-warm10", "fusion", (46.92, None)),
        ("tiny-imagenet-cold10", "fusion", None),
        ("imagenet1k-cold20", "efc", (36.32, 49.80)),
        ("dn4il", "ssre", (32.05, 41.25)),
        ("cifar100-cold20", "efc++ options.regularizer=kd", (26.39, None)),
        ("imagenet-subset-warm20", "efc++ options.drift=none", (62.77, None)),
        ("cifar100-cold10", "joint", (71.00, None)),
        ("tiny-imagenet-cold20", "efc++ options.drift=oracle options.covariance=oracle", (37.00, None)),
    ],
)
def test_published_numbers_stand_beside_ours(
    preset: str, label: str, numbers: tuple[float, float | None] | None
) -> None:
    assert published(preset, label) == numbers


@pytest.mark.parametrize("part", ["tasks: 3", "skip_classes: 10"])
def test_a_part_of_a_stream_has_no_number_in_the_paper(part: str, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"like: cifar100-cold10-fast\nstream: {{{part}}}\n")
    assert not scenario_of(str(own)).in_paper and published(str(own), "efc++") is None
    assert str(scenario_of(str(own))).endswith("10 steps, a part of it")


def test_every_scenario_of_the_paper_has_its_preset() -> None:
    scenarios = {scenario_of(preset) for preset in preset_names()}
    places = {place[:3] for table in TABLES for place in LAYOUTS[table].places()}
    assert places <= {(scenario.data, scenario.start, scenario.steps) for scenario in scenarios if scenario.in_paper}
    assert {scenario.first_classes for scenario in scenarios if scenario.data == "imagenet-1k"} == {0, 500, 400}
    assert all(scenario.in_paper for scenario in scenarios if scenario.data in FIRST_CLASSES)


def test_another_split_is_another_scenario(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("like: cifar100-warm10-cpu\nclassifier: {width: 8}\n")
    assert published(str(own), "efc++") == (62.15, 69.26)
    own.write_text("like: cifar100-warm10-cpu\nstream: {first_classes: 60}\n")
    assert published(str(own), "efc++") is None
    assert str(scenario_of(str(own))) == "cifar100, warm start, 10 steps after 60 classes"
