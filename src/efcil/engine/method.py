"""A method is a set of hooks; the default of every hook is plain fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import ClassifierConfig, Training
from efcil.engine.context import Batch, Context, View
from efcil.engine.model import IncrementalModel
from efcil.engine.rotation import rotated, turns_drawn
from efcil.errors import UserError

Terms = dict[str, Tensor]
State = dict[str, Tensor]


class Method:
    """Plain fine-tuning, and the hooks that other methods change."""

    name: ClassVar[str]
    year: ClassVar[int]
    idea: ClassVar[str]
    """One line for `efcil methods`."""
    stores: ClassVar[str] = "nothing"
    """What is kept between tasks besides the model."""
    shapes: ClassVar[dict[str, str]] = {}
    """The shape of each tensor of state(), in the words of footprint.py or the names of options, and its type."""
    earlier_shapes: ClassVar[dict[str, str | None]] = {}
    """What differs in files of format version 1, which load_state takes too; None: a tensor that they lack."""
    exemplar_free: ClassVar[bool] = True
    shares_first_task: ClassVar[bool] = True
    """The epochs of the first task are those of fine-tuning, so that runs can share them (appendix D.2)."""
    freezes_batchnorm: ClassVar[bool] = True
    """BatchNorm stays as the first task left it, unless the setting batchnorm says otherwise."""
    freezes_backbone: ClassVar[bool] = False
    """Only the first task trains the network, and not even that if it is pretrained; all else is in after_task."""
    refines: ClassVar[bool] = False
    """Whether a class that was learnt before may be taught again, from more images."""
    validates: ClassVar[bool] = False
    """Whether after_task leaves in ``validation`` how each image of the task would be scored had it not been taught."""
    validation: tuple[Tensor, Tensor] | None = None
    """Scores (N, m) and columns (N,) of the images of the last task, each as if it had not been taught; not stored."""
    shown_per_image: int = 1
    """Images that a step of a later task shows for each of its own: rotations, mixes or generated ones beside it."""
    generated_before: int = 0
    """Images that are generated and shown to the network before the first epoch of a later task."""
    recipe: ClassVar[dict[str, Any]] = {}
    """Settings of ClassifierConfig that belong to this method, such as {"incremental": {"lr": 1e-3}}."""

    @dataclass(frozen=True)
    class Options:
        """Settings of the method's own."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    def needs_past(self) -> bool:
        """Whether earlier images must be given (upper bounds and oracles only)."""
        return not self.exemplar_free

    def training(self, ctx: Context) -> Training:
        """The optimiser settings of this task."""
        return ctx.config.first if ctx.first else ctx.config.incremental

    def idle(self, frozen: bool, first: bool) -> bool:
        """Whether a task has no epochs, given whether the backbone is frozen from the beginning."""
        return self.freezes_backbone and (frozen or not first)

    def work(self, config: ClassifierConfig, images: list[int]) -> list[int]:
        """How many images pass through the epochs of each task, given how many each has; it tells the time left."""
        first = images[0] * config.first.epochs * max(1, config.first.turns)
        later = 0 if self.idle(frozen=False, first=False) else config.incremental.epochs * self.shown_per_image
        return [first, *(count * later for count in images[1:])]

    def passes_after(self, ctx: Context) -> int:
        """How often all images of a task pass through a network besides its epochs; it tells the time needed."""
        return 1

    def seconds_after(self, ctx: Context) -> float:
        """How long all else takes that comes after the epochs, tried on this machine; no part of the lesson changes."""
        return 0.0

    def before_task(self, ctx: Context) -> None:
        """Called once the head has grown, before the first epoch; when a task is resumed, called again."""

    def prepare(self, ctx: Context) -> bool:
        """Long work before the first epoch, such as training a generator; returns whether there was any.

        What it makes belongs into progress(): a task that is resumed has it from there and does not prepare again.
        Where it calls ctx.keep(), it may be cut off: it is then called anew and goes on from its progress().
        It is not called in a first task that is shared, whose checkpoint holds nothing of the method.
        """
        return False

    def parameters(self, ctx: Context) -> list[dict[str, Any]]:
        """Groups of what is trained; an empty list means no epoch is run. Default: backbone and newest head."""
        if self.idle(ctx.model.frozen_backbone, ctx.first):
            return []
        return parameter_groups(ctx, self.training(ctx), [ctx.model.newest])

    def plan(self, ctx: Context, steps: int) -> list[tuple[View, Tensor]]:
        """Further images of the task for each step of an epoch, with the columns they stand for; read ahead too.

        They come as batch.extra. An empty list means that no step needs any.
        """
        return []

    def augment(self, ctx: Context, batch: Batch) -> Batch:
        """Change or extend a mini-batch."""
        return batch

    def first_loss(self, ctx: Context, batch: Batch) -> Terms:
        """The loss of the first task, the same for every method: cross-entropy with self-rotation (appendix D.2)."""
        x, y = turned(ctx, batch)
        features = ctx.model.features(x)
        logits = ctx.model.logits(features)
        if ctx.model.rotation_head is not None:
            logits = torch.cat([logits, ctx.model.rotation_head(features)], dim=1)  # (rB, 4C)
        return {"ce": F.cross_entropy(logits, y, label_smoothing=ctx.config.first.label_smoothing)}

    def loss(self, ctx: Context, batch: Batch) -> Terms:
        """Named terms of the loss of a later task; the trainer adds them up."""
        return {"ce": newest_cross_entropy(ctx, ctx.model.features(batch.x), batch.y)}

    def after_step(self, ctx: Context) -> None:
        """Called after every optimiser step."""

    def after_epoch(self, ctx: Context) -> None:
        """Called after every epoch."""

    def after_task(self, ctx: Context) -> None:
        """Called once the epochs are done: statistics, drift, classifiers."""

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """One score per class seen (N, m); the greatest wins."""
        return model.logits(features)

    def probabilities(self, model: IncrementalModel, features: Tensor) -> Tensor:
        """How likely each class is (N, m), rows summing to one."""
        return torch.softmax(self.scores(model, features), dim=1)

    def familiarity(self, model: IncrementalModel, features: Tensor) -> Tensor | None:
        """How usual each image is for the class it is taken for, as a share from 0 to 1 (N,); None: cannot tell."""
        return None

    def class_means(self) -> tuple[Tensor, bool] | None:
        """Where the classes lie among the features (m, n), and whether in augmented views; None: not kept so."""
        return None

    def drawn(self, per_class: int, rng: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """Features as images of the classes have them, from what is kept, and their columns; None: too little is."""
        return None

    def remove_class(self, column: int) -> None:
        """Forget everything about a class: its row goes from every tensor that has one row per class."""
        if any("m" in shape.split()[1:] for shape in self.shapes.values()):
            raise UserError(f"{self.name} cannot forget a single class; teach a new model without it.")
        kept = {
            name: torch.cat([tensor[:column], tensor[column + 1 :]])
            for name, tensor in self.state().items()
            if self.shapes.get(name, "").split()[:1] == ["m"]
        }
        self.load_state({**self.state(), **kept})

    def merge_classes(self, into: int, column: int) -> None:
        """Make one class of two, as if all their images had been taught as the first."""
        raise UserError(f"{self.name} cannot merge classes; teach a new model, or use lda, which can.")

    def kept_shapes(self) -> dict[str, str]:
        """The shapes of state() with these options; some options keep more than every instance does."""
        return dict(self.shapes)

    def state(self) -> State:
        """What is kept between tasks besides the model, as named tensors: the attributes that shapes names."""
        return {name: getattr(self, name) for name in self.shapes}

    def load_state(self, state: State) -> None:
        """The inverse of state()."""
        for name, tensor in state.items():
            setattr(self, name, tensor)

    def progress(self) -> State:
        """What prepare() makes and what changes while a task is being learnt, for a run that is resumed within it."""
        return {}

    def load_progress(self, state: State) -> None:
        """The inverse of progress()."""


TYPES = ("float16", "float32", "float64", "int64")


def words_and_type(shape: str) -> tuple[list[str], str]:
    """``"m n float64"`` as the words m and n and the type, which is float32 unless it is named."""
    words = shape.split()
    dtype = words.pop() if words and words[-1] in TYPES else "float32"
    return words, dtype


def parameter_groups(ctx: Context, training: Training, heads: list[nn.Parameter]) -> list[dict[str, Any]]:
    """The backbone and these heads, each with its learning rate."""
    backbone = [parameter for parameter in ctx.model.backbone.parameters() if parameter.requires_grad]
    if ctx.model.rotation_head is not None:
        heads = [*heads, *ctx.model.rotation_head.parameters()]
    backbone_lr = training.lr if training.backbone_lr is None else training.backbone_lr
    return [{"params": backbone, "lr": backbone_lr}, {"params": heads, "lr": training.lr}]


def turned(ctx: Context, batch: Batch) -> tuple[Tensor, Tensor]:
    """Images and labels as the first task shows them: in as many rotations as the settings say."""
    turns = ctx.config.first.turns
    if not turns:
        return batch.x, batch.y
    return rotated(batch.x, batch.y, ctx.classes, turns_drawn(len(batch.y), turns, ctx.rng))


def newest_cross_entropy(ctx: Context, features: Tensor, columns: Tensor) -> Tensor:
    """Cross-entropy restricted to the classes of the latest task, L^ce(f(X); W_{t−1:t}) (Eq. 12)."""
    return F.cross_entropy(features @ ctx.model.newest.T, columns - ctx.known)
