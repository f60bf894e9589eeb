"""From a classifier to a file that answers as it does: traced, written out, run, compared, and only then kept."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from efcil.classifier import IncrementalClassifier
from efcil.data.images import ImageSet
from efcil.engine.state import write_bytes
from efcil.errors import UserError, unknown
from efcil.export.check import MADE_UP, SAME, TOLERANCE, Answer, largest_difference, same_answers
from efcil.export.description import described
from efcil.export.eight_bits import quantised
from efcil.export.onnx_file import needed, onnx_contents
from efcil.export.program import INPUT, quietly, traced
from efcil.export.torch_file import torch_bytes

FEWEST = 20  # photos for eight bits: half to measure on, half to compare
Tries = Iterator[tuple[bytes, Answer]]  # contents of a file and what each says; the first that answers alike is written


@dataclass(frozen=True)
class Exported:
    """What was written, and how near its answers are to those of the model."""

    file: str
    format: str
    bytes: int
    outputs: list[str]
    about: dict[str, Any]
    largest_difference: float
    made_up_images: int
    photos: int
    same_answers: float | None = None
    """In eight bits: the share of photos, other than those that ranges were measured on, with the model's answer."""


def export_classifier(
    classifier: IncrementalClassifier,
    path: str | Path,
    format: str = "onnx",
    *,
    photos: ImageSet | None = None,
    int8: bool = False,
) -> Exported:
    """Write a classifier as one ``onnx`` or ``torch`` file, once it has been seen to answer alike.

    It is compared on made-up images and on these photos. Where anything fails, nothing is written. With ``int8`` the
    network of an ONNX file computes in eight bits, whose ranges are measured on every second photo and which answers as
    the model does for nearly all of the others.
    """
    path = Path(path)
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file such as {path / f'model{SUFFIXES[format]}'}.")
    if int8 and format != "onnx":
        raise UserError("Eight bits are for the format onnx; leave int8 out.")
    if int8 and (photos is None or len(photos) < FEWEST):
        raise UserError(
            f"Eight bits need at least {FEWEST} photos to be measured on, taught or not; add --check PHOTOS."
        )
    if format == "onnx":
        needed()  # before anything takes long
    program = traced(classifier)
    outputs = output_names(program)
    about = described(classifier, outputs)
    content, difference = alike(FORMATS[format](program, outputs, about), classifier, photos)
    seen, same = 0 if photos is None else len(photos), None
    if int8:
        assert photos is not None
        content, same, difference = in_eight_bits(content, classifier, photos, about)
        seen, about = seen // 2, {**about, "weights": "int8"}
    try:
        write_bytes(path, content)
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be written ({error}); choose another place.") from None
    made_up = 0 if int8 else MADE_UP
    return Exported(str(path), format, len(content), outputs, about, difference, made_up, seen, same)


def in_eight_bits(
    content: bytes, classifier: IncrementalClassifier, photos: ImageSet, about: dict[str, Any]
) -> tuple[bytes, float, float]:
    """The file in eight bits, the share of answers that stay, and the largest difference; too few are refused."""
    pixels = photos.batch(torch.arange(len(photos))).permute(0, 2, 3, 1).contiguous().numpy()
    content = quantised(content, pixels[::2], about)
    same, difference = same_answers(classifier, onnx_answer(content), pixels[1::2])
    if same < SAME:
        raise UserError(
            f"Nothing was written: in eight bits only {round(same * (len(pixels) // 2))} of {len(pixels) // 2} photos "
            "get the model's answer; give more photos of the classes that were taught, or leave --int8 out."
        )
    return content, same, difference


def alike(tries: Tries, classifier: IncrementalClassifier, photos: ImageSet | None) -> tuple[bytes, float]:
    """The first content that answers as the model does, and the largest difference."""
    difference = math.inf
    for content, answer in tries:
        difference = largest_difference(classifier, answer, photos)
        if difference <= TOLERANCE:
            return content, difference
    raise UserError(f"Nothing was written: the file would answer otherwise than the model, by up to {difference:.2g}.")


def output_names(program: torch.export.ExportedProgram) -> list[str]:
    """The keys of what the program returns, in its order."""
    spec = program.call_spec.out_spec
    return list(spec.context)


def as_onnx(program: torch.export.ExportedProgram, outputs: list[str], about: dict[str, Any]) -> Tries:
    for content in onnx_contents(program, outputs, about):
        yield content, onnx_answer(content)


def onnx_answer(content: bytes) -> Answer:
    """What onnxruntime says of pixels with this file."""
    _, onnxruntime = needed()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; they are raised, too
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda pixels: dict(zip(names, session.run(names, {INPUT: pixels}), strict=True))


def as_torch(program: torch.export.ExportedProgram, outputs: list[str], about: dict[str, Any]) -> Tries:
    content = torch_bytes(program, about)
    with quietly():
        module = torch.export.load(io.BytesIO(content)).module()  # what is compared is what is read back
    yield content, lambda pixels: {name: told.numpy() for name, told in module(torch.from_numpy(pixels)).items()}


FORMATS: dict[str, Callable[..., Tries]] = {"onnx": as_onnx, "torch": as_torch}
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
