"""Plain fine-tuning: cross-entropy on the newest classes, nothing against forgetting (lower bound)."""

from __future__ import annotations

from efcil.engine.method import Method


class FineTune(Method):
    name = "finetune"
    year = 1989
    idea = "train on the new classes only; shows how much is forgotten"
