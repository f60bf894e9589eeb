"""LwF: Learning without Forgetting, distillation of the old classes' outputs on new images."""

from __future__ import annotations

from dataclasses import dataclass

from efcil.parts.distillation import DistillationOptions, Distilling


class LwF(Distilling):
    name = "lwf"
    year = 2016
    idea = "on new images the old classes' softened outputs stay as they were (knowledge distillation)"

    @dataclass(frozen=True)
    class Options(DistillationOptions):
        """Settings of LwF."""
