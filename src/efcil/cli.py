"""The command line: it collects the commands, runs one, and turns what went wrong into a sentence and an exit code.

torch is imported inside the commands that need it, so that every --help answers at once; the commands themselves are
imported once Ctrl-C is looked after.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


# In the order of --help: models of one's own, then benchmarks, then what there is to choose from.
COMMANDS = (
    *("learn", "predict", "evaluate", "inspect", "compare", "rename", "merge", "forget", "undo", "export", "serve"),
    *("run", "bench", "tune", "table", "figure", "claims", "report", "demo", "data", "methods", "settings"),
    *("presets", "grids", "completion"),
)


GOING_ON = {
    **dict.fromkeys(("bench", "tune", "demo", "data_get"), "the same command goes on"),
    "run": "the same command with --resume goes on",
}
# As torch says it, its convolutions, the system, whoever loads a library, and a thread that finds no room.
NO_MEMORY = (
    *("can't allocate memory", "out of memory", "could not create a primitive"),
    *("annot allocate memory", "failed to map segment", "can't start new thread"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 wrong usage or bad input, 130 interrupted, 1 anything else."""
    signal.signal(signal.SIGTERM, interrupt)  # a campaign that is killed takes its runs with it
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, interrupt)
    name = ""
    try:
        from efcil.errors import CannotWrite, UserError, plain_notice

        warnings.formatwarning = plain_notice
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # busy waiting makes threads slower on a shared machine
        args = parser().parse_args(argv)
        name = args.command.__name__
        if name != "run" and "TORCHELASTIC_RUN_ID" in os.environ:
            raise UserError(f"torchrun is for efcil run; give efcil {name.replace('_', ' ')} without it.")
        args.command(args)
    except KeyboardInterrupt:
        print(f"efcil: interrupted; {GOING_ON.get(name, 'nothing was changed')}.", file=sys.stderr)
        return 128 + signal.SIGINT
    except CannotWrite as error:
        print(f"efcil: {error}{then(name)}", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"efcil: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ImportError, MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, ImportError) and not out_of_memory(error):
            raise  # the program itself is broken, and where is what one wants to know
        print(f"efcil: {told(error, name)}", file=sys.stderr)
        return 1
    return 0


def told(error: Exception, name: str) -> str:
    """What went wrong in one sentence, and how this command goes on where it can."""
    from efcil.errors import cannot_write

    if out_of_memory(error):
        return f"there is not enough memory; take a smaller batch_size, width or cache_mb.{then(name)}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return f"{cannot_write(error.filename or 'a file', error)}{then(name)}"
    return str(error)


def out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


def then(name: str) -> str:
    return f" Then {GOING_ON[name]}." if name in GOING_ON else ""


def interrupt(number: int, frame: Any) -> None:
    """Stop what is going on; within an import a moment later, since C code that is being loaded aborts the process."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    from efcil import __version__
    from efcil.commands.parser import Parser

    top = Parser(
        prog="efcil", description="Add new classes to an image classifier over time, without keeping old images."
    )
    top.add_argument("--version", action="version", version=f"efcil {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"efcil.commands.{name}").add(commands)
    commands.choices["completion"].set_defaults(parser=top)  # it describes them all
    return top
