"""Lists on a terminal: words stay whole in a column, or become a paragraph where there is no room for one."""

from __future__ import annotations

import pytest

from efcil.commands.output import print_rows

NAME = "digits-cold5_efc++_seed0_first.epochs=2_incremental.epochs=2"
ROWS = [{"run": NAME, "features": 128, "non-zero": 9, "mean": 0.829, "median": 0.775, "share with λν > η": "1.000"}]


@pytest.mark.parametrize(("columns", "paragraph"), [(140, False), (60, True)])
def test_a_long_name_is_never_cut_into_pieces(
    columns: int, paragraph: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows(ROWS, as_json=False)
    said = capsys.readouterr().out
    assert NAME in said and all(str(value) in said for value in ROWS[0].values())
    assert said.startswith(NAME) == paragraph


def test_prose_is_wrapped_in_its_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_rows([{"name": "efc", "idea": "a sentence that is longer than the column has room for on one line"}], False)
    said = capsys.readouterr().out
    assert not said.startswith("efc") and max(map(len, said.splitlines())) <= 60 and "room for" in said
