"""ONE loop over one task. It knows no method, and every method goes through it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efcil.config import Training
from efcil.engine import distributed, memory
from efcil.engine.checkpoint import PREPARING, Checkpoint
from efcil.engine.computing import compiled, deterministic
from efcil.engine.context import Batch, Context, View, unkept
from efcil.engine.device import kept_randomness, sent
from efcil.engine.losses import EpochLosses
from efcil.engine.method import Method
from efcil.engine.plan import CHECKED, shown
from efcil.engine.progress import Step
from efcil.engine.repeated import Repeated


class TrainingError(RuntimeError):
    """Training cannot go on; the message says where it stopped and what to try."""


def learn_task(ctx: Context, method: Method, checkpoint: Path | None = None) -> None:
    """Train the model on one task and let the method finish; with a checkpoint file, resume within the task."""
    # Reseeding for dropout and the like is nobody else's business.
    how = ctx.config
    with (
        distributed.together(),
        kept_randomness(ctx.device),
        memory.kept(),
        deterministic(how.deterministic),
        compiled(ctx.model.learner.backbone, how.compile),
    ):
        frozen = method.freezes_batchnorm if ctx.config.batchnorm is None else ctx.config.batchnorm == "frozen"
        if frozen and not ctx.first:
            ctx.model.freeze_batchnorm()
        ctx.watcher.stage(ctx.task, "before the epochs")
        ctx.reseed("before")
        with ctx.phase("preparation"):
            method.before_task(ctx)
        training = method.training(ctx)
        if training.turns:
            ctx.model.add_rotation_head(ctx.classes, ctx.rng)
        groups = method.parameters(ctx)
        if groups:
            train(ctx, method, training, groups, checkpoint)
        ctx.model.rotation_head = None
        check_network(ctx)
        ctx.watcher.stage(ctx.task, "after the epochs")
        ctx.reseed("after")
        try:
            with ctx.phase("statistics"):  # of which a method may name parts
                method.after_task(ctx)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # of numbers too large to reckon with
            said = str(error).partition("\n")[0]
            raise diverged(f"{method.name} cannot finish task {ctx.task + 1} ({said.rstrip('.')})") from None
        distributed.align(ctx.model.state_dict().values())
        check_network(ctx)
        if not all(torch.isfinite(tensor).all() for tensor in method.state().values()):
            raise diverged(f"What {method.name} remembers stopped being numbers at the end of task {ctx.task + 1}")


def train(
    ctx: Context, method: Method, training: Training, groups: list[dict[str, Any]], path: Path | None = None
) -> None:
    """What the method prepares and all epochs of one task, or what a checkpoint in this file has left to do."""
    optimizer = build_optimizer(training, groups)
    rates = [group["lr"] for group in groups]
    checkpoint = Checkpoint(path, ctx, method, optimizer)
    done = checkpoint.load()
    if done in (None, PREPARING) and not checkpoint.shared:  # nothing of this method in what others may go on from
        ctx.reseed("prepare")
        ctx.keep = checkpoint.while_preparing
        with ctx.phase("preparation"):
            prepared = method.prepare(ctx)
        ctx.keep, done = unkept, 0
        if prepared:
            checkpoint.write(epochs_done=0)
    with ctx.phase("training"):
        train_epochs(ctx, method, training, optimizer, rates, checkpoint, done or 0)


def train_epochs(
    ctx: Context,
    method: Method,
    training: Training,
    optimizer: torch.optim.Optimizer,
    rates: list[float],
    checkpoint: Checkpoint,
    done: int,
) -> None:
    """The epochs after the first ``done`` ones."""
    compute_loss, scaler = method.first_loss if ctx.first else method.loss, checkpoint.scaler
    shown_each = shown(ctx, method, training)
    ctx.repeated = Repeated(training.views)
    for epoch in range(done, training.epochs):
        ctx.reseed("epoch", ctx.repeated.epoch(epoch))
        ctx.model.train()
        rows = shuffled_batches(len(ctx.images), training.batch_size, ctx.rng)
        losses = EpochLosses(ctx.device, len(rows))
        extras = [] if ctx.first else method.plan(ctx, len(rows))
        views = [ctx.view(group) for group in rows]
        if ctx.repeated.epoch(epoch) != epoch:
            ctx.reseed("again", epoch)
        batches = planned_batches(ctx, views, extras)
        for step, batch in enumerate(batches):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * training.lr_factor(epoch, step / len(rows))
            count = len(batch.y)
            ctx.repeated.step(views[step].seeds, batch.x)
            terms = compute_loss(ctx, method.augment(ctx, batch))
            optimizer.zero_grad()
            scaler.scale(torch.stack(list(terms.values())).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            check_finite(losses.add(terms), ctx.task, epoch)
            method.after_step(ctx)
            ctx.watcher.step(Step(ctx.task, epoch, training.epochs, losses.latest, shown_each * count))
        check_finite(losses.read(), ctx.task, epoch)
        distributed.align(ctx.model.state_dict().values())
        method.after_epoch(ctx)
        checkpoint.after_epoch(epoch + 1, last=epoch + 1 == training.epochs)
        ctx.watcher.epoch(Step(ctx.task, epoch, training.epochs, losses.totals, 0))
    ctx.repeated = Repeated()  # the features that were kept are not needed any more


def build_optimizer(training: Training, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if training.optimizer == "adam":
        return torch.optim.Adam(groups, weight_decay=training.weight_decay)
    return torch.optim.SGD(groups, momentum=training.momentum, weight_decay=training.weight_decay)


def shuffled_batches(count: int, batch_size: int, rng: torch.Generator) -> list[Tensor]:
    """Every row once, in batches; a last batch of a single image joins the one before it, for BatchNorm's sake."""
    batches = list(torch.randperm(count, generator=rng).split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def planned_batches(ctx: Context, own: list[View], extras: list[tuple[View, Tensor]]) -> Iterator[Batch]:
    """The batches of an epoch and what the method planned beside each, all through one queue."""
    rows = [view.rows for view in own]
    labels = ctx.columns[sent(torch.cat(rows), ctx.device)].split([len(group) for group in rows])  # for all at once
    if not extras:
        for y, x in zip(labels, ctx.prepared(ctx.images, own), strict=True):
            yield Batch(x, y)
        return
    pairs = [view for mine, (extra, _) in zip(own, extras, strict=True) for view in (mine, extra)]
    ready = ctx.prepared(ctx.images, pairs)
    beside = [columns for _, columns in extras]
    others = sent(torch.cat(beside), ctx.device).split([len(columns) for columns in beside])
    for y, other, planned in zip(labels, others, beside, strict=True):
        x, further = next(ready), next(ready)
        yield Batch(x, y, Batch(further, other, planned=planned))


def check_finite(steps: Sequence[Mapping[str, float]], task: int, epoch: int) -> None:
    """Stop at the first loss that is not a number, before anything of its epoch is kept."""
    for losses in steps:
        if not all(math.isfinite(value) for value in losses.values()):
            terms = ", ".join(f"{name} = {value:g}" for name, value in losses.items())
            raise diverged(f"The loss stopped being a number in task {task + 1}, epoch {epoch + 1} ({terms})")


@torch.no_grad()
def check_network(ctx: Context) -> None:
    """The last step can spoil the weights without any loss showing it: look at what the network now says."""
    ctx.model.eval()
    if ctx.model.frozen_backbone:  # no step reaches it, and every look through a large network costs seconds
        said = ctx.model.weight
    else:
        (x,) = ctx.views(ctx.images, [torch.arange(min(CHECKED, len(ctx.images)))], augmented=False)
        said = ctx.model(x)
    if not torch.isfinite(said).all():
        raise diverged(f"The network stopped giving numbers at the end of task {ctx.task + 1}")


def diverged(what: str) -> TrainingError:
    return TrainingError(
        f"{what}; nothing of this task was kept. Lower the learning rate (first.lr or incremental.lr) and try again."
    )
