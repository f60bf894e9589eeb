"""A network whose batch is shared out among processes, as one function of the images and the weights.

Each process shows its rows to the network, and all get the features of the whole batch. Derivatives are those of the
whole batch too: what a process takes the gradient of, for weights or for images, comes out as if it had computed
everything itself. So whatever is made of the features, be it a mean over the images, a norm of the whole batch or a
comparison of each with each, is computed by every process from the same numbers and needs to know nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from efcil.engine import distributed
from efcil.engine.device import kept_randomness


def features_of(network: nn.Module, x: Tensor) -> Tensor:
    """The network's features of all images, (B, n); a batch of fewer images than processes is not worth sharing out."""
    if len(x) < distributed.world() or distributed.world() == 1:
        return network(x)  # type: ignore[no-any-return]
    weights = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    with ExitStack() as around:
        if network.training:
            around.enter_context(own_randomness(x.device))
        if any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in network.modules()):
            around.enter_context(WholeBatchNorm(len(x)))
        own = OwnRows.apply(x)  # type: ignore[no-untyped-call]
        if weights and torch.is_grad_enabled():
            shared = dict(zip(weights, SharedWeights.apply(*weights.values()), strict=True))  # type: ignore[no-untyped-call]
            features = functional_call(network, shared, (own,))
        else:
            features = network(own)
    return AllRows.apply(features, len(x))  # type: ignore[no-untyped-call, no-any-return]


class OwnRows(Function):
    """The share of this process of the rows; the gradient is that of all rows."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        start, end = distributed.share(len(x))
        ctx.total = len(x)  # type: ignore[attr-defined]
        return x[start:end]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return distributed.gathered(gradient, ctx.total)


class AllRows(Function):
    """The rows of all processes. All of them go on with the same, so each takes the gradient of its own rows."""

    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, total: int) -> Tensor:
        ctx.rows = distributed.share(total)  # type: ignore[attr-defined]
        return distributed.gathered(own, total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        start, end = ctx.rows
        return gradient[start:end], None


class SharedWeights(Function):
    """The weights as they are; the gradient is the sum of what the rows of all processes say."""

    @staticmethod
    def forward(ctx: FunctionCtx, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        total = distributed.summed(torch.cat([gradient.reshape(-1) for gradient in gradients]))  # all at once
        parts = total.split([gradient.numel() for gradient in gradients])
        return tuple(part.view(gradient.shape) for part, gradient in zip(parts, gradients, strict=True))


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Dropout and the like draw other numbers for the rows of each process, and afterwards all go on with the same."""
    seed = int(torch.randint(2**62, ())) + distributed.rank()
    with kept_randomness(device):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


# BatchNorm over the whole batch


class WholeBatchNorm(TorchFunctionMode):
    """While this is active, BatchNorm in training takes the mean and the variance of the rows of all processes."""

    def __init__(self, total: int) -> None:
        super().__init__()
        start, end = distributed.share(total)
        self.whole = total / (end - start)  # how many times as many numbers all processes have

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm:
            return batch_norm(self.whole, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def batch_norm(
    whole: float,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """torch's function of this name for a batch of which each process has some rows, (B, c, …)."""
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    with torch.no_grad():
        count = round(whole * x.numel() / x.shape[1])
        mean, var = whole_moments(x, count)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_((var * (count / (count - 1))).to(running_var), momentum)
    own_type = x.dtype if weight is None else weight.dtype
    weight = x.new_ones(x.shape[1]) if weight is None else weight
    bias = torch.zeros_like(weight) if bias is None else bias
    return Normalised.apply(x, weight, bias, mean.to(own_type), var.to(own_type), count, eps)  # type: ignore[no-untyped-call, no-any-return]


def whole_moments(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over the so many numbers of all processes, in float64."""
    if count < 2:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(x.shape)}")
    x = x.float() if x.dtype.itemsize < 4 else x
    own_var, own_mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
    own_mean, own_part = own_mean.double(), x.numel() / x.shape[1] / count
    mean, square = distributed.summed(torch.stack([own_mean, own_var.double() + own_mean.square()]) * own_part)
    return mean, (square - mean.square()).clamp_min(0)


class Normalised(Function):
    """(x − mean) / √(var + ε) · weight + bias for a mean and a variance that follow from the rows of all processes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, count: int, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var)
        ctx.count, ctx.eps = count, eps
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """As for fixed statistics, less what goes by way of them: dx = w/σ (dy − mean(dy) − x̂ mean(dy x̂))."""
        x, weight, mean, var = ctx.saved_tensors
        for_x, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, mean, var, None, None, False, ctx.eps, [True, True, True]
        )
        along, level = distributed.summed(torch.stack([for_weight, for_bias]).double()) / ctx.count
        deviation = (var.double() + ctx.eps).rsqrt()  # 1/σ
        slope = weight * deviation.square() * along
        offset = weight * deviation * level - slope * mean
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        for_x = for_x - (slope.to(x.dtype).view(shape) * x + offset.to(x.dtype).view(shape))
        return for_x, for_weight, for_bias, None, None, None, None
