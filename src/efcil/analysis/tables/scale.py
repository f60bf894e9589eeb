"""At what scale the numbers of a table were made: network, images, epochs, seeds and numerics, ours and the paper's."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

import torch

from efcil.analysis.tables.comparison import Comparison, PresetRuns
from efcil.backbones import without_weights
from efcil.backbones.pretrained import Architecture
from efcil.bench.scenarios import recorded, resolve, scenario_of
from efcil.config import ClassifierConfig, RunConfig, Training
from efcil.engine import numerics
from efcil.engine.backbone import pretrained_backbone
from efcil.errors import UserError

THE_PAPER = (
    "paper: resnet18 of width 64, 512 features; all images; 100 epochs for the first task (160 for ImageNet and DN4IL) "
    "and 100 for each later one of EFC++; 5 seeds."
)
OTHER_THAN_NETWORK = {"method", "image_size", "augmentation", "batchnorm", "seed", "backbone", "width"}


@dataclass(frozen=True)
class Scale:
    """What a reader must know of a preset's numbers."""

    preset: str
    source: str
    network: str
    features: int | None  # none: the weights that would tell are not at hand
    image_size: int | None
    images_per_class: int | None  # none: all
    first_epochs: str
    later_epochs: str
    other_epochs: str  # rows that were trained for longer or shorter
    seeds: str
    numerics: str
    stale: str  # rows of older numerics; empty: none
    remarks: str

    @property
    def sentence(self) -> str:
        images = "all images" if self.images_per_class is None else f"{self.images_per_class} images per class"
        size = f", {self.image_size} pixels" if self.image_size else ""
        features = f", {self.features} features" if self.features else ""
        others = f" ({self.other_epochs})" if self.other_epochs else ""
        told = [
            f"{self.preset} ({self.source}): {self.network}{features}{size}",
            images,
            f"{self.first_epochs} for the first task, {self.later_epochs} for each later one{others}",
            self.seeds or "not run",
        ]
        if self.numerics:
            told.append(f"numerics version {self.numerics}")
        if self.stale:
            which = "all" if self.stale == "all" else f"the rows {self.stale}"
            told.append(f"{which} stale, since today's numerics are version {numerics.VERSION}")
        return "; ".join(told) + "." + (f" {self.remarks}" if self.remarks else "")

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def scales(comparison: Comparison) -> list[Scale]:
    return [scale(preset) for preset in comparison.presets]


def scale(preset: PresetRuns) -> Scale:
    """The scale of a preset: as recorded with its rows, or, before it was run, as it is set."""
    configs = {row: _recorded(preset, row) for row in preset.runs} or {"EFC++": resolve(preset.preset, "efc++", 0)}
    lengths = {row: (_length(c.classifier.first), _length(c.classifier.incremental)) for row, c in configs.items()}
    usual = Counter(lengths.values()).most_common(1)[0][0]
    config = configs[next(row for row, length in lengths.items() if length == usual)]
    versions = _by_value({row: str(runs.line["numerics"]) for row, runs in preset.runs.items()})
    stale = [row for row, runs in preset.runs.items() if runs.stale]
    return Scale(
        preset=preset.preset,
        source=preset.source,
        network=_network(config.classifier),
        features=_features(config.classifier),
        image_size=config.classifier.image_size,
        images_per_class=config.data.images_per_class,
        first_epochs=usual[0],
        later_epochs=usual[1],
        other_epochs=_by_value(
            {
                row: length[1] if length[0] == usual[0] else f"{length[0]} and {length[1]}"
                for row, length in lengths.items()
                if length != usual
            },
            every=True,
        ),
        seeds=_by_value({row: _count(len(runs.rows), "seed") for row, runs in preset.runs.items()}),
        numerics=versions,
        stale="all" if stale and len(stale) == len(preset.runs) else ", ".join(stale),
        remarks=_remarks(preset, config),
    )


def _recorded(preset: PresetRuns, row: str) -> RunConfig:
    """The settings that a row's runs were made with, which the preset may no longer have."""
    made = preset.runs[row].rows[0]
    try:
        return recorded(made["method"], made["settings"])
    except UserError:  # of a field that is gone, or a value with a space in it
        return resolve(preset.preset, made["method"], 0, made["changes"].split())


def _length(training: Training) -> str:
    return _count(training.epochs, "epoch") if training.steps is None else f"about {training.steps} steps"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _by_value(values: dict[str, str], every: bool = False) -> str:
    """The commonest value, then each other with the rows that have it; or all of them with their rows."""
    if not values:
        return ""
    usual = None if every else Counter(values.values()).most_common(1)[0][0]
    others: dict[str, list[str]] = {}
    for row, value in values.items():
        if value != usual:
            others.setdefault(value, []).append(row)
    told = [f"{', '.join(rows)}: {value}" for value, rows in others.items()]
    return "; ".join(told) if usual is None else usual + (f" ({'; '.join(told)})" if told else "")


def _network(config: ClassifierConfig) -> str:
    """The backbone and every setting of it that is not the default, whatever settings there are."""
    special = [
        f"{f.name} {getattr(config, f.name)}"
        for f in fields(config)
        if f.default is not MISSING and f.name not in OTHER_THAN_NETWORK and not f.metadata.get("moves_no_number")
        if getattr(config, f.name) != f.default
    ]
    width = f" of width {config.width}" if config.backbone.startswith("resnet") else ""
    return f"{config.backbone}{width}" + (f" ({', '.join(special)})" if special else "")


def _features(config: ClassifierConfig) -> int | None:
    """The length of a feature vector; the network is built without numbers, so that this takes no time."""
    try:
        pretrained = pretrained_backbone(config)
    except UserError:
        return None
    scratch = Architecture(config.backbone, config.width, "small", config.stem_stride)
    with torch.device("meta"):
        return int(without_weights(pretrained.architecture if pretrained else scratch).feature_dim)  # type: ignore[arg-type]


def _remarks(preset: PresetRuns, config: RunConfig) -> str:
    told = []
    if scenario_of(preset.preset).data == "domains":
        steps = {len(row["accuracy_per_step"].split()) for runs in preset.runs.values() for row in runs.rows}
        length = f" in {' or '.join(_count(number, 'step') for number in sorted(steps))}" if steps else ""
        told.append(
            f"Another set of domains{length}, not DN4IL: the order of methods can be compared, their numbers cannot."
        )
    if config.data.held_out:
        told.append(f"Measured on {config.data.held_out} training images of each class that were set aside.")
    if preset.left_out:
        many = preset.left_out != 1
        told.append(
            f"{preset.left_out} more row{'s' if many else ''} of these runs {'are' if many else 'is'} left out, made "
            "with other settings or older numerics."
        )
    return " ".join(told)
