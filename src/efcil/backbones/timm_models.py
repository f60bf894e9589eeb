"""The models of the package timm, where it is installed: ``timm:NAME``, or ``timm:NAME:FILE`` with weights at hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import nn

from efcil.backbones.pretrained import Architecture, ImageInput, Pretrained, Weights
from efcil.backbones.weights import read_weights
from efcil.errors import UserError, unknown

PREFIX = "timm:"


def from_timm(backbone: str) -> Pretrained:
    """``timm:NAME`` with the weights that timm fetches, ``timm:NAME:FILE`` with those of a file."""
    name, _, file = backbone.removeprefix(PREFIX).partition(":")
    library = timm()
    check_name(name)
    config = library.get_pretrained_cfg(name, allow_unregistered=False).to_dict()
    wanted = library.data.resolve_data_config(pretrained_cfg=config)
    size = int(wanted["input_size"][-1])
    image_input = ImageInput(
        stored=math.floor(size / wanted["crop_pct"]),
        size=size,
        mean=tuple(wanted["mean"]),
        std=tuple(wanted["std"]),
        interpolation="bicubic" if wanted["interpolation"] == "bicubic" else "bilinear",
        any_size=not config["fixed_input_size"],
    )
    architecture = Architecture(PREFIX + name)
    read = (lambda: weights_of_file(name, Path(file), config)) if file else (lambda: fetched(name))
    return Pretrained(architecture, image_input, read)


def build(architecture: Architecture) -> nn.Module:
    """The network without weights; its output is the features that its classifier would get."""
    name = architecture.name.removeprefix(PREFIX)
    library = timm()
    check_name(name)
    network: nn.Module = library.create_model(name, pretrained=False, num_classes=0)
    network.feature_dim = int(getattr(network, "head_hidden_size", network.num_features))  # type: ignore[assignment, arg-type]
    network.architecture = architecture  # type: ignore[assignment]
    return network


def fetched(name: str) -> Weights:
    """The weights that timm downloads, or has downloaded before."""
    try:
        network: nn.Module = timm().create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # whatever a download can die of, in any of the libraries that timm uses for it
        reason = str(error).strip().partition("\n")[0].rstrip(".")[:200] or type(error).__name__
        raise UserError(
            f"timm cannot fetch the weights of {name} ({reason}); "
            f"if you have them in a file, give backbone='{PREFIX}{name}:FILE'."
        ) from None
    return network.state_dict()


def weights_of_file(name: str, path: Path, config: dict[str, Any]) -> Weights:
    """The weights in a file, without those of the classifier."""
    heads = config.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    prefixes = tuple(f"{head}." for head in heads)
    return {key: tensor for key, tensor in read_weights(path).items() if not key.startswith(prefixes or ("\0",))}


def check_name(name: str) -> None:
    library = timm()
    if not library.is_model(name):
        raise unknown("model of timm", name, library.list_models())


def timm() -> Any:
    """The package, or one sentence on how to get it."""
    try:
        import timm
        import timm.data
    except ModuleNotFoundError as error:
        raise UserError(
            f"A backbone of timm needs the package timm ({error}); run: pip install 'efcil[timm]'"
        ) from None
    except Exception as error:  # a torchvision that was built for another torch fails in its own ways
        raise UserError(
            f"The package timm cannot be used here ({str(error).partition(chr(10))[0]}); "
            "install a torchvision that belongs to this torch."
        ) from None
    return timm
