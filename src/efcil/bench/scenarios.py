"""Presets: from a name, a method and changes on the command line to one fully resolved RunConfig."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from efcil.config import ClassifierConfig, RunConfig, from_dict, merge, to_dict
from efcil.errors import UserError, unknown

SECTIONS = ("data", "stream", "classifier")


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(Path(entry.name).stem for entry in files("efcil.bench").joinpath("presets").iterdir())


def read_preset(name: str) -> dict[str, Any]:
    """The content of a preset, by its name or by the path of a YAML file of your own."""
    if name.endswith((".yaml", ".yml")):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not text"
            raise UserError(f"The preset file {name} cannot be read: {reason}.") from None
    elif name in preset_names():
        text = files("efcil.bench").joinpath("presets", f"{name}.yaml").read_text()
    else:
        raise unknown("preset", name, preset_names())
    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"The preset {name} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise UserError(f"The preset {name} must be a list of sections: {', '.join(SECTIONS)}.")
    allowed = (*SECTIONS, "methods", "description", "like")
    for section in content:
        if section not in allowed:
            raise unknown(f"section in preset {name}", section, allowed)
    sections = {section: content.get(section) or {} for section in (*SECTIONS, "methods")}
    parts = dict(sections)
    if isinstance(sections["methods"], dict):
        parts |= {f"methods.{method}": part for method, part in sections["methods"].items()}
    for path, part in parts.items():
        if not isinstance(part, dict):
            raise UserError(
                f"In the preset {name}, {path} is a section with fields of its own, not the value {part!r}."
            )
    preset = {**sections, "description": content.get("description", "")}
    like = content.get("like")  # a preset of the package, of which this one changes some settings
    if like is None:
        return preset
    if like not in preset_names():
        raise unknown("preset", str(like), preset_names())
    return merge(read_preset(like), preset)


def resolve(preset: str, method: str, seed: int, changes: Sequence[str] = ()) -> RunConfig:
    """Defaults, preset, the method's recipe, the preset's section for the method, then ``field=value`` changes."""
    from efcil.methods import method_class  # brings torch, which listing presets does not need

    content = read_preset(preset)
    cls = method_class(method)
    classifier = merge(content["classifier"], cls.recipe)
    classifier = merge(classifier, content["methods"].get(method, {}))
    settings = {section: content[section] for section in SECTIONS}
    settings["classifier"] = merge(classifier, {"method": method, "seed": seed})
    for change in changes:
        settings = merge(settings, parse_change(change))
    if not isinstance(settings["classifier"], Mapping):
        raise UserError("classifier is a section with fields of its own; set one of them, such as classifier.width=16.")
    options = from_dict(cls.Options, settings["classifier"].get("options", {}), "options.")
    return from_dict(RunConfig, merge(settings, {"classifier": {"options": to_dict(options)}}))


def parse_change(change: str) -> dict[str, Any]:
    """``incremental.lr=0.001`` as a nested dictionary; a field without its section belongs to the classifier."""
    name, equals, value = change.partition("=")
    if not equals or not name:
        raise UserError(f"--set takes field=value, such as incremental.lr=0.001, not {change!r}.")
    path = name.split(".")
    if path[0] not in SECTIONS:
        path.insert(0, "classifier")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"the value of --set {change} cannot be read; quote it.") from None
    for part in reversed(path):
        nested = {part: nested}
    return dict(nested)


def deviations(config: RunConfig) -> str:
    """All settings that differ from the defaults of the package and the method, in one line, as ``--set`` takes them.

    Seed and device do not count. A setting that a later version adds leaves the line of an older run as it is.
    """
    from efcil.methods import method_class

    c = config.classifier
    options = to_dict(method_class(c.method).Options())
    defaults = RunConfig(classifier=ClassifierConfig(method=c.method, options=options, seed=c.seed, device=c.device))
    before, now = flat(to_dict(defaults)), flat(to_dict(config))
    changed = {name.removeprefix("classifier."): value for name, value in now.items() if value != before[name]}
    words = [f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in sorted(changed.items())]
    return " ".join(words).replace('"', "")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary as one level of dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
