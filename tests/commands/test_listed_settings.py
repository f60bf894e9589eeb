"""`efcil settings`: every setting with a value that --set takes, and with what it means."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from efcil.bench.scenarios import flat, resolve
from efcil.cli import main
from efcil.commands.settings import as_set
from efcil.config import to_dict
from efcil.methods import METHODS


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["settings", *arguments, "--json"]) == 0
    return list(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("method", METHODS)
def test_the_values_are_those_of_a_run_and_set_takes_them_all(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, method, "--preset", "digits-cold5")
    assert all(row["meaning"] for row in rows)
    config = resolve("digits-cold5", method, 0)
    changed = resolve("digits-cold5", method, 0, [as_set(row) for row in rows])
    assert changed.data == config.data and changed.stream == config.stream
    names = {name.removeprefix("classifier.") for name in flat(to_dict(changed))}
    assert {row["name"] for row in rows} == names - {"options"}


def test_without_a_preset_a_value_is_the_default_or_the_recipe_of_the_method(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {method: {row["name"]: row["value"] for row in listed(capsys, method)} for method in ("efc++", "lwf")}
    assert values["efc++"]["incremental.lr"] == 1e-4 and values["lwf"]["incremental.lr"] == 1e-3
    assert values["efc++"]["options.lambda_efm"] == 10 and "options.lambda_efm" not in values["lwf"]


def test_people_read_names_values_meanings_and_choices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "first.milestones=[0.45, 0.9]" in text and "incremental.backbone_lr=null" in text
    assert "[0, 1] over all pairs" in text and "One of: fp32, bf16, fp16." in text
    assert main(["settings", "ecf"]) == 2


def test_a_command_that_lists_names_lists_the_value_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in listed(capsys, "efc++", "--preset", "cifar100-cold10")}
    for name in ("method", "data.name"):
        (command,) = re.findall(r"as listed by `efcil ([a-z ]+)`", rows[name]["meaning"])
        assert main([*command.split(), "--json"]) == 0
        assert rows[name]["value"] in [row["name"] for row in json.loads(capsys.readouterr().out)]
