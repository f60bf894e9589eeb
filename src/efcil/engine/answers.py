"""What a classifier says of images: how likely each class is, and whether an image is like any of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UNKNOWN = "unknown"  # the answer for an image that is unlike every class
UNUSUAL = 0.05  # an image less usual for its class than this share of the images that were taught is unknown


@dataclass(frozen=True)
class Answers:
    """What a classifier says of N images."""

    probabilities: npt.NDArray[np.float32]  # (N, m), columns in the order of classes_
    familiarity: npt.NDArray[np.float32] | None  # (N,) how usual each is for the class it is taken for; None: no idea

    @property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """Which images are unlike every class, (N,)."""
        if self.familiarity is None:
            return np.zeros(len(self.probabilities), dtype=np.bool_)
        return self.familiarity < UNUSUAL

    def rounded_familiarity(self, place: int) -> float | None:
        """For one image, as it is printed."""
        return None if self.familiarity is None else round(float(self.familiarity[place]), 4)
