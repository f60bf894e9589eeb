"""A campaign as one YAML file: which methods on which presets with which seeds, and how to run them.

Everything that `efcil bench` has a flag for can stand in the file, and a flag on the command line wins over it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from efcil.bench.campaign import method_and_changes, seed_list
from efcil.bench.grids import expanded
from efcil.bench.results import Cell
from efcil.bench.scenarios import flat, preset_parts, resolve, short
from efcil.errors import UserError, invalid_yaml, unknown

Entry = tuple[str, tuple[str, ...]]  # a method and its own changes


@dataclass(frozen=True)
class CampaignFile:
    """What a campaign file says; what it leaves out is empty."""

    description: str = ""
    presets: tuple[str, ...] = ()
    methods: tuple[Entry, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()  # changes for every run, such as width=8
    data_root: Path | None = None
    out: Path | None = None
    results: Path | None = None
    workers: int | None = None
    launcher: str | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
    track: tuple[str, ...] = ()


NAMES = tuple(f.name for f in fields(CampaignFile))


def read_campaign(path: Path) -> CampaignFile:
    """The campaign in this file; what is wrong with it is said with the file and the field."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not text"
        raise UserError(f"The campaign file {path} cannot be read: {reason}.") from None
    except yaml.YAMLError as error:
        raise invalid_yaml(f"The campaign file {path}", error) from None
    if not isinstance(content, dict):
        raise UserError(f"The campaign file {path} must be a list of fields: {', '.join(NAMES)}.")
    for name in content:
        if name not in NAMES:
            raise unknown(f"field in the campaign file {path}", name, NAMES)
    read = {name: _read(path, name, value) for name, value in content.items() if value is not None}
    return CampaignFile(**read)


def _read(path: Path, name: str, value: Any) -> Any:
    """One field of the file as the type that it has here."""
    try:
        if name == "presets":
            return tuple(_beside(path, preset) for preset in _words(value, "presets", "digits-cold5"))
        if name == "methods":
            return tuple(entry for part in _list(value) for entry in _entries(part))
        if name == "seeds":
            return tuple(seed_list(_seeds(value)))
        if name == "settings":
            return changes(value)
        if name == "track":
            return tuple(_words(value, "trackers", "tensorboard"))
        if name == "slurm":
            if not isinstance(value, dict):
                raise UserError(f"takes fields of its own, such as partition: gpu, not {value!r}.")
            return value
        if name == "workers":
            if type(value) is not int:
                raise UserError(f"takes a whole number, not {value!r}.")
            return value
        if not isinstance(value, str):
            raise UserError(f"takes a word, not {value!r}.")
        return Path(value) if name in ("data_root", "out", "results") else value
    except UserError as error:
        raise UserError(f"In {path}, {name}: {error}") from None


def _beside(path: Path, preset: str) -> str:
    """A preset that is a file is looked for beside the campaign file."""
    return os.path.normpath(path.parent / preset) if preset.endswith((".yaml", ".yml")) else preset


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(value: Any, what: str, such_as: str) -> list[str]:
    if not _list(value) or not all(isinstance(part, str) for part in _list(value)):
        raise UserError(f"takes the names of {what}, such as [{such_as}], not {value!r}.")
    return _list(value)


def _seeds(value: Any) -> str:
    if isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value):
        return ",".join(map(str, value))
    if type(value) is int or isinstance(value, str):
        return str(value)
    raise UserError(f"takes numbers such as [0, 1, 2] or 0-4, not {value!r}.")


def _entries(part: Any) -> list[Entry]:
    """One item of ``methods``: a word as --methods takes it, or a method with a section ``settings``."""
    if isinstance(part, str):
        return [method_and_changes(entry) for entry in expanded([part])]
    if not isinstance(part, dict) or not isinstance(part.get("method"), str):
        raise UserError(f"takes methods such as efc++ or {{method: efc++, settings: {{width: 8}}}}, not {part!r}.")
    for name in part:
        if name not in ("method", "settings"):
            raise unknown("field of a method", name, ("method", "settings"))
    own = changes(part.get("settings") or {})
    return [(method, (*given, *own)) for method, given in map(method_and_changes, expanded([part["method"]]))]


def changes(settings: Any) -> tuple[str, ...]:
    """Nested or dotted settings as --set takes them: ``{first: {epochs: 3}}`` as ``first.epochs=3``."""
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise UserError(f"takes fields such as incremental.lr: 0.001, not {settings!r}.")
    return tuple(short(f"{name}={change_value(value)}") for name, value in flat(settings).items())


def change_value(value: Any) -> str:
    """A value as `--set` reads it back."""
    try:
        if isinstance(value, str) and yaml.safe_load(value) == value:
            return value
    except yaml.YAMLError:  # a word that can only be read in quotes
        pass
    return json.dumps(value, separators=(",", ":"))


# From what was asked for to cells


def combined(
    presets: Sequence[str], methods: Sequence[Entry], seeds: Sequence[int], settings: Sequence[str] = ()
) -> list[Cell]:
    """Every combination, seed by seed, each once; a method's own changes win over the settings of all."""
    found = [
        Cell(preset, method, last_words((*settings, *own)), seed)
        for seed in seeds
        for preset in presets
        for method, own in methods
    ]
    return list(dict.fromkeys(found))


def last_words(changes: Sequence[str]) -> tuple[str, ...]:
    """Of changes to the same field only the last."""
    last = {change.partition("=")[0]: place for place, change in enumerate(changes)}
    return tuple(changes[place] for place in sorted(last.values()))


def check_names(path: Path, campaign: CampaignFile) -> None:
    """Every preset, method and setting of the file exists; otherwise the sentence says where in the file it stands."""
    for preset in campaign.presets:
        _attributed(path, "presets", lambda preset=preset: preset_parts(preset))
    reference = campaign.presets[0] if campaign.presets else "digits-cold5"
    _attributed(path, "settings", lambda: resolve(reference, "finetune", 0, _common(campaign.settings)))
    for method, own in campaign.methods:
        _attributed(path, "methods", lambda method=method, own=own: resolve(reference, method, 0, own))


def _common(settings: Sequence[str]) -> list[str]:
    """The settings that every method has; options belong to some methods only and are looked at with these."""
    return [change for change in settings if not change.startswith("options")]


def _attributed(path: Path, name: str, action: Any) -> None:
    try:
        action()
    except UserError as error:
        raise UserError(f"In {path}, {name}: {error}") from None
