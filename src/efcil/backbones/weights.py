"""Weights in a file: read without running anything that is in it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from efcil.backbones.pretrained import Weights
from efcil.errors import UserError

PICKLES = (".pth", ".pt", ".bin")


def read_weights(path: Path) -> Weights:
    """The state dict in a .safetensors, .pth, .pt or .bin file."""
    if not path.is_file():
        raise UserError(f"There is no file {path} with weights for a backbone.")
    if path.suffix not in (".safetensors", *PICKLES):
        raise UserError(f"{path} should end in .safetensors, .pth, .pt, .bin or .efcil to be read as a backbone.")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            with warnings.catch_warnings():  # of a pickle in another dialect, which is read or refused all the same
                warnings.simplefilter("ignore")
                content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds more than tensors and is not read, because reading it could run code; "
            "save the state_dict() of the network alone, best as .safetensors."
        ) from None
    except Exception as error:  # whatever a damaged file makes its reader say
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise UserError(f"{path} cannot be read as weights ({reason[:200]}); give another copy.") from None
    for wrapper in ("state_dict", "model"):  # as training scripts save them
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise UserError(f"{path} holds no state dict; save the state_dict() of the network, best as .safetensors.")
    weights = {str(name).removeprefix("module."): tensor for name, tensor in content.items()}
    spoilt = [name for name, tensor in weights.items() if not torch.isfinite(tensor).all()]
    if spoilt:
        raise UserError(f"{path} holds NaN or infinite weights ({spoilt[0]}); give another copy.")
    return weights
