"""What an exported file says of itself, so that its labels and its input are understood without this package."""

from __future__ import annotations

import json
from typing import Any

from efcil import __version__
from efcil.classifier import IncrementalClassifier
from efcil.engine.answers import UNUSUAL


def described(classifier: IncrementalClassifier, outputs: list[str]) -> dict[str, Any]:
    """For the metadata of a file; classes are in the order of the columns of probabilities."""
    _, preprocessing = classifier._fitted()
    about = {
        "classes": classifier.classes_.tolist(),
        "image_size": preprocessing.stored,
        "interpolation": preprocessing.interpolation,
        "crop": preprocessing.size,  # the rest is done inside and said for those who wonder
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "method": classifier.config.method,
        "backbone": classifier.config.backbone,
        "efcil_version": __version__,
    }
    return {**about, "unknown_threshold": UNUSUAL} if "unknown" in outputs else about


def explained(about: dict[str, Any]) -> dict[str, str]:
    """Input and outputs in words, by name."""
    side = about["image_size"]
    return {
        "images": f"RGB pixels from 0 to 255, (batch, {side}, {side}, 3): of an upright photo the shorter side resized "
        f"to {side} pixels ({about['interpolation']}, antialiased), the rest cropped from the centre",
        "probabilities": "how likely each class is, (batch, classes), columns in the order of the metadata classes",
        "familiarity": "the share of photos of the class that would be less like it than this one, 0 to 1, (batch,)",
        "unknown": "whether the image is unlike every class: its familiarity is below the metadata unknown_threshold",
    }


def as_words(about: dict[str, Any]) -> dict[str, str]:
    """Metadata whose values must be text: JSON, but for what is text already."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in about.items()}
