"""The command line: it collects the commands, runs one, and turns what went wrong into a sentence and an exit code.

torch is imported inside the commands that need it, so that every --help answers at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from efcil import __version__
from efcil.commands import bench, data, demo, grids, methods, presets, run
from efcil.commands.arguments import Command
from efcil.errors import UserError

COMMANDS = (run, bench, demo, data, methods, presets, grids)  # in the order of --help


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong usage or bad input, 1 anything else."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # busy waiting makes threads slower on a shared machine
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a campaign that is killed takes its runs with it
    command: Command = args.command
    try:
        command(args)
    except UserError as error:
        print(f"efcil: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = "the same command with --resume" if command.__name__ == "run" else "the same command"
        print(f"efcil: interrupted; {again} goes on.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RuntimeError, OSError) as error:
        print(f"efcil: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="efcil", description="Add new classes to an image classifier over time, without keeping old images."
    )
    top.add_argument("--version", action="version", version=f"efcil {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return top
