"""`efcil table`: a table of the paper, ours beside the published numbers."""

from __future__ import annotations

import argparse
import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efcil.commands.arguments import add_command, add_json
from efcil.errors import UserError

if TYPE_CHECKING:
    from efcil.bench.results import Cell, Results

FORMATS = ("terminal", "markdown", "latex", "csv")
LEGEND = (
    "Mean ± standard deviation over seeds; the best is bold and the second underlined, the paper's and ours each for "
    "themselves; blank: not run."
)
RESULTS = Path("results/runs.csv")
ENDINGS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "terminal"}


def add(commands: Any) -> None:
    command = add_command(commands, "table", table)
    command.add_argument("number", nargs="?", metavar="N", help="2 to 10, as in the paper")
    command.add_argument(
        "presets", nargs="*", metavar="PRESET", help="presets of the table's scenarios (those that have rows)"
    )
    command.add_argument(
        "--methods",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="rows below the paper's, as `efcil bench --methods` takes them: cargo 'efc++:options.eta=1' @compensators",
    )
    command.add_argument(
        "--results", type=Path, metavar="CSV", help=f"table of finished runs ({RESULTS}, if it is there)"
    )
    command.add_argument("--format", choices=FORMATS, help="how to write it (terminal, or as the ending of --out says)")
    command.add_argument("--out", type=Path, metavar="FILE", help="write it there")
    command.add_argument(
        "--update",
        type=Path,
        metavar="PAGE",
        help="instead of all this, write every table that stands under `efcil bench` commands in a Markdown page anew",
    )
    add_json(command)


def table(args: argparse.Namespace) -> None:
    """Show a table of the paper (2 to 10), the published numbers and beside them those of runs made here."""
    from efcil.bench.published import TABLES
    from efcil.bench.results import read_existing_results, read_results

    if args.out and not (args.format or args.json or args.out.suffix in ENDINGS or args.out.is_dir()):
        raise UserError(f"{args.out}: how to write a table follows from .md, .tex, .csv or .txt; or give --format.")
    if (args.number is None) == (args.update is None):
        raise UserError("Give the number of a table, such as `efcil table 2`, or a page to --update, and not both.")
    if args.number is not None and (not args.number.isdecimal() or int(args.number) not in TABLES):
        raise UserError(
            f"There is no Table {args.number} of numbers in the paper; there are 2 to 10 (Table 1 has the splits, "
            "which `efcil presets` lists)."
        )
    named = args.results or (RESULTS if args.update else None)
    results = read_existing_results(named) if named else read_results(RESULTS)
    if args.update is not None:
        update(args.update, results, args.json)
        return

    from rich.console import Console
    from rich.text import Text

    from efcil.analysis.tables.comparison import compared
    from efcil.analysis.tables.latex import latex
    from efcil.analysis.tables.markdown import markdown
    from efcil.analysis.tables.records import as_csv, records
    from efcil.analysis.tables.scale import THE_PAPER, scales
    from efcil.analysis.tables.terminal import terminal
    from efcil.bench.grids import expanded
    from efcil.bench.scenarios import preset_names

    if misplaced := [name for name in args.methods if name in preset_names()]:
        raise UserError(f"{misplaced[0]} is a preset; presets stand behind the number of the table.")
    comparison = compared(int(args.number), args.presets, results, expanded(args.methods))
    made_at = scales(comparison)
    notes = [LEGEND, *comparison.layout.notes, THE_PAPER, *(scale.sentence for scale in made_at)]
    if blank := comparison.without_runs():
        notes.append(f"Not run: {', '.join(blank)}.")
    if not results:
        run = f"`efcil bench --presets PRESET --methods @table{args.number}`"
        notes.append(f"Numbers of your own stand beside these once {run} has written rows to {named or RESULTS}.")
    form = args.format or (ENDINGS.get(args.out.suffix, "terminal") if args.out else "terminal")
    if args.json:
        about = {"table": comparison.table, "caption": comparison.layout.caption, "notes": notes}
        about |= {"scales": [scale.facts() for scale in made_at], "numbers": records(comparison, made_at)}
        text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    elif form == "markdown":
        text = markdown(comparison, notes)
    elif form == "latex":
        text = latex(comparison, notes)
    elif form == "csv":
        text = as_csv(records(comparison, made_at))
    else:
        page = io.StringIO() if args.out else None
        console = Console(file=page, highlight=False)
        console.print(Text(f"Table {comparison.table}. {comparison.layout.caption}, in %\n", style="bold"))
        console.print(terminal(comparison, console.width), no_wrap=True, overflow="ignore", crop=False)
        for note in notes:
            console.print(Text(f"· {note}"))
        text = "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()) if page else ""
    written(text, args.out)


def written(text: str, out: Path | None) -> None:
    """Text to a file, whose name is then said, or to standard output."""
    if out is None:
        print(text, end="")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from None
    print(out)


def update(page: Path, results: Results, as_json: bool) -> None:
    """Write the tables of a page anew and say how many there are."""
    from efcil.bench.page import COMMANDS_AND_TABLE, with_tables
    from efcil.engine.state import write_text

    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"The page {page} cannot be read: {reason}.") from None
    number = len(COMMANDS_AND_TABLE.findall(text))
    if not number:
        raise UserError(f"{page} has no table under an `efcil bench` command in an indented line of its own.")
    write_text(page, with_tables(text, results, asked))
    print(json.dumps({"page": str(page), "tables": number}) if as_json else f"{page}: {number} tables written anew")


def asked(command: str) -> list[Cell]:
    """The runs that an `efcil bench` command asks for."""
    from efcil.bench.campaign_file import CampaignFile, read_campaign
    from efcil.commands import bench
    from efcil.commands.parser import Parser

    parser = Parser(prog="efcil")
    bench.add(parser.add_subparsers())
    args = parser.parse_args(shlex.split(command)[1:])
    return bench.asked_for(args, read_campaign(args.file) if args.file else CampaignFile())
