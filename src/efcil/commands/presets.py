"""`efcil presets`: what there is to choose from."""

from __future__ import annotations

import argparse
from typing import Any

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows


def add(commands: Any) -> None:
    add_json(add_command(commands, "presets", presets))


def presets(args: argparse.Namespace) -> None:
    """List the presets: data set, stream and machine size."""
    from efcil.bench.scenarios import preset_names, read_preset

    rows = [{"name": name, "description": read_preset(name)["description"]} for name in preset_names()]
    print_rows(rows, args.json)
