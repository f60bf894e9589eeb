"""How much a method keeps between tasks besides the network, from the shapes that it declares."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from efcil.engine.method import words_and_type
from efcil.errors import unknown

BYTES = {"float16": 2, "float32": 4, "float64": 8, "int64": 8}
PAPER = {
    **{"n": 512, "P": 11_159_232},  # features and convolution weights of the paper's ResNet-18
    **{"r": 512},  # rows of the thin factors of a class: one fewer than its images, and n at most
    **{"G": 8_423_939, "B": 646},  # parameters and BatchNorm statistics of the generator for 32 pixels
}
ANCHORED = {"features": 2 * 512, "layers": 2 * 512 + 4 * (128 + 256)}  # of a ResNet-18 and its anchor


def sizes_and_type(shape: str, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], str]:
    """``"m n float64"`` as the numbers m and n and the type."""
    words, dtype = words_and_type(shape)
    for word in words:
        if word not in sizes and not word.isdigit():
            raise unknown(f"size in the shape {shape!r}", word, sizes)
    return tuple(int(word) if word.isdigit() else sizes[word] for word in words), dtype


def footprint(shapes: Mapping[str, str], options: Any) -> tuple[int, int]:
    """Bytes kept for every class (at most), and once whatever the number of classes, at the paper's size."""
    sizes = {**vars(options), **PAPER, "m": 1}
    total = {True: 0, False: 0}
    if sizes.get("anchor") in ANCHORED:  # a copy of the network, whose features stand beside those of the network
        sizes["n"] = ANCHORED[sizes["anchor"]]
        total[False] = PAPER["P"] * BYTES["float32"]
    for shape in shapes.values():
        numbers, dtype = sizes_and_type(shape, sizes)
        total[not {"m", "r"}.isdisjoint(shape.split())] += prod(numbers) * BYTES[dtype]
    return total[True], total[False]
