"""Presets: from a name, a method and changes on the command line to one fully resolved RunConfig."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from efcil.config import (
    ClassifierConfig,
    DataConfig,
    RunConfig,
    StreamConfig,
    check_placed,
    deciding,
    from_dict,
    merge,
    to_dict,
)
from efcil.errors import UserError, invalid_yaml, unknown

SECTIONS = ("data", "stream", "classifier")
FIRST_CLASSES = {  # Table 1: |C_0| of the warm starts in 10 and 20 steps
    "cifar100": {10: 50, 20: 40},
    "tiny-imagenet": {10: 100, 20: 100},
    "imagenet-subset": {10: 50, 20: 40},
    "imagenet-1k": {10: 500, 20: 400},
}
DOMAINS = 6  # steps of DN4IL, one per domain


@dataclass(frozen=True)
class Scenario:
    """What a number of the paper belongs to, whatever the network: images, start and steps."""

    data: str
    start: str  # warm or cold, as the paper calls DN4IL too
    steps: int  # 0: as many as a folder has domains
    first_classes: int = 0
    whole: bool = True  # no class is left out, and no task

    @property
    def in_paper(self) -> bool:
        """Whether Table 1 has this split, or it is the stream of DN4IL."""
        if not self.whole:
            return False
        if self.data == "dn4il":
            return self == Scenario("dn4il", "cold", DOMAINS)
        splits = FIRST_CLASSES.get(self.data, {})
        return self.steps in splits and self.first_classes == (splits[self.steps] if self.start == "warm" else 0)

    def __str__(self) -> str:
        steps = "a step per domain" if not self.steps else f"{self.steps} steps"
        first = f" after {self.first_classes} classes" if self.first_classes else ""
        return f"{self.data}, {self.start} start, {steps}{first}" + ("" if self.whole else ", a part of it")


def scenario_of(preset: str) -> Scenario:
    """Which scenario a preset is, by its images and its stream and not by its name."""
    content = read_preset(preset)
    data = from_dict(DataConfig, content["data"], "data.")
    stream = from_dict(StreamConfig, content["stream"], "stream.")
    if stream.kind == "domain":
        return Scenario(data.name, "cold", DOMAINS if data.name == "dn4il" else 0, whole=stream.tasks is None)
    first = stream.first_classes if stream.kind == "warm" else 0
    return Scenario(data.name, stream.kind, stream.steps, first, stream.tasks is None and not stream.skip_classes)


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(Path(entry.name).stem for entry in files("efcil.bench").joinpath("presets").iterdir())


def read_preset(name: str) -> dict[str, Any]:
    """The content of a preset, by its name or by the path of a YAML file of your own."""
    packaged, own = preset_parts(name)
    return merge(packaged, own)


def preset_parts(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of a preset comes with the package, and what the user wrote: a method's recipe stands between the two."""
    is_file = name.endswith((".yaml", ".yml"))
    content = read_sections(name, is_file)
    like = content.pop("like")  # a preset of the package, of which this one changes some settings
    below = {} if like is None else preset_parts(known_preset(str(like)))[0]
    return (below, content) if is_file else (merge(below, content), {})


def known_preset(name: str) -> str:
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    return name


def read_sections(name: str, is_file: bool) -> dict[str, Any]:
    """The sections of one preset file, each a dictionary, with ``description`` and ``like``."""
    if is_file:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not text"
            raise UserError(f"The preset file {name} cannot be read: {reason}.") from None
    else:
        text = files("efcil.bench").joinpath("presets", f"{known_preset(name)}.yaml").read_text()
    try:
        content: Any = copy.deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        raise invalid_yaml(f"The preset {name}", error) from None
    if not isinstance(content, dict):
        raise UserError(f"The preset {name} must be a list of sections: {', '.join(SECTIONS)}.")
    allowed = (*SECTIONS, "methods", "description", "like")
    for section in content:
        if section not in allowed:
            for place, kind in zip(SECTIONS, (DataConfig, StreamConfig, ClassifierConfig), strict=True):
                if section in {field.name for field in fields(kind)}:
                    where = f"{place}: {{{section}: …}}"
                    raise UserError(f"In the preset {name}, {section} belongs under {place}: {where}.")
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
    return {**sections, "description": content.get("description", ""), "like": content.get("like")}


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """A table asks for the same few presets hundreds of times."""
    return yaml.safe_load(text)


def resolve(preset: str, method: str, seed: int, changes: Sequence[str] = ()) -> RunConfig:
    """Defaults, a packaged preset, the method's recipe, and then the user's words: a YAML file and ``field=value``."""
    from efcil.methods import method_class  # brings torch, which listing presets does not need

    packaged, own = preset_parts(preset)
    cls = method_class(method)
    settings = merge({section: {} for section in SECTIONS}, _for_method(packaged, method, cls.recipe))
    settings = merge(settings, _for_method(own, method, {}))
    settings = merge(settings, {"classifier": {"method": method, "seed": seed}})
    for change in changes:
        settings = merge(settings, parse_change(change))
    if not isinstance(settings["classifier"], Mapping):
        raise UserError("classifier is a section with fields of its own; set one of them, such as classifier.width=16.")
    check_placed(settings["classifier"], options=cls.Options, data=DataConfig, stream=StreamConfig)
    options = from_dict(cls.Options, settings["classifier"].get("options", {}), "options.")
    return from_dict(RunConfig, merge(settings, {"classifier": {"options": to_dict(options)}}))


def _for_method(part: Mapping[str, Any], method: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of one part of a preset, the recipe put in, and then what the part says for this very method."""
    classifier = merge(merge(part.get("classifier", {}), recipe), part.get("methods", {}).get(method, {}))
    return {**{section: part[section] for section in SECTIONS if section in part}, "classifier": classifier}


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


def short(change: str) -> str:
    """``classifier.width=8`` as ``width=8``, so that one change has one name in folders and results."""
    return change.removeprefix("classifier.")


def number_settings(config: RunConfig, complete: bool = False) -> dict[str, Any]:
    """Every setting that can move a number of a run, defaults and options included; the seed stands for itself."""
    from efcil.methods import method_class

    settings = deciding(config, complete)
    options = from_dict(method_class(config.classifier.method).Options, config.classifier.options, "options.")
    settings["classifier"]["options"] = deciding(options, complete)
    del settings["classifier"]["seed"]
    return settings


def config_digest(config: RunConfig) -> str:
    """A name for the settings of a run, another one as soon as any of them has another value, a default too."""
    described = json.dumps(number_settings(config), sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def deviations(config: RunConfig) -> str:
    """All settings that differ from the defaults of the package and the method, in one line, as ``--set`` takes them.

    For people: what the line leaves out has the default of its day, so only config_digest() tells runs apart.
    """
    defaults = RunConfig(classifier=ClassifierConfig(method=config.classifier.method))
    before, now = flat(number_settings(defaults)), flat(number_settings(config))
    changed = {name.removeprefix("classifier."): value for name, value in now.items() if value != before.get(name)}
    words = [f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in sorted(changed.items())]
    return " ".join(words).replace('"', "")


def recorded(method: str, settings: str) -> RunConfig:
    """The settings in a line of deviations(); what the line leaves out has today's default."""
    found: dict[str, Any] = {"classifier": {"method": method}}
    for word in settings.split():
        found = merge(found, parse_change(word))
    return from_dict(RunConfig, found)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary as one level of dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
