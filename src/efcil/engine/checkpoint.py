"""A task in its middle, in a file: what a run that was cut off goes on from.

It holds the weights, the optimiser and what the method gathers. Random numbers need no saving (see rng.py).
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor

from efcil.engine import distributed, state
from efcil.engine.computing import gradient_scaler
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.errors import UserError

PREPARING = -1  # in the place of epochs done: cut off while the method prepared
DESCRIPTION = {"task": int, "identity": str, "epochs_done": int, "seconds": float}  # what is said beside the tensors


class Checkpoint:
    """The file of one task, and when it was last written; without a path nothing is kept."""

    def __init__(self, path: Path | None, ctx: Context, method: Method, optimizer: torch.optim.Optimizer) -> None:
        self.path, self.ctx, self.method, self.optimizer = path, ctx, method, optimizer
        self.scaler = gradient_scaler(ctx.config.precision, ctx.device)  # of the optimiser's steps
        self.begun = self.written = time.monotonic()
        self.earlier = ctx.phase.seconds  # before what ``seconds`` counts

    @property
    def shared(self) -> bool:
        """Whether another method may go on from the file: then it holds nothing of this one."""
        return self.ctx.first and self.method.shares_first_task

    def after_epoch(self, epochs_done: int, last: bool) -> None:
        """Write the file if it is due: a large network takes longer to write than a small epoch to repeat."""
        if last or self.due:
            self.write(epochs_done)

    def while_preparing(self) -> None:
        """The same for work before the first epoch."""
        if self.due:
            self.write(PREPARING)

    @property
    def due(self) -> bool:
        """Whether it was long ago; also if the clock has gone back, which would otherwise put it off."""
        return not 0 <= time.monotonic() - self.written < self.ctx.config.checkpoint_seconds

    def write(self, epochs_done: int) -> None:
        """Everything that has changed since the task began."""
        if self.path is None or not distributed.is_first():
            return
        moments = {
            f"{index}.{name}": torch.as_tensor(value)
            for index, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
            if value is not None
        }
        tensors = {
            **state.prefixed("model", self.ctx.model.state_dict()),
            **state.prefixed("optimizer", moments),
            **state.prefixed("scaler", {name: torch.tensor(value) for name, value in self.scaler.state_dict().items()}),
            **state.prefixed("method", {} if self.shared else self.method.progress()),
        }
        if any(tensor.is_floating_point() and tensor.isnan().any() for tensor in tensors.values()):
            return  # the last step spoilt the network: nobody can go on from it, but from the file before
        seconds = self.ctx.saved_seconds + max(0.0, time.monotonic() - self.begun)
        phases = {name: spent - self.earlier.get(name, 0.0) for name, spent in self.ctx.phase.seconds.items()}
        meta = {
            "task": self.ctx.task,
            "identity": self.ctx.identity,
            "epochs_done": epochs_done,
            "seconds": seconds,
            "phase_seconds": phases,
        }
        state.write(self.path, "checkpoint", tensors, meta)
        self.written = time.monotonic()

    def load(self) -> int | None:
        """Put back what the file holds; returns the number of epochs done, none if this task has no file yet."""
        if self.path is None:
            return None
        with distributed.copy_of_first(self.path) as path:
            if not path.exists():
                return None
            tensors, meta = state.read(path, "checkpoint", DESCRIPTION)
        if meta["task"] < self.ctx.task:
            return None  # an earlier task left it
        if (meta["task"], meta["identity"]) != (self.ctx.task, self.ctx.identity):
            raise UserError(
                f"{self.path} belongs to another task, with other settings or images; remove it to start anew."
            )
        try:
            self.ctx.model.load_state_dict(state.section("model", tensors))
        except RuntimeError:
            raise UserError(f"{self.path} belongs to another network; remove it to start anew.") from None
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in state.section("optimizer", tensors).items():
            index, key = name.split(".", 1)
            moments.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict({"state": moments, "param_groups": self.optimizer.state_dict()["param_groups"]})
        if self.scaler.is_enabled():
            scale = {name: value.item() for name, value in state.section("scaler", tensors).items()}
            self.scaler.load_state_dict(scale)
        if not self.shared:
            self.method.load_progress(state.section("method", tensors))
        self.ctx.saved_seconds = float(meta["seconds"])
        self.ctx.phase.add(meta.get("phase_seconds", {}))  # older files do not have it
        return int(meta["epochs_done"])
