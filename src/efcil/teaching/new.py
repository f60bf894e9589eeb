"""A new model for a person's own photos; docs/photos-measured.md says what was measured and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from efcil.bench.scenarios import parse_change
from efcil.classifier import IncrementalClassifier
from efcil.config import merge
from efcil.errors import UserError

METHOD = "lda"
BACKBONE = "efficientnet-lite0"
TUNED: dict[str, Any] = {  # the network learns in the first lesson, within steps that a CPU can pay, and stays so
    "method": METHOD,
    "backbone_training": "tuned",
    "first": {"rotation": False, "steps": 20, "lr": 1e-3, "backbone_lr": 1e-4, "milestones": []},
}


def new_classifier(
    method: str | None = None, backbone: str | None = None, tune: bool = False, changes: Sequence[str] = ()
) -> IncrementalClassifier:
    """A classifier that has learnt nothing yet: LDA on a pretrained network that is frozen, or tuned at first."""
    if tune and method not in (None, TUNED["method"]):
        raise UserError(f"--tune means the method {TUNED['method']}; leave --method out, or --tune.")
    settings: dict[str, Any] = {"method": method or METHOD, "backbone": backbone or BACKBONE}
    if tune:
        settings |= TUNED
    for change in changes:
        words = parse_change(change)
        if list(words) != ["classifier"]:
            raise UserError(f"--set {change} is for benchmarks; a model has no such setting.")
        settings = merge(settings, words["classifier"])
    return IncrementalClassifier(**settings)
