"""CIFAR-100 as Python pickles (``cifar-100-python``), read without running anything that is in them.

A pickle can call any function it names. Here it may name four things, and even those are replaced by the two
harmless records below, so that numpy itself never sees what the file says.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from efcil.errors import UserError

REMEDY = "get the data again from its authors"


class _DType:
    """Stands for numpy.dtype and remembers its name only."""

    def __init__(self, name: Any = "", *rest: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which single bytes do not have."""


class _Array:
    """Stands for numpy.ndarray and for the function that makes one."""

    def __init__(self, *rest: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes(self) -> npt.NDArray[np.uint8]:
        """The array of bytes that was stored."""
        _, shape, dtype, by_columns, content = self.state
        if by_columns or dtype.name not in ("u1", "uint8") or not isinstance(content, str):
            raise ValueError("not a plain array of bytes")
        return np.frombuffer(bytearray(content, "latin-1"), np.uint8).reshape(shape)


ALLOWED = {
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _Restricted(pickle._Unpickler):
    """The unpickler that is written in Python: the one in C sets aside 16 GB when seven bytes ask for it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise UserError(f"it wants to run {module}.{name}")
        return ALLOWED[module, name]


def read_split(path: Path) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Pixels (N, 3072) and fine labels of ``train`` or ``test``."""
    content = _read(path)
    try:
        pixels, labels = content["data"].bytes(), list(content["fine_labels"])
        if not all(isinstance(label, int) for label in labels):
            raise ValueError("labels that are not whole numbers")
        return pixels, labels
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not hold the arrays of CIFAR-100 ({error}); {REMEDY}.") from None


def read_names(path: Path) -> list[str]:
    """The names of the fine labels in ``meta``."""
    names = _read(path).get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path} does not hold the class names of CIFAR-100; {REMEDY}.")
    return names


def _read(path: Path) -> dict[str, Any]:
    try:
        # From memory: a length that the file claims for a string is then not set aside before it is there.
        content = _Restricted(io.BytesIO(path.read_bytes()), encoding="latin-1").load()
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {REMEDY}.") from None
    except UserError as error:
        raise UserError(f"{path} is not CIFAR-100 and may be harmful ({error}); delete it and {REMEDY}.") from None
    except Exception as error:  # a damaged pickle can raise anything at all
        raise UserError(f"{path} is damaged ({type(error).__name__}); {REMEDY}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold the dictionary of CIFAR-100; {REMEDY}.")
    return content
