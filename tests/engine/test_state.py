"""Files of tensors: written whole or not at all, equal for equal states, refused when damaged or not ours."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.torch import save

import efcil
from conftest import TinyNet, make_blobs, make_learner
from efcil import IncrementalClassifier
from efcil.engine import state
from efcil.errors import UserError

TENSORS = {
    "model.weight": torch.arange(12.0).view(3, 4),
    "model.count": torch.tensor(7),
    "method.empty": torch.zeros(0, 5),
    "method.flags": torch.tensor([True, False]),
    "method.half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "method.turned": torch.arange(6.0).view(2, 3).T,
}
META = {"classes": ["cat", "ünï 日本"], "mean": [0.1, 1 / 3, 1e-300], "nothing": None, "tasks": [2]}


def write(path: Path) -> bytes:
    state.write(path, "classifier", TENSORS, META)
    return path.read_bytes()


@cache
def classifier_bytes() -> bytes:
    """A small saved classifier."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.efcil"
        make_learner("freeze", backbone=TinyNet()).partial_fit(*make_blobs(["cat", "dog"])).save(path)
        return path.read_bytes()


def load(path: Path) -> IncrementalClassifier:
    return IncrementalClassifier.load(path, backbone=TinyNet())


def refused(path: Path, content: bytes, read: Callable[[Path], Any] = load) -> str:
    """The sentence with which a file of this content is refused; it names the file."""
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    sentence = str(caught.value)
    assert str(path) in sentence and "\n" not in sentence and sentence.endswith((".", "?"))
    return sentence


# Round trip


def test_tensors_and_description_come_back_exactly(tmp_path: Path) -> None:
    write(tmp_path / "a.efcil")
    tensors, header = state.read(tmp_path / "a.efcil", "classifier")
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor) and tensors[name].dtype == tensor.dtype
    assert {name: header[name] for name in META} == META
    assert state.section("model", tensors).keys() == {"weight", "count"}
    assert state.prefixed("model", state.section("model", tensors)).keys() == {"model.weight", "model.count"}


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    reordered = dict(reversed(TENSORS.items()))
    state.write(tmp_path / "b.efcil", "classifier", reordered, dict(reversed(META.items())))
    assert write(tmp_path / "a.efcil") == (tmp_path / "b.efcil").read_bytes() == write(tmp_path / "a.efcil")


def test_saving_what_was_loaded_gives_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.efcil"
    path.write_bytes(classifier_bytes())
    load(path).save(tmp_path / "deep" / "er" / "b.efcil")  # folders are made
    assert (tmp_path / "deep" / "er" / "b.efcil").read_bytes() == classifier_bytes()


def test_a_loaded_classifier_does_not_depend_on_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.efcil"
    path.write_bytes(classifier_bytes())
    classifier, (images, _) = load(path), make_blobs(["cat", "dog"])
    before = classifier.decision_function(images)
    path.write_bytes(bytes(len(classifier_bytes())))  # in place, as cp does
    assert np.array_equal(classifier.decision_function(images), before)


REPLACING = """
import itertools, os, sys
path, *versions = sys.argv[1:]
for version in itertools.cycle(versions):
    os.link(version, path + ".new")
    os.replace(path + ".new", path)
"""


def test_a_reader_sees_one_file_whole_while_another_process_replaces_it(tmp_path: Path) -> None:
    versions = [tmp_path / f"{size}.efcil" for size in (1, 5000)]
    for version in versions:
        size = int(version.stem)
        state.write(version, "classifier", {"x": torch.full((size,), float(size))}, META)
    path = tmp_path / "a.efcil"
    writer = subprocess.Popen([sys.executable, "-c", REPLACING, path, *versions])
    try:
        while not path.exists():
            assert writer.poll() is None
        for _ in range(2000):
            tensors, _ = state.read(path, "classifier")
            assert (tensors["x"] == len(tensors["x"])).all()
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


# Damage


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    content = classifier_bytes()
    for length in {*range(0, len(content), 97), *range(12), len(content) - 1}:
        refused(tmp_path / "cut.efcil", content[:length])


def test_a_longer_file_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "long.efcil", classifier_bytes() + b"x")


def refused_or_the_same(path: Path, content: bytes) -> None:
    """A flip in the seventeenth decimal of a number can leave the number as it was; anything else must be refused."""
    path.write_bytes(content)
    try:
        load(path).save(path)
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert path.read_bytes() == classifier_bytes()


@hypothesis_settings(deadline=None, max_examples=300)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, position: float, bit: int) -> None:
    content = bytearray(classifier_bytes())
    content[int(position * len(content))] ^= 1 << bit
    refused_or_the_same(tmp_path_factory.getbasetemp() / "flipped.efcil", bytes(content))


def test_every_byte_of_the_header_is_guarded(tmp_path: Path) -> None:
    content = classifier_bytes()
    for position in range(8 + int.from_bytes(content[:8], "little")):
        damaged = bytearray(content)
        damaged[position] ^= 1
        refused_or_the_same(tmp_path / "flipped.efcil", bytes(damaged))


def test_a_flipped_letter_of_a_class_name_is_refused(tmp_path: Path) -> None:
    content = classifier_bytes()
    assert content.count(b"cat") == 2  # among the classes, and in the lesson that taught it
    refused(tmp_path / "bat.efcil", content.replace(b"cat", b"bat", 1))


def test_flipped_data_is_refused(tmp_path: Path) -> None:
    content = classifier_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for position in range(start, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 128
        assert "checksum" in refused(tmp_path / "flipped.efcil", bytes(damaged))


FOREIGN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not an efcil model; give a file that `efcil learn` wrote."),
    "noise": (np.random.default_rng(0).bytes(5000), "is not an efcil model"),
    "text": (b"hello " * 100, "is not an efcil model"),
    "half a description": (save({"a": torch.zeros(2)})[:20], "is damaged"),
    "safetensors of others": (save({"a": torch.zeros(2)}), "not written by efcil"),
    "safetensors with a description": (save({"a": torch.zeros(2)}, {"format": "pt"}), "not written by efcil"),
    "an entry that is no JSON": (save({"a": torch.zeros(2)}, {"efcil": "{"}), "damaged"),
    "an entry that is a list": (save({"a": torch.zeros(2)}, {"efcil": "[]"}), "not written by efcil"),
    "an entry without an end": (save({}, {"efcil": "[" * 100_000}), "damaged"),
    "no description": (
        len(b'{"__metadata__":null}').to_bytes(8, "little") + b'{"__metadata__":null}',
        "not written by",
    ),
    "an entry that is no text": ((30).to_bytes(8, "little") + b'{"__metadata__":{"efcil":5.0}}', "damaged"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "is not an efcil model"),
    "a type that torch has not, of a newer version": (
        save({"a": torch.zeros(1)}, {"efcil": '{"format": "efcil", "version": 9}'}).replace(b'"F32"', b'"F9 "'),
        "upgrade efcil",
    ),
    "no checksum": (
        save({}, {"efcil": json.dumps({"format": "efcil", "version": 1, "kind": "classifier"})}),
        "damaged",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_not_ours_are_refused(name: str, tmp_path: Path) -> None:
    content, message = FOREIGN[name]
    sentence = refused(tmp_path / "foreign.efcil", content)
    assert message in sentence and sentence.count(str(tmp_path)) == 1  # no sentence within another


class Bomb:
    """What a malicious pickle does when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    refused(tmp_path / "a.efcil", pickle.dumps(Bomb(trace)))
    torch.save({"a": Bomb(trace)}, tmp_path / "b.pt")
    refused(tmp_path / "b.efcil", (tmp_path / "b.pt").read_bytes())
    assert not trace.exists()
    pickle.loads((tmp_path / "a.efcil").read_bytes())
    assert trace.exists()  # it would have been seen


def test_nothing_in_the_package_reads_pickles() -> None:
    """But for two that are restricted: of the CIFAR archives, which refuses everything that is not an array, and of
    weights, which refuses everything that is not a tensor."""
    texts = {path: path.read_text() for path in Path(efcil.__file__).parent.rglob("*.py")}
    for text in texts.values():
        assert all("weights_only=True" in call for call in re.findall(r"torch\.load\(.*", text))
    found = {
        path.name
        for path, text in texts.items()
        if re.search(r"^\s*(import|from) (pickle|dill|joblib)|torch\.load\(|allow_pickle=True", text, re.M)
    }
    assert found <= {"cifar100_python.py", "weights.py"}


def test_a_file_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "VERSION", state.VERSION + 1)
    content = write(tmp_path / "future.efcil")
    monkeypatch.undo()
    assert "upgrade efcil" in refused(tmp_path / "future.efcil", content)


def test_a_file_of_another_kind_says_so(tmp_path: Path) -> None:
    state.write(tmp_path / "c.efcil", "checkpoint", TENSORS, META)
    assert "holds a checkpoint, not a classifier" in refused(tmp_path / "c.efcil", (tmp_path / "c.efcil").read_bytes())


@pytest.mark.parametrize("name", ["nowhere.efcil", "."])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        load(tmp_path / name)


# Tied weights


class Tied(TinyNet):
    """Uses one weight twice, and a part of it a third time."""

    def __init__(self) -> None:
        super().__init__()
        self.again = torch.nn.Linear(6, 6)
        self.again.weight = self.linear.weight
        self.register_buffer("part", self.linear.weight.detach()[2:4])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(super().forward(x))


def test_tied_weights_are_saved_loaded_and_still_tied(tmp_path: Path) -> None:
    images, labels = make_blobs(["cat", "dog"])
    path = tmp_path / "tied.efcil"
    classifier = make_learner("efc++", backbone=Tied()).partial_fit(images, labels, checkpoint=tmp_path / "c.efcil")
    classifier.save(path)
    loaded = IncrementalClassifier.load(path, backbone=Tied())
    assert np.array_equal(loaded.decision_function(images), classifier.decision_function(images))
    loaded.partial_fit(*make_blobs(["cow"], 3))
    backbone: Any = loaded._fitted()[0].backbone
    assert backbone.again.weight is backbone.linear.weight


# Writing whole or not at all


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.efcil"
    before = write(path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space left"):
        state.write(path, "classifier", {"other": torch.ones(3)}, {})
    with pytest.raises(OSError, match="No space left"):
        state.write(tmp_path / "new.efcil", "classifier", TENSORS, META)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.efcil"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write(tmp_path / "a.efcil")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        state.write_text(tmp_path / "a.efcil", "half")
    assert os.listdir(tmp_path) == ["a.efcil"] and (tmp_path / "a.efcil").read_bytes() == before


def test_a_successful_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    for text in ("one", "two, ünï"):
        state.write_text(tmp_path / "a.txt", text)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two, ünï" and os.listdir(tmp_path) == ["a.txt"]
