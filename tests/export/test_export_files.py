"""Exported files hold everything but images: preprocessing, names, threshold; and nothing of this machine."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exported import ASKED, agrees, exported_bytes, looks, network, taught

from efcil import IncrementalClassifier, __version__
from efcil.data.images import image_set
from efcil.errors import UserError
from efcil.export import export_classifier
from efcil.export.check import largest_difference, made_up
from efcil.export.description import described
from efcil.export.eight_bits import quantised


@pytest.fixture
def classifier() -> IncrementalClassifier:
    return network()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {format: tmp_path_factory.mktemp("exported") / f"pets.{format}" for format in ASKED}
    for format, path in made.items():
        path.write_bytes(exported_bytes(format))
    return made


@pytest.mark.parametrize("format", ASKED)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_any_number_of_images_of_the_stored_side(
    format: str, count: int, classifier: IncrementalClassifier, files: dict[str, Path]
) -> None:
    images = looks(16)[-count:]
    agrees(classifier, ASKED[format](files[format], images), images)


def test_only_the_middle_is_looked_at(files: dict[str, Path]) -> None:
    images = looks(16)
    framed = images.copy()
    framed[:, :2] = framed[:, :, :2] = framed[:, 14:] = framed[:, :, 14:] = 255
    for format, ask in ASKED.items():
        np.testing.assert_array_equal(
            ask(files[format], framed)["probabilities"], ask(files[format], images)["probabilities"]
        )


def test_what_the_onnx_file_says_of_itself(classifier: IncrementalClassifier, files: dict[str, Path]) -> None:
    model = onnx.load(files["onnx"])
    assert (model.producer_name, model.producer_version) == ("efcil", __version__)
    assert [(version.domain, version.version) for version in model.opset_import] == [("", 18)]
    session = onnxruntime.InferenceSession(files["onnx"])
    (images,) = session.get_inputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(uint8)", ["batch", 16, 16, 3])
    outputs = {output.name: (output.type, output.shape) for output in session.get_outputs()}
    assert outputs == {
        "probabilities": ("tensor(float)", ["batch", 3]),
        "familiarity": ("tensor(float)", ["batch"]),
        "unknown": ("tensor(bool)", ["batch"]),
    }
    about = session.get_modelmeta().custom_metadata_map
    _, preprocessing = classifier._fitted()
    expected = {
        "classes": ["cat", "dog", "elk"],
        "image_size": 16,
        "crop": 12,
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "unknown_threshold": 0.05,
    }
    assert {name: json.loads(about[name]) for name in expected} == expected
    words = {"interpolation": "bicubic", "method": "lda", "backbone": "resnet9", "efcil_version": __version__}
    assert {name: about[name] for name in words} == words and set(about) == {*expected, *words}
    assert "shorter side resized to 16 pixels" in model.graph.input[0].doc_string
    assert all(output.doc_string for output in model.graph.output)


def test_the_torch_file_says_the_same(files: dict[str, Path]) -> None:
    extra = {"efcil.json": ""}
    program = torch.export.load(files["torch"], extra_files=extra)
    about = json.loads(extra["efcil.json"])
    told = onnxruntime.InferenceSession(files["onnx"]).get_modelmeta().custom_metadata_map
    assert {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()} == told
    assert list(program.module()(torch.zeros(1, 16, 16, 3, dtype=torch.uint8))) == [
        *("probabilities", "familiarity", "unknown")
    ]


def test_every_number_in_onnx_has_four_bytes(files: dict[str, Path]) -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load(files["onnx"]))
    kinds = {value.type.tensor_type.elem_type for value in (*model.graph.value_info, *model.graph.output)}
    kinds |= {tensor.data_type for tensor in model.graph.initializer}
    assert onnx.TensorProto.FLOAT in kinds and onnx.TensorProto.DOUBLE not in kinds


def test_no_image_and_nothing_of_this_machine_is_inside(files: dict[str, Path]) -> None:
    model = onnx.load(files["onnx"])
    assert not any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in model.graph.initializer)
    with zipfile.ZipFile(files["torch"]) as archive:
        parts = [archive.read(name) for name in archive.namelist()]
    for content in (files["onnx"].read_bytes(), *parts):
        for word in (b"/site-packages", b"program.py", str(Path.cwd()).encode(), str(Path.home()).encode() + b"/"):
            assert word not in content
    program = torch.export.load(files["torch"])
    assert program.example_inputs is None or not program.example_inputs[0][0].any()  # black


@pytest.mark.slow
def test_equal_models_are_equal_onnx_files(classifier: IncrementalClassifier, tmp_path: Path) -> None:
    again = tmp_path / "again.onnx"
    classifier.save(tmp_path / "pets.efcil")
    export_classifier(IncrementalClassifier.load(tmp_path / "pets.efcil"), again)
    assert again.read_bytes() == exported_bytes("onnx")


def test_a_model_can_go_on_learning_after_it_was_exported(tmp_path: Path) -> None:
    one, other = taught("efc++"), taught("efc++")
    export_classifier(one, tmp_path / "model.pt2", "torch")
    for classifier, name in ((one, "one"), (other, "other")):
        classifier.partial_fit(looks(8)[:4], ["owl"] * 4).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


# The comparison


def answering(classifier: IncrementalClassifier, **changes: Any) -> Any:
    """A file that says what the model says, but for the changes."""

    def answer(pixels: Any) -> dict[str, Any]:
        told = classifier.answers(pixels)
        said = {"probabilities": told.probabilities, "familiarity": told.familiarity, "unknown": told.unknown}
        return {name: changes.get(name, lambda value: value)(value) for name, value in said.items()}

    return answer


def test_every_difference_is_seen(classifier: IncrementalClassifier) -> None:
    assert largest_difference(classifier, answering(classifier), None) == 0

    def nudged(values: Any) -> Any:
        changed = values.copy()
        changed.flat[-1] += 0.25
        return changed

    for name in ("probabilities", "familiarity"):
        assert largest_difference(classifier, answering(classifier, **{name: nudged}), None) == pytest.approx(0.25)
    never: list[Any] = [
        {"unknown": lambda values: ~values},
        {"probabilities": lambda values: values[:, :2]},
        {"probabilities": lambda values: values * np.nan},
    ]
    for changes in never:
        assert largest_difference(classifier, answering(classifier, **changes), None) == np.inf
    silent = answering(classifier)
    assert largest_difference(classifier, lambda x: {"probabilities": silent(x)["probabilities"]}, None) == np.inf


def test_made_up_images_go_from_one_colour_to_noise() -> None:
    images = made_up(64)
    colours = [len(np.unique(image.reshape(-1, 3), axis=0)) for image in images]
    assert images.shape == (8, 64, 64, 3) and colours[0] == 1 and colours[-1] > 4000 and colours == sorted(colours)
    np.testing.assert_array_equal(images, made_up(64))


# Eight bits


def test_the_network_but_not_the_classifier_computes_in_eight_bits(
    classifier: IncrementalClassifier, tmp_path: Path
) -> None:
    images = looks(16, 60)
    about = described(classifier, ["unknown"])
    path = tmp_path / "small.onnx"
    path.write_bytes(quantised(exported_bytes("onnx"), images[::2], about))
    graph = onnx.load(path).graph
    eight = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8 and tensor.dims}
    read = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 8 and len(eight & read) >= 8
    makers = {output: node.op_type for node in graph.node for output in node.output}
    assert all(makers.get(name) == "DequantizeLinear" for node in convolutions for name in node.input[:2])
    products = [node for node in graph.node if node.op_type == "MatMul"]
    assert products and not any(makers.get(name) == "DequantizeLinear" for node in products for name in node.input)
    session = onnxruntime.InferenceSession(path)
    assert session.get_inputs()[0].shape == ["batch", 16, 16, 3]
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == ["cat", "dog", "elk"] and told["weights"] == "int8"
    said, expected = ASKED["onnx"](path, images[1::2]), classifier.answers(images[1::2])
    assert set(said) == {"probabilities", "familiarity", "unknown"}
    assert np.mean(said["probabilities"].argmax(1) == expected.probabilities.argmax(1)) > 0.6  # noise in, noise out


@pytest.mark.slow
def test_eight_bits_that_change_the_answers_are_refused(classifier: IncrementalClassifier, tmp_path: Path) -> None:
    """As they do for a network that has hardly learnt anything."""
    told = r"in eight bits only (1[89]|2\d) of 30 photos get the model's answer; give more photos of the classes"
    with pytest.raises(UserError, match=told):
        export_classifier(classifier, tmp_path / "model.onnx", photos=image_set(looks(16, 60)), int8=True)
    assert list(tmp_path.iterdir()) == []


def test_eight_bits_need_photos_and_onnx(classifier: IncrementalClassifier, tmp_path: Path) -> None:
    few = image_set(looks(16, 18))
    with pytest.raises(UserError, match=r"Eight bits need at least 20 photos .* add --check PHOTOS"):
        export_classifier(classifier, tmp_path / "model.onnx", photos=few, int8=True)
    with pytest.raises(UserError, match="Eight bits are for the format onnx"):
        export_classifier(classifier, tmp_path / "model.pt2", "torch", photos=few, int8=True)
    assert list(tmp_path.iterdir()) == []


# What cannot be done


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    classifier = taught("finetune")
    with pytest.raises(UserError, match=r"no format called 'onxx'; did you mean onnx\?"):
        export_classifier(classifier, tmp_path / "model", "onxx")
    with pytest.raises(UserError, match=r"is a folder; give a file such as .*model\.pt2"):
        export_classifier(classifier, tmp_path, "torch")
    with pytest.raises(UserError, match="has not learnt anything yet"):
        export_classifier(IncrementalClassifier(), tmp_path / "model", "torch")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written .* choose another place"):
        export_classifier(classifier, tmp_path / "file" / "model.pt2", "torch")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
