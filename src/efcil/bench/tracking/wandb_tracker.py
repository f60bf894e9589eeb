"""Weights & Biases: a run of the project that WANDB_PROJECT names, or else efcil; offline it needs no account."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping

import wandb

from efcil.bench.tracking import About, known_as, remember
from efcil.errors import UserError


class WandbTracker:
    def __init__(self, about: About) -> None:
        if (
            not os.environ.get("WANDB_MODE") and not wandb.api.api_key
        ):  # it would stop and ask in the middle of a campaign
            raise UserError("wandb does not know who you are: run `wandb login`, or set WANDB_MODE=offline.")
        identity = known_as(about, "wandb")
        self.new = identity is None
        if identity is None:
            identity = uuid.uuid4().hex[:12]
            remember(about, "wandb", identity)
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "efcil",
                name=about.name,
                id=identity,
                resume="allow",
                group=about.preset,
                job_type=about.method,
                config={"preset": about.preset, "method": about.method, "seed": about.seed, **about.settings},
                dir=str(about.folder),
                settings=wandb.Settings(silent=True, console="off"),  # the terminal has a progress bar
            )
        except wandb.Error as error:
            raise UserError(f"wandb cannot begin a run: {' '.join(str(error).split())}") from None
        self.run.define_metric("loss/*", step_metric="epoch")
        self.run.define_metric("metrics/*", step_metric="step")

    def losses(self, task: int, epoch: int, losses: Mapping[str, float]) -> None:
        self.run.log({"epoch": epoch, **{f"loss/task{task}/{name}": value for name, value in losses.items()}})

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log({"step": step, **{f"metrics/{name}": value for name, value in numbers.items()}})

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


def open_tracker(about: About) -> WandbTracker:
    return WandbTracker(about)
