"""What a model file holds, tensor by tensor, and how many bytes of it belong to each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from efcil.classifier import IncrementalClassifier
from efcil.engine import state
from efcil.engine.method import words_and_type


def bytes_per_class(classifier: IncrementalClassifier) -> list[int]:
    """Bytes that the method keeps of each class, in the order of ``classes_``; what all share is not in it."""
    method, classes = classifier._method, len(classifier.classes_)
    kept, shapes = method.state(), method.kept_shapes()
    found = [0] * classes
    for name, tensor in kept.items():
        words, _ = words_and_type(shapes.get(name, ""))
        if "m" in words:
            found = [own + tensor.nbytes // classes for own in found]
        elif words[:1] == ["r"] and len(tensor):
            row = tensor.nbytes // len(tensor)
            found = [own + row * rows for own, rows in zip(found, factor_rows(kept), strict=True)]
    return found


def factor_rows(kept: dict[str, Any]) -> list[int]:
    """Rows of the factors of each class: as they are noted, or one fewer than its images and no more than features."""
    if "factor_rows" in kept:
        return [int(rows) for rows in kept["factor_rows"]]
    return [int(rows) for rows in (kept["counts"] - 1).clamp(min=0, max=kept["means"].shape[1])]


def tensors_inside(path: Path) -> list[dict[str, Any]]:
    """The tensors of a model file: those of the network in one line, every other by its name."""
    tensors, _ = state.read(path, "classifier")
    network = {name: tensor for name, tensor in tensors.items() if name.startswith("model.backbone.")}
    rows = [{"name": "the network", "shape": f"{len(network)} tensors", "type": "", "bytes": total(network.values())}]
    for name in sorted(tensors.keys() - network.keys()):
        tensor = tensors[name]
        shape = " × ".join(map(str, tensor.shape)) or "one number"
        kind = str(tensor.dtype).removeprefix("torch.")
        rows.append({"name": name, "shape": shape, "type": kind, "bytes": tensor.nbytes})
    return rows


def total(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors)
