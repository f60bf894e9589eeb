"""`efcil claims`: what results say about the paper's claims."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_json


def add(commands: Any) -> None:
    command = add_command(commands, "claims", claims)
    command.add_argument(
        "--results", type=Path, default=Path("results/runs.csv"), metavar="CSV", help="(results/runs.csv)"
    )
    command.add_argument(
        "--scales",
        default="fast,cpu",
        metavar="A,B",
        help="which presets decide: those whose names end so (fast,cpu)",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write the page there, such as CLAIMS.md")
    add_json(command)


def claims(args: argparse.Namespace) -> None:
    """Decide the paper's claims by the results of campaigns, over paired seeds: holds, does not hold, or open."""
    from efcil.analysis.claims import claims, decided
    from efcil.analysis.claims_page import as_json, page, summary
    from efcil.bench.results import read_existing_results
    from efcil.commands.output import print_rows
    from efcil.engine.state import write_text

    results = read_existing_results(args.results)
    scales = args.scales.split(",")
    verdicts = [[decided(claim, results, scale) for scale in scales] for claim in claims()]
    if args.out:
        write_text(args.out, page(verdicts, scales))
        print(args.out)
    elif args.json:
        print(json.dumps(as_json(verdicts, scales), indent=2))
    else:
        print_rows(summary(verdicts, scales), as_json=False)
