"""`efcil settings`: everything that --set changes."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from efcil.commands.arguments import add_command, add_json
from efcil.commands.output import print_rows


def add(commands: Any) -> None:
    command = add_command(commands, "settings", settings)
    command.add_argument(
        "method", nargs="?", default="efc++", metavar="METHOD", help="whose settings, recipe included (%(default)s)"
    )
    command.add_argument("--preset", metavar="PRESET", help="the values that this preset gives them")
    add_json(command)


def settings(args: argparse.Namespace) -> None:
    """List every setting that --set changes: its name, its value when nothing changes it, and what it means."""
    from rich.markup import escape

    from efcil.bench.scenarios import resolve
    from efcil.classifier import IncrementalClassifier
    from efcil.config import RunConfig, from_dict
    from efcil.methods import method_class

    if args.preset:
        config = resolve(args.preset, args.method, seed=0)
    else:
        config = RunConfig(classifier=IncrementalClassifier(args.method).config)
    options = from_dict(method_class(args.method).Options, config.classifier.options)
    sections = {"options.": options, "": config.classifier, "data.": config.data, "stream.": config.stream}
    rows = [row for prefix, section in sections.items() for row in described(section, prefix)]
    if not args.json:
        rows = [
            {"setting, as --set takes it": f"{escape(as_set(row))}\n[dim]{escape(explained(row))}[/]"} for row in rows
        ]
    print_rows(rows, args.json)


def as_set(row: dict[str, Any]) -> str:
    """``options.eta=0.1``, ``backbone_lr=null``."""
    return f"{row['name']}={row['value'] if isinstance(row['value'], str) else json.dumps(row['value'])}"


def explained(row: dict[str, Any]) -> str:
    choices = f" One of: {', '.join(row['choices'])}." if row["choices"] else ""
    return f"{row['meaning']}{choices}"


def described(section: Any, prefix: str) -> Iterator[dict[str, Any]]:
    """A row per field, those of sections within it by their dotted names."""
    from dataclasses import fields, is_dataclass

    told, kinds = meanings(type(section)), get_type_hints(type(section))
    for field in fields(section):
        value = getattr(section, field.name)
        if is_dataclass(value):
            yield from described(value, f"{prefix}{field.name}.")
        elif prefix or field.name != "options":  # the options of a method are a section of their own
            hint = kinds[field.name]
            literals = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]  # it may also be empty
            choices = [choice for literal in literals for choice in get_args(literal)] or None
            name, meaning = f"{prefix}{field.name}", told.get(field.name, "")  # of a method from elsewhere
            yield {"name": name, "value": value, "choices": choices, "meaning": meaning}


def meanings(cls: type) -> dict[str, str]:
    """What the source says under each field, which Python does not keep; a field set anew means what it meant."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found
