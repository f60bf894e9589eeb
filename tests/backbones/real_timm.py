"""timm as it is installed, also beside a torch without the compiled operators of torchvision."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from conftest import missing


def real_timm() -> Any:
    """The real package; skips where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's imports
        try:
            import timm
        except ModuleNotFoundError:
            missing("install efcil[timm] to test with the real package")
        except RuntimeError as error:
            assert "torchvision::nms" in str(error)
            # A torchvision that was built for another torch: declare the operators it misses, which no test calls.
            # Only after the import has failed, because a good install would abort the process.
            for name in ("nms", "qnms"):
                torch.library.define(
                    f"torchvision::{name}", "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor"
                )
            for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
                del sys.modules[name]
            import timm
        import timm.data
    return timm
