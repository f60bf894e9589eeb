"""A taught classifier as one file that runs without this package: ONNX for every runtime, torch.export for PyTorch."""

from __future__ import annotations

from efcil.export.files import Exported, export_classifier

__all__ = ["Exported", "export_classifier"]
