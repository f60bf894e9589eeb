"""Every command looks for image sets, and puts them, in one and the same place."""

from __future__ import annotations

from pathlib import Path

import image_trees as trees
import pytest

from conftest import run_cli
from efcil.cli import main, parser
from efcil.commands import bench

COMMANDS = [
    ["run", "digits-cold5"],
    ["data", "get", "cifar100"],
    ["data", "check", "cifar100"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_root_is_what_is_said_then_the_environment_then_data(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EFCIL_DATA", "from-environment")
    assert parser().parse_args([*command, "--data-root", "said"]).data_root == Path("said")
    assert parser().parse_args(command).data_root == Path("from-environment")
    for unset in ("", None):
        monkeypatch.setenv("EFCIL_DATA", "") if unset == "" else monkeypatch.delenv("EFCIL_DATA")
        assert parser().parse_args(command).data_root == Path("data")


def test_a_campaign_asks_its_command_then_its_file_then_the_environment_then_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(bench, "dry_run", lambda console, args, todo: seen.append(args.data_root))
    file = tmp_path / "campaign.yaml"
    file.write_text("presets: [digits-cold5]\nmethods: [efc]\ndata_root: from-file\n")
    flags = ["bench", "--presets", "digits-cold5", "--methods", "efc", "--dry-run"]
    monkeypatch.setenv("EFCIL_DATA", "from-environment")
    assert main([*flags, "--data-root", "said"]) == main(["bench", str(file), "--dry-run"]) == main(flags) == 0
    monkeypatch.delenv("EFCIL_DATA")
    assert main(flags) == 0
    assert seen == [Path("said"), Path("from-file"), Path("from-environment"), Path("data")]


@pytest.mark.slow
def test_a_run_reads_where_the_check_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.class_folders(tmp_path / "data", ["cat", "ant"], count=4)
    quick = ["--set", "first.epochs=1", "--set", "incremental.epochs=1", "--set", "width=4", "--set", "image_size=8"]
    monkeypatch.chdir(tmp_path)
    for place in (None, tmp_path / "elsewhere"):
        monkeypatch.delenv("EFCIL_DATA", raising=False)
        if place:
            (tmp_path / "data").rename(place)
            monkeypatch.setenv("EFCIL_DATA", str(place))
        checked = run_cli("data", "check", "folder")
        assert (checked.returncode, checked.stderr) == (0, "")
        ran = run_cli("run", "folder-cold2", "--method", "finetune", "--out", f"runs{bool(place)}", *quick)
        assert (ran.returncode, ran.stderr) == (0, "")
