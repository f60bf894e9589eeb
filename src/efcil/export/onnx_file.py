"""One ONNX file with the weights, the preprocessing, the class names and the unknown threshold inside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from efcil.errors import UserError
from efcil.export.description import as_words, explained
from efcil.export.program import INPUT, quietly

OPSET = 18  # of 2022: old enough for every runtime that is still looked after
LARGEST = 2**31 - 1  # bytes of a file in this format


def needed() -> Any:
    """The packages onnx and onnxruntime, or a sentence on how to get them."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch.onnx asks for it only halfway)
    except ModuleNotFoundError as error:
        raise UserError(f"An ONNX file needs {error.name}; run: pip install 'efcil[export]'") from None
    return onnx, onnxruntime


def onnx_contents(program: torch.export.ExportedProgram, outputs: list[str], about: dict[str, Any]) -> Iterator[bytes]:
    """The program as the content of a file, with numbers of four bytes; then, if it has others, with these as they are.

    Browsers, phones and GPUs have only numbers of four bytes, or slow ones of eight; most models lose nothing by them.
    """
    onnx, _ = needed()
    model = onnx_model(program, outputs, about)
    if model.ByteSize() > LARGEST:
        raise UserError("This model has more than 2 GB, which no single ONNX file can hold; use --format torch.")
    narrow = onnx.ModelProto()
    narrow.CopyFrom(model)
    to_float32(narrow)
    for made in (narrow, *([model] if narrow != model else [])):
        onnx.checker.check_model(made)
        yield made.SerializeToString(deterministic=True)


def onnx_model(program: torch.export.ExportedProgram, outputs: list[str], about: dict[str, Any]) -> Any:
    """The program as an onnx.ModelProto that says what it is."""
    try:
        with quietly():
            made = torch.onnx.export(
                program, (), dynamo=True, verbose=False, input_names=[INPUT], output_names=outputs, opset_version=OPSET
            )
            assert made is not None
            model = made.model_proto
    except torch.onnx.OnnxExporterError as error:
        missing = re.search(r"op='([^']+)'", str(error))
        said = missing.group(1) if missing else str(error).strip().splitlines()[-1]
        raise UserError(f"This model cannot be exported as ONNX, which has nothing for {said:.150}.") from None
    put_in_words(model, about)
    return model


def put_in_words(model: Any, about: dict[str, Any]) -> None:
    """Readable names and what they mean, and nothing of the machine or the code that the model was exported with."""
    model.producer_name, model.producer_version = "efcil", about["efcil_version"]
    model.doc_string = f"An image classifier of {len(about['classes'])} classes; see the metadata."
    meanings = explained(about)
    graph = model.graph
    graph.name, graph.doc_string = "efcil", ""
    for value in (*graph.input, *graph.output):
        value.doc_string = meanings[value.name]
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.value_info[:]  # shapes in between, in terms of another name for batch
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
    for name, value in as_words(about).items():
        model.metadata_props.add(key=name, value=value)


# Numbers of eight bytes


def to_float32(model: Any) -> None:
    """Numbers of four bytes wherever the model has eight."""
    onnx, _ = needed()
    kinds = onnx.TensorProto
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            narrow(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == kinds.DOUBLE:
                value.type.tensor_type.elem_type = kinds.FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    narrow(attribute.t)
                elif attribute.name in ("to", "dtype") and attribute.i == kinds.DOUBLE:
                    attribute.i = kinds.FLOAT


def graphs(graph: Any) -> Iterable[Any]:
    """This graph and those within its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def narrow(tensor: Any) -> None:
    """A tensor of float64 as float32, in place."""
    onnx, _ = needed()
    if tensor.data_type == onnx.TensorProto.DOUBLE:
        values = onnx.numpy_helper.to_array(tensor).astype("float32")
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
