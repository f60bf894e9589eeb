"""Add new classes to an image classifier over time, without keeping old images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from efcil.classifier import IncrementalClassifier, load
    from efcil.methods import available_methods

__version__ = "0.1.0"
__all__ = ["IncrementalClassifier", "available_methods", "load"]


def __getattr__(name: str) -> Any:
    """Import torch only when something that needs it is asked for, so that `efcil --help` answers at once."""
    if name in ("IncrementalClassifier", "load"):
        from efcil import classifier

        return getattr(classifier, name)
    if name == "available_methods":
        from efcil.methods import available_methods

        return available_methods
    raise AttributeError(f"module 'efcil' has no attribute {name!r}")
