"""Add new classes to an image classifier over time, without keeping old images."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from efcil.bench.metrics import summarize
    from efcil.classifier import IncrementalClassifier, load
    from efcil.methods import available_methods
    from efcil.paper.efm import empirical_feature_matrix

__version__ = "0.1.0"
__all__ = ["IncrementalClassifier", "available_methods", "empirical_feature_matrix", "load", "summarize"]

_HOMES = {
    "IncrementalClassifier": "efcil.classifier",
    "load": "efcil.classifier",
    "available_methods": "efcil.methods",
    "empirical_feature_matrix": "efcil.paper.efm",
    "summarize": "efcil.bench.metrics",
}


def __getattr__(name: str) -> Any:
    """Import torch only when something that needs it is asked for, so that `efcil --help` answers at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'efcil' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
