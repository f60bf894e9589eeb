"""The mutation tester: which changes it makes, and that what it is told about survivors is still true."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools" / "mutants"))

from mutations import mutants_of, mutated  # noqa: E402
from noticed import Noticed  # noqa: E402
from noticed import functions as functions_of_a_file  # noqa: E402

SOURCE = '''
"""Words are left alone."""
import math

LIMIT = 3


class Thing:
    name = "left alone"
    year = 1999
    wide: bool = False


def area(x, y, scale=2.0):
    """Words."""
    assert x is not None
    if x < y:
        raise ValueError(f"{x + 1} is left alone")
    total = math.pow(x, y)
    scale.to(x)
    scale = max(x, scale)
    total = -total * scale
    return sorted([total], reverse=True, strict=True)
'''


def test_each_change_is_made_once_and_words_are_left_alone() -> None:
    found = [mutant.key for mutant in mutants_of("area.py", SOURCE)]
    assert found == [
        "module: LIMIT = 4",
        "Thing: wide: bool = True",
        "area: def area(x, y, scale=4.0)",
        "area: if not x < y:",
        "area: if x <= y:",
        "area: if x > y:",
        "area: (gone) raise ValueError(f'{x + 1} is left alone')",
        "area: total = math.pow(y, x)",
        "area: (gone) total = -total * scale",
        "area: total = -total / scale",
        "area: total = +total * scale",
        "area: return None",
        "area: return sorted([total], strict=True)",
        "area: return sorted([total], reverse=False, strict=True)",
    ]


@pytest.mark.parametrize("number", range(14))
def test_a_mutant_is_the_file_with_that_one_change(number: int) -> None:
    import ast

    original, changed = (ast.unparse(tree).split("\n") for tree in (ast.parse(SOURCE), mutated(SOURCE, number)))
    assert sum(before != after for before, after in zip(original, changed, strict=True)) == 1
    compile(mutated(SOURCE, number), "area.py", "exec")


def test_every_explained_survivor_is_still_a_mutant() -> None:
    listed = yaml.safe_load((ROOT / "tools" / "mutants" / "survivors.yaml").read_text()) or {}
    for path, reasons in listed.items():
        keys = {mutant.key for mutant in mutants_of(path, (ROOT / path).read_text())}
        assert set(reasons) <= keys, path
        assert all(len(reason.split()) > 4 for reason in reasons.values())


@pytest.mark.parametrize(
    ("file", "changed", "still"),
    [
        ("test_area.py", "def test_area(): assert 1\ndef test_more(): assert 3\n", True),  # only its neighbour
        ("test_area.py", "def test_area(): assert 2\ndef test_more(): assert 2\n", False),
        ("test_area.py", "def test_more(): assert 2\n", False),
        ("area.py", SOURCE + "DEPTH = 1\n", False),
    ],
)
def test_noticed_once_is_noticed_while_file_and_test_stand(
    file: str, changed: str, still: bool, tmp_path: Path
) -> None:
    (tmp_path / "area.py").write_text(SOURCE)
    (tmp_path / "test_area.py").write_text("def test_area(): assert 1\ndef test_more(): assert 2\n")
    noticed = Noticed(tmp_path, tmp_path / "kept")
    mutant = mutants_of("area.py", SOURCE)[3]
    assert noticed.read() == {}
    noticed.add(mutant, "test_area.py::test_area[1-2]")
    assert noticed.read() == {("area.py", mutant.key): "test_area.py::test_area[1-2]"}
    (tmp_path / file).write_text(changed)
    functions_of_a_file.cache_clear()
    assert bool(noticed.read()) == still
