"""Whether an exported file answers as the model does, on made-up images and on photos that are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from efcil.classifier import IncrementalClassifier
from efcil.data.images import ImageSet
from efcil.engine.answers import UNUSUAL

Pixels = npt.NDArray[np.uint8]  # (N, S, S, 3)
Answer = Callable[[Pixels], Mapping[str, npt.NDArray[Any]]]

TOLERANCE = 1e-3  # of a probability or a familiarity; rounding makes differences of about a millionth
AT_A_TIME = 26  # photos
MADE_UP = 8
SAME = 0.95  # the least share of photos that a file in eight bits must answer as the model does


def made_up(side: int, count: int = MADE_UP) -> Pixels:
    """Images of random squares, from one colour all over to noise: no photo is kept to be looked at again."""
    rng = np.random.default_rng(0)
    images = np.empty((count, side, side, 3), dtype=np.uint8)
    for place, squares in enumerate(np.geomspace(1, side, count).round().astype(int)):
        rows = np.arange(side) * squares // side
        images[place] = rng.integers(0, 256, (squares, squares, 3))[rows][:, rows]
    return images


def batches(side: int, photos: ImageSet | None) -> Iterator[Pixels]:
    """Made-up images and then photos, in groups of different sizes, the first of them a single image."""
    images = made_up(side)
    yield from np.split(images, [1])
    if photos is not None:
        for pixels in photos.batches(torch.arange(len(photos)).split(AT_A_TIME)):
            yield pixels.permute(0, 2, 3, 1).contiguous().numpy()


def largest_difference(classifier: IncrementalClassifier, answer: Answer, photos: ImageSet | None) -> float:
    """Between two numbers that the model and the file say of the same image; infinite where they cannot be compared.

    Whether an image is unknown may differ only where its familiarity is as near to the threshold as that.
    """
    largest = 0.0
    for part in batches(classifier._fitted()[1].stored, photos):
        expected, said = classifier.answers(part), answer(part)
        ours = {"probabilities": expected.probabilities}
        if expected.familiarity is not None:
            ours |= {"familiarity": expected.familiarity}
            clear = np.abs(expected.familiarity - UNUSUAL) > TOLERANCE
            if "unknown" not in said or (expected.unknown != said["unknown"])[clear].any():
                return math.inf
        for name, numbers in ours.items():
            if name not in said or numbers.shape != said[name].shape or not np.isfinite(said[name]).all():
                return math.inf
            largest = max(largest, float(np.abs(numbers - said[name]).max()))
    return largest


def same_answers(classifier: IncrementalClassifier, answer: Answer, pixels: Pixels) -> tuple[float, float]:
    """The share of these images for which the most likely class is the model's, and the largest difference."""
    same, largest = 0, 0.0
    for part in np.split(pixels, range(AT_A_TIME, len(pixels), AT_A_TIME)):
        expected, said = classifier.answers(part).probabilities, answer(part)["probabilities"]
        same += int((expected.argmax(1) == said.argmax(1)).sum())
        largest = max(largest, float(np.abs(expected - said).max()))
    return same / len(pixels), largest
