"""`efcil claims`: what results and figures say about the paper's claims and ours."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_data_root, add_json
from efcil.errors import UserError, unknown

READ = """What is judged is the direction, but where a comparison says "+"; points in the words of a claim are the
paper's. How verdicts are made, and how far to trust them: the first lines of CLAIMS.md."""


def add(commands: Any) -> None:
    command = add_command(commands, "claims", claims)
    command.add_argument(
        "names", nargs="*", metavar="CLAIM", help="tell all about these, or all that begin so (a line for each of all)"
    )
    command.add_argument(
        "--results", type=Path, default=Path("results/runs.csv"), metavar="CSV", help="(results/runs.csv)"
    )
    command.add_argument(
        "--figures",
        type=Path,
        default=Path("results/figures"),
        metavar="DIR",
        help="where the numbers of figures are (results/figures)",
    )
    command.add_argument(
        "--runs", type=Path, metavar="DIR", help="first add to them what the finished runs in this folder tell"
    )
    add_data_root(command)
    command.add_argument(
        "--scales",
        default="fast,cpu",
        metavar="A,B",
        help="which presets decide: those whose names end so (fast,cpu)",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write the page there, such as CLAIMS.md")
    add_json(command)


def claims(args: argparse.Namespace) -> None:
    """Decide claims, the paper's and ours, by runs over paired seeds: holds, does not hold, or open."""
    from efcil.analysis.claims import claims, decided
    from efcil.analysis.claims_evidence import Evidence
    from efcil.analysis.claims_page import as_json, checked, counted, page, papers, section, summary
    from efcil.bench.results import read_existing_results
    from efcil.commands.output import print_rows
    from efcil.engine.state import write_text

    results, scales = read_existing_results(args.results), list(dict.fromkeys(args.scales.split(",")))
    checked(scales)
    if args.names and args.out:
        raise UserError("The page has all claims; give either --out, or names of claims to read here.")
    listed = chosen(claims(), args.names)
    if args.runs:
        from efcil.analysis.claims_figures import gather
        from efcil.analysis.runs import found_runs

        for line in gather(found_runs([args.runs]), listed, scales, args.figures, args.data_root):
            print(line, file=sys.stderr)
    evidence = Evidence(results, args.figures)
    verdicts = [[decided(claim, evidence, scale) for scale in scales] for claim in listed]
    if args.out:
        write_text(args.out, page(verdicts, scales, evidence))
        print(args.out)
    elif args.json:
        print(json.dumps(as_json(verdicts, scales), indent=2))
    elif args.names:
        for row in verdicts:
            print("\n".join(section(row, scales, evidence, set())), end="\n\n")
        print(READ)
    else:
        print_rows(summary(verdicts, scales), as_json=False)
        print(counted(papers(verdicts), scales))
        print("What a claim says, its numbers and commands: efcil claims NAME, or the beginning of several names.")


def chosen(known: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The claims of these names, or whose names begin so; all without any."""
    found = {}
    for name in names:
        own = [claim for claim in known if claim["id"] == name] or [c for c in known if c["id"].startswith(name)]
        if not own:
            raise unknown("claim", name, [claim["id"] for claim in known])
        found.update({claim["id"]: claim for claim in own})
    return list(found.values()) if names else known
