"""`efcil figure N`: what runs and results show, as the paper's figures, each as CSV, SVG and PNG."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efcil.commands.arguments import add_changes, add_command, add_data_root, add_json
from efcil.commands.output import print_rows
from efcil.errors import UserError, in_order

if TYPE_CHECKING:
    from efcil.analysis.measured import Measured
    from efcil.analysis.runs import Run

FOLDERS = "folders of finished runs, or folders of such folders"


def add(commands: Any) -> None:
    group = commands.add_parser(
        "figure",
        help="Draw what results and runs show.",
        description="Figures of the paper, each as CSV, SVG and PNG, from finished runs or tables of results.",
    )
    figures = group.add_subparsers(title="figures", required=True, metavar="FIGURE")
    for number in in_order([*OF_RUNS, *OF_RESULTS]):
        if number in OF_RUNS:
            command = add_command(figures, number, OF_RUNS[number])
            command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=FOLDERS)
            if number in NEED_IMAGES:
                add_data_root(command)
        else:
            command = add_command(figures, number, OF_RESULTS[number])
            command.add_argument("runs", nargs="*", type=Path, metavar="RUN", help=f"{FOLDERS}; or:")
            command.add_argument("--preset", metavar="A,B", help="presets whose results are drawn, a panel each")
            command.add_argument("--methods", nargs="+", metavar="METHOD", help="as for `efcil bench`")
            add_results(command)
        add_output(command, number)
    command = add_command(figures, "curves", curves_of_preset)
    command.add_argument("preset", metavar="PRESET", help="a name from `efcil presets`")
    command.add_argument("methods", nargs="+", metavar="METHOD", help="as for `efcil bench`")
    add_results(command)
    command.add_argument("--title", default="", help="a line above it")
    add_output(command, "curves")
    command = add_command(figures, "sweep", sweep_of_presets)
    command.add_argument("preset", metavar="A,B", help="presets whose results are drawn, a panel each")
    command.add_argument("method", metavar="METHOD", help="a name from `efcil methods`")
    command.add_argument("field", metavar="FIELD", help="the setting, such as options.damping")
    add_changes(command, "take the runs that had this setting too; repeatable")
    add_results(command)
    add_output(command, "sweep")
    command = add_command(figures, "spectrum", spectrum_table)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=f"{FOLDERS}, of efc++ or efc")
    add_json(command)


def add_results(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results", type=Path, default=Path("results/runs.csv"), metavar="CSV", help="(results/runs.csv)"
    )


def add_output(command: argparse.ArgumentParser, number: str) -> None:
    command.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="PLACE",
        help="a folder, or a name such as plot.png, beside which the other files go (figures)",
    )
    add_json(command, "print the numbers as JSON too")
    command.set_defaults(figure=number)


def finish(args: argparse.Namespace, rows: list[dict[str, Any]], draw: Callable[..., Any], said: str = "") -> None:
    """Write the files and say where they are."""
    from efcil.analysis.style import written

    name = f"figure{args.figure}" if args.figure.isdecimal() else args.figure
    files = written(draw(rows), rows, args.out, name)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for line in (*filter(None, said.split("\n")), *files):
        print(line)


# From runs


def runs_of(args: argparse.Namespace) -> list[Run]:
    from efcil.analysis.runs import read_runs

    return read_runs(args.runs)


def potential(args: argparse.Namespace) -> None:
    """Figure 1: plasticity potential, linear probes on networks frozen after C_0 classes and on joint training."""
    from efcil.analysis.potential import draw, potential

    rows = potential(runs_of(args), args.data_root)
    said = [
        f"{row['network']}, {row['first_classes']} classes first, seed {row['seed']}: probe "
        f"{row['probe_accuracy']:.1f} %, potential {row['plasticity_potential']:.1f}"
        for row in rows
    ]
    finish(args, rows, draw, "\n".join(said))


def perturbation(args: argparse.Namespace) -> None:
    """Figure 3: noise on the features along the EFM and across it; needs runs with --keep-states."""
    from efcil.analysis.perturbation import draw, perturbation

    finish(args, perturbation(runs_of(args), args.data_root), draw)


def matrices(args: argparse.Namespace) -> None:
    """Figure 4: the accuracy on every task after every step, a matrix per method."""
    from efcil.analysis.matrices import draw, matrices

    finish(args, matrices(runs_of(args)), draw)


def mean_drift(args: argparse.Namespace) -> None:
    """Figure 5: drift of class means along the EFM (Eqs. 18-20); needs runs with --keep-states."""
    from efcil.analysis.mean_drift import draw, mean_drifts

    finish(args, mean_drifts(runs_of(args), args.data_root), draw)


def regularizers(args: argparse.Namespace) -> None:
    """Figure 8: forgetting and plasticity after every step, a curve per regulariser or method."""
    from efcil.analysis.regularizers import draw, forgetting_and_plasticity

    finish(args, forgetting_and_plasticity(runs_of(args)), draw)


def prototype_distance(args: argparse.Namespace) -> None:
    """Figure 9: distance of prototypes from true means, fixed and updated; needs runs with --keep-states."""
    from efcil.analysis.prototype_distance import draw, prototype_distances

    finish(args, prototype_distances(runs_of(args), args.data_root), draw)


def spectrum(args: argparse.Namespace) -> None:
    """Figure 10: the eigenvalues of the EFM after every step, with the line η/λ and the number of classes."""
    from efcil.analysis.spectrum import draw, spectra

    rows = spectra(runs_of(args))
    ranks = {(row["run"], row["step"]): (row["classes"], row["rank"]) for row in rows}
    said = [f"{run}, step {step}: {m} classes, rank {rank}" for (run, step), (m, rank) in ranks.items()]
    finish(args, rows, draw, "\n".join(said))


def training_time(args: argparse.Namespace) -> None:
    """Figure 12: seconds of every phase of a step, a bar per method."""
    from efcil.analysis.training_time import draw, mean_seconds, training_times

    rows = training_times(runs_of(args))
    said = [
        f"{label}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in phases.items() if seconds >= 0.005)
        for label, phases in mean_seconds(rows).items()
    ]
    finish(args, rows, draw, "\n".join(said))


# From runs or results


def measured(args: argparse.Namespace, *checks: Callable[[Run], object]) -> list[Measured]:
    """Runs that are named and pass the checks, or the rows of presets and methods."""
    from efcil.analysis.measured import measured_results, measured_runs
    from efcil.analysis.runs import fitting

    check_source(args)
    if args.runs:
        return measured_runs(fitting(runs_of(args), *checks))
    if not args.methods:
        raise UserError("--methods is missing; name methods as for `efcil bench`, such as efc++ efc @table2.")
    return measured_results(args.preset.split(","), args.methods, args.results)


def check_source(args: argparse.Namespace) -> None:
    if bool(args.runs) == bool(args.preset):
        raise UserError("Give the folders of finished runs, or --preset (with --methods) for results; one of the two.")


def bars(args: argparse.Namespace) -> None:
    """Figures 6, 7, 13: the accuracy on every task after the last step, a panel per preset."""
    from efcil.analysis.bars import bars, draw
    from efcil.analysis.measured import said_of

    found = measured(args)
    finish(args, bars(found), draw, said_of(found))


def grid(args: argparse.Namespace) -> None:
    """Figures 11, 15: A_step, forgetting and plasticity for every λ and η (@figure11), a row per preset."""
    from efcil.analysis.grid import draw, grid, searched
    from efcil.analysis.measured import said_of
    from efcil.analysis.runs import has_efm

    check_source(args)
    by_default = args.preset and not args.methods
    found = searched(args.preset.split(","), args.results) if by_default else measured(args, has_efm)
    finish(args, grid(found), draw, said_of(found))


def curves(args: argparse.Namespace) -> None:
    """Figures 14, 16, 17: accuracy after every step, a curve per method, a panel per preset."""
    from efcil.analysis.curves import curves, draw
    from efcil.analysis.measured import said_of

    found = measured(args)
    finish(args, curves(found), draw, said_of(found))


def curves_of_preset(args: argparse.Namespace) -> None:
    """Accuracy after every step on one preset, a curve per method, mean over seeds."""
    from functools import partial

    from efcil.analysis.curves import curves, draw
    from efcil.analysis.measured import measured_results, said_of

    found = measured_results([args.preset], args.methods, args.results)
    finish(args, curves(found), partial(draw, title=args.title), said_of(found))


def sweep_of_presets(args: argparse.Namespace) -> None:
    """A_step over the values of one setting, mean over seeds: how much a result hangs on it."""
    from efcil.analysis.sweep import draw, sweep, told

    rows = sweep(args.preset.split(","), args.method, args.field, args.changes, args.results)
    args.figure = f"sweep-{args.method}-{args.field}".replace(":", "-")
    finish(args, rows, draw, told(rows))


def spectrum_table(args: argparse.Namespace) -> None:
    """The eigenvalues of the Empirical Feature Matrix at the end of runs, in numbers."""
    from efcil.analysis.spectrum import spectrum_rows

    rows = spectrum_rows(runs_of(args))
    if not args.json:
        rows = [{key: f"{v:.3f}" if isinstance(v, float) else v for key, v in row.items()} for row in rows]
    print_rows(rows, args.json)


OF_RUNS = {
    "1": potential,
    "3": perturbation,
    "4": matrices,
    "5": mean_drift,
    "8": regularizers,
    "9": prototype_distance,
    "10": spectrum,
    "12": training_time,
}
NEED_IMAGES = ("1", "3", "5", "9")
OF_RESULTS = {**dict.fromkeys(("6", "7", "13"), bars), **dict.fromkeys(("11", "15"), grid)}
OF_RESULTS |= dict.fromkeys(("14", "16", "17"), curves)
