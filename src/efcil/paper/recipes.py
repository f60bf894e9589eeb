"""Training settings that the paper gives to several methods."""

from __future__ import annotations

from typing import Any

COMPARED: dict[str, Any] = {"incremental": {"lr": 1e-3, "backbone_lr": None, "milestones": [0.45, 0.9]}}
"""How the paper trains EWC, LwF and PASS in later tasks (appendix D.2); their relatives here are trained alike."""
