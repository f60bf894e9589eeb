"""The incremental model M_t(x) = softmax(W_t f(x; θ_t)) with a classifier that grows (Eqs. 1-2)."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.backbones.anchored import Anchored, Shows
from efcil.backbones.layered import layered
from efcil.engine.computing import autocast
from efcil.engine.device import kept_randomness
from efcil.engine.shards import features_of
from efcil.errors import UserError
from efcil.rng import uniform


class IncrementalModel(nn.Module):
    """A backbone and one bias-free linear head per task; W_t is the heads one under the other (m, n)."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = int(backbone.feature_dim)  # type: ignore[arg-type]
        self.heads = nn.ParameterList()
        self.rotation_head: nn.Linear | None = None  # only while a first task is trained
        self.frozen_batchnorm = False
        self.frozen_backbone = False
        self.precision = "fp32"  # of what is computed within the backbone

    def features(self, x: Tensor) -> Tensor:
        """f(x; θ_t), (B, n)."""
        with autocast(self.precision, x.device):
            features = features_of(self.backbone, x)
        return features if self.precision == "fp32" else features.float()

    def logits(self, features: Tensor) -> Tensor:
        """W_t f over all classes seen, (B, m)."""
        return features @ self.weight.T

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.features(x))

    @property
    def weight(self) -> Tensor:
        """W_t, one row per class seen (m, n)."""
        return torch.cat(list(self.heads))

    @property
    def newest(self) -> nn.Parameter:
        """W_{t−1:t}, the head of the latest task."""
        return cast(nn.Parameter, self.heads[len(self.heads) - 1])

    @torch.no_grad()
    def set_weight(self, weight: Tensor) -> None:
        """Write a trained W_t back into the heads."""
        for head, rows in zip(self.heads, weight.split([len(head) for head in self.heads]), strict=True):
            head.copy_(rows)

    def grow(self, classes: int, rng: torch.Generator | None = None) -> None:
        """Add a head for new classes, with the default initialisation of a linear layer."""
        head = uniform(classes, self.feature_dim, rng)
        self.heads.append(nn.Parameter(head.to(next(self.backbone.parameters()).device)))

    def add_anchor(self, shows: Shows) -> None:
        """Keep the network as it is now beside the one that goes on learning; no head looks at the copy."""
        own, self.backbone = self.feature_dim, Anchored(self.backbone, shows)
        self.feature_dim = self.backbone.feature_dim
        self.heads = nn.ParameterList(F.pad(head, (self.feature_dim - own, 0)).detach() for head in self.heads)

    @property
    def learner(self) -> IncrementalModel:
        """The network that learns: without its anchor, and without heads, if it has one."""
        if not isinstance(self.backbone, Anchored):
            return self
        alone = IncrementalModel(self.backbone.learning)
        alone.precision = self.precision
        return alone

    def remove_class(self, column: int) -> int:
        """Take the row of a class out of its head, and the head away with its last row; returns the head's place."""
        for place, head in enumerate(self.heads):
            if column < len(head):
                rows = torch.cat([head[:column], head[column + 1 :]]).detach()
                heads = list(self.heads)
                heads[place : place + 1] = [nn.Parameter(rows)] if len(rows) else []
                self.heads = nn.ParameterList(heads)
                return place
            column -= len(head)
        raise IndexError(column)

    def add_rotation_head(self, classes: int, rng: torch.Generator) -> None:
        """A throw-away head (with bias) for the three rotations of each class."""
        self.rotation_head = nn.Linear(self.feature_dim, 3 * classes, device=self.newest.device)
        initialise(self.rotation_head, rng)

    def freeze_batchnorm(self) -> None:
        """From now on statistics and affine parameters of BatchNorm stay as they are, in training too."""
        self.frozen_batchnorm = True
        for module in self._batchnorms():
            module.eval()
            module.requires_grad_(False)

    def freeze_backbone(self) -> None:
        """From now on the whole backbone stays as it is: weights, statistics of BatchNorm, and no dropout."""
        self.frozen_backbone = True
        self.backbone.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> IncrementalModel:
        super().train(mode)
        if self.frozen_backbone:
            self.backbone.eval()
        if self.frozen_batchnorm:
            for module in self._batchnorms():
                module.eval()
        return self

    def _batchnorms(self) -> list[nn.Module]:
        return [m for m in self.backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


@torch.no_grad()
def initialise(layer: nn.Linear | nn.Conv2d, rng: torch.Generator) -> None:
    """The framework's default for weight and bias, U(−1/√fan_in, 1/√fan_in), from these random numbers."""
    bound = 1 / math.sqrt(layer.weight[0].numel())
    for parameter in layer.parameters():
        parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=rng))


def placed(backbone: nn.Module, device: torch.device, precision: str) -> IncrementalModel:
    """A model with this backbone and no class yet, on the device and in the layout that convolutions are fastest in."""
    model = IncrementalModel(backbone).to(device)
    model.precision = precision
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def trained_weights(model: IncrementalModel) -> list[nn.Parameter]:
    """The parameters of the backbone that every task trains: all but those of BatchNorm."""
    norms = [m for m in model.backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    frozen = {id(parameter) for norm in norms for parameter in norm.parameters()}
    return [p for p in model.backbone.parameters() if p.requires_grad and id(p) not in frozen]


# Backbones that users bring


def checked_backbone(backbone: Any) -> nn.Module:
    """The backbone, when it is a module that says how long its features are and has something to learn."""
    if not isinstance(backbone, nn.Module):
        hint = "; make one of the class by calling it" if isinstance(backbone, type) else ""
        raise UserError(f"backbone must be a name or an nn.Module, not {backbone!r:.60}{hint}.")
    length = getattr(backbone, "feature_dim", None)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UserError(
            "a backbone of your own needs the attribute feature_dim, the length of its feature vectors as a whole "
            f"number of at least 1, not {length!r:.40}."
        )
    parameters = list(backbone.parameters())
    if not parameters:
        raise UserError(f"the backbone {type(backbone).__name__} has no parameters, so there is nothing to learn.")
    if any(nn.parameter.is_lazy(parameter) for parameter in parameters):
        raise UserError(f"the backbone {type(backbone).__name__} has lazy layers; show it one batch of images first.")
    if not all(isinstance(value, Tensor) for value in backbone.state_dict().values()):
        raise UserError(f"the backbone {type(backbone).__name__} has a state that is no tensor and cannot be saved.")
    return backbone


def tried_copy(backbone: nn.Module, size: int, device: torch.device) -> nn.Module:
    """A copy of the user's own backbone, which takes images of this side."""
    own = copy.deepcopy(backbone).to(device)
    check_features(own, size)
    return own


@torch.no_grad()
def check_features(backbone: nn.Module, size: int) -> None:
    """Show a copy of the backbone two black images of this side, and say what is wrong with what comes out."""
    name, given = type(backbone).__name__, (2, 3, size, size)
    expected = (2, int(backbone.feature_dim))  # type: ignore[arg-type]
    tried, device = copy.deepcopy(backbone), next(backbone.parameters()).device
    for training in (False, True):  # some networks answer in another form while they are trained
        tried.train(training)
        try:
            with kept_randomness(device):
                features = tried(torch.zeros(given, device=device))
        except Exception as error:  # whatever a user's module raises
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"the backbone {name} fails on images of the shape {given} ({said:.150}); "
                "mend it, or set image_size to the side that it wants."
            ) from None
        wanted = f"images of the shape {given}, while feature_dim asks for a tensor {expected}"
        if not isinstance(features, Tensor):
            raise UserError(
                f"the backbone {name} gives {type(features).__name__} for {wanted}; return the features alone."
            )
        shape = tuple(features.shape)
        if shape != expected:
            if len(shape) != 2:
                hint = "flatten or pool its output"
            else:
                hint = "correct feature_dim, or take away a classifier that is still at its end"
            raise UserError(f"the backbone {name} gives a tensor {shape} for {wanted}; {hint}.")
        if features.dtype != torch.float32:
            raise UserError(f"the backbone {name} gives features of {features.dtype}; make them torch.float32.")
    if layered(tried):
        shapes = [tuple(maps.shape) for maps in tried.layers(torch.zeros(given, device=device))]
        channels = tuple(getattr(tried, "channels", ()))
        if any(len(shape) != 4 for shape in shapes) or channels != tuple(shape[1] for shape in shapes):
            raise UserError(
                f"the backbone {name} has layers that give tensors {shapes}, while its channels are {channels}; "
                "let layers give maps (B, c, h, w), and set channels to the c of each."
            )
