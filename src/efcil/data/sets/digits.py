"""The scikit-learn digits: 1,797 real images of 8×8 pixels, part of the scikit-learn package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from efcil.data.dataset import DataSet, every_fifth
from efcil.data.images import image_set
from efcil.errors import UserError


def load(root: Path | None, size: int | None) -> DataSet:
    """All digits; every fifth image of a class is a test image."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise UserError("The digits come with scikit-learn; run: pip install 'efcil[baselines]'") from None
    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8), grey levels 0-16
    names = [str(digit) for digit in range(10)]
    return every_fifth(image_set(pixels, size), bunch.target, names)
