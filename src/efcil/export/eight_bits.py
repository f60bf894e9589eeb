"""An ONNX file whose network computes in eight bits: half as large, and faster on a CPU; what it costs is measured.

Convolutions are quantised together with what follows them up to the features: a convolution alone, whose output has a
wider range before it is cut off by the activation, loses several times as many answers. The classifier stays as it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from efcil.export.check import Pixels
from efcil.export.onnx_file import needed, put_in_words
from efcil.export.program import INPUT, quietly

NETWORK = ("Conv", "Clip", "Relu", "Add", "MaxPool", "ReduceMean", "GlobalAveragePool")
LAST = ("ReduceMean", "GlobalAveragePool")  # gives the features


def quantised(content: bytes, shown: Pixels, about: dict[str, Any], kinds: tuple[str, ...] = NETWORK) -> bytes:
    """The file in eight bits; the range of every activation is measured on the images shown (N, S, S, 3)."""
    onnx, _ = needed()
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Shown(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.images: Iterator[Pixels] = iter(shown)

        def get_next(self) -> dict[str, Pixels] | None:
            image = next(self.images, None)
            return None if image is None else {INPUT: image[None]}

    with tempfile.TemporaryDirectory() as folder, quietly():
        given, ready, made = (Path(folder, name) for name in ("given.onnx", "ready.onnx", "made.onnx"))
        given.write_bytes(content)
        quant_pre_process(str(given), str(ready), skip_symbolic_shape=True)
        quantize_static(
            str(ready),
            str(made),
            Shown(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(kinds),
            nodes_to_quantize=network(onnx.load(ready).graph),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,  # weights of seven bits: with eight, sums overflow on processors before VNNI
        )
        model = onnx.load(made)
    put_in_words(model, {**about, "weights": "int8"})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def network(graph: Any) -> list[str]:
    """The names of the nodes from the first convolution to the features."""
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    found: dict[str, None] = {}
    waiting = [node for node in graph.node if node.op_type == "Conv"]
    while waiting:
        node = waiting.pop()
        if node.name not in found and node.op_type in NETWORK:
            found[node.name] = None
            if node.op_type not in LAST:
                waiting += [user for name in node.output for user in users.get(name, [])]
    return list(found)
