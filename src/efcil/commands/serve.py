"""`efcil serve`: a model behind HTTP, with the page on which a person teaches it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from efcil.commands.arguments import add_changes, add_command, add_json, add_model


def add(commands: Any) -> None:
    command = add_command(commands, "serve", serve)
    add_model(command)
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (127.0.0.1)")
    command.add_argument("--port", type=int, default=8000, metavar="N", help="0 takes a free one (8000)")
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="holds the token that every request must bring; else EFCIL_TOKEN does. Any address but this machine's "
        "own needs one",
    )
    command.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name by which the server is called"
    )
    command.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate, for https; cameras need it")
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    command.add_argument(
        "--limit",
        dest="limits",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a limit, such as request_mb=64 (docs/serve.md lists them)",
    )
    command.add_argument("--method", metavar="NAME", help="for a new model: a name from `efcil methods` (lda)")
    command.add_argument("--backbone", metavar="NAME", help="for a new model: the network (efficientnet-lite0)")
    add_changes(command, "for a new model: any setting")
    command.add_argument(
        "--batch-ms",
        type=float,
        default=4,
        metavar="MS",
        help="how long photos wait for others (4); 0: one at a time",
    )
    add_json(command, "print where it listens as one line of JSON")


def serve(args: argparse.Namespace) -> None:
    """Serve a model to programs and browsers: predict, teach, rename, forget, undo; a first lesson makes a new one."""
    from efcil.errors import UserError

    try:
        from efcil.serve.app import Settings
        from efcil.serve.run import is_loopback, read_token
        from efcil.serve.run import serve as serve_model
    except ModuleNotFoundError as error:
        raise UserError(f"The server needs {error.name}; install it with: pip install 'efcil[serve]'.") from None
    from efcil.serve.batching import MOST
    from efcil.serve.guard import Door
    from efcil.serve.limits import changed_limits

    if bool(args.tls_cert) != bool(args.tls_key):
        raise UserError("--tls-cert and --tls-key belong together; give both.")
    if not 0 <= args.batch_ms <= 1000:
        raise UserError(f"--batch-ms must lie between 0 and 1000, not {args.batch_ms:g}.")
    token = read_token(args.token_file)
    if token is None and not is_loopback(args.host):
        told = f"Whoever reaches {args.host} could change the model"
        raise UserError(f"{told}; give a token in EFCIL_TOKEN or with --token-file, or listen at 127.0.0.1.")
    if args.model.exists() and (args.method or args.backbone or args.changes):
        from efcil.teaching.store import Store

        Store(args.model).existing(args.method, args.backbone, args.changes)
    settings = Settings(
        model=args.model,
        choices={"method": args.method, "backbone": args.backbone, "changes": args.changes},
        limits=changed_limits(args.limits),
        door=Door([args.host, *args.allow_host], token),
        window=args.batch_ms / 1000,
        most=MOST if args.batch_ms else 1,
    )

    def ready(address: str) -> None:
        if args.json:
            print(json.dumps({"address": address, "model": str(args.model), "pid": os.getpid()}), flush=True)
        else:
            print(f"{args.model} is served at {address} (Ctrl-C stops it)", flush=True)
            if token and not args.tls_cert:
                print("The token goes over the network in clear without --tls-cert.", file=sys.stderr)

    serve_model(settings, args.host, args.port, args.tls_cert, args.tls_key, ready)
    print("stopped; no lesson is under way.", file=sys.stderr)
