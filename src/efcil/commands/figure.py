"""`efcil figure curves|spectrum`: what results and runs show."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows


def add(commands: Any) -> None:
    group = commands.add_parser("figure", help="Draw what results and runs show.", description="Figures of the paper.")
    figures = group.add_subparsers(title="figures", required=True, metavar="FIGURE")
    command = add_command(figures, "curves", curves)
    command.add_argument("preset", metavar="PRESET", help="a name from `efcil presets`")
    command.add_argument("methods", nargs="+", metavar="METHOD", help="as for `efcil bench`")
    command.add_argument(
        "--results", type=Path, default=Path("results/runs.csv"), metavar="CSV", help="(results/runs.csv)"
    )
    command.add_argument("--out", type=Path, required=True, metavar="FILE", help="the picture, such as curves.png")
    command.add_argument("--title", default="", help="a line above it")
    command = add_command(figures, "spectrum", spectrum)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs of efc++ or efc")
    add_json(command)


def curves(args: argparse.Namespace) -> None:
    """Accuracy after every step, one curve per method, mean over seeds (Figs. 14, 16, 17)."""
    from efcil.analysis.curves import curves as read
    from efcil.analysis.curves import draw

    found, said = read(args.preset, args.methods, args.results)
    draw(found, args.out, args.title)
    print(said)
    print(args.out)


def spectrum(args: argparse.Namespace) -> None:
    """The eigenvalues of the Empirical Feature Matrix at the end of runs (Fig. 10)."""
    from efcil.analysis.spectrum import spectrum_row

    rows = [spectrum_row(folder) for folder in args.runs]
    if not args.json:
        rows = [{key: f"{v:.3f}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    print_rows(rows, args.json)
