"""`efcil demo`: the scikit-learn digits, two at a time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_command, add_out
from efcil.commands.run import run_one


def add(commands: Any) -> None:
    add_out(add_command(commands, "demo", demo), "runs/demo")


def demo(args: argparse.Namespace) -> None:
    """Learn the scikit-learn digits two classes at a time, with EFC++ and with plain fine-tuning beside it."""
    import torch
    from rich.console import Console

    from efcil.bench.console import print_results

    torch.set_num_threads(1)  # a network this small loses more than it wins by sharing its work
    console = Console()
    console.print("Ten handwritten digits arrive two at a time; images of earlier digits are never seen again.\n")
    ours, folder = run_one(console, "digits-cold5", "efc++", args.out, resume=True)
    plain, plain_folder = run_one(console, "digits-cold5", "finetune", args.out, resume=True)
    console.print()
    print_results(console, ours, folder)
    a, b = ours["per_step_accuracy"], plain["per_step_accuracy"]
    console.print(
        f"\nAfter the last step EFC++ recognises [bold]{a:.1f} %[/] of all ten digits, plain fine-tuning {b:.1f} %: "
        f"[bold]{a - b:+.1f} points[/] (its files are in {plain_folder}).",
        highlight=False,
    )
    console.print(f"\n{with_report([folder, plain_folder], args.out / 'report.html')}", highlight=False, soft_wrap=True)


def with_report(runs: list[Path], out: Path) -> str:
    """Write the report on these runs and say where it is, or how to get one."""
    from efcil.errors import UserError
    from efcil.report.page import runs_report

    try:
        runs_report(runs, out)
    except UserError as error:
        return str(error)
    return f"All of it on one page, which a browser opens without a network: {out}"
