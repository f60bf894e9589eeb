"""Deep inversion: a generator makes images that a trained network cannot tell from those it was trained on.

The frozen network is all that is left of its images. A generator is trained until the network is sure of what it sees,
sees every class equally often, and finds in every BatchNorm layer the statistics that it remembers. ABD and R-DFCIL
replay such images in place of old ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine import distributed
from efcil.engine.context import Keep, unkept
from efcil.engine.model import IncrementalModel, initialise
from efcil.engine.numerics import TINY
from efcil.engine.progress import Report, unreported
from efcil.errors import UserError

if TYPE_CHECKING:
    from efcil.engine.context import Batch, Context
    from efcil.engine.method import State, Terms

EPSILON = 1e-8  # added to variances: a dead channel has none
START = 8  # the generator begins with maps of at most so many pixels a side


@dataclass(frozen=True)
class InversionOptions:
    """The generator and how it is trained; ABD and R-DFCIL have the same."""

    iterations: int = 10_000
    """Training steps of the generator, at the start of every task after the first."""
    batch_size: int = 128
    """Images per training step."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    latent: int = 1000
    """Length of the noise vector that becomes an image."""
    width: int = 128
    """Channels of the generator; the last block never has more than 64."""
    temperature: float = 1000.0
    """τ, which divides the outputs in the cross-entropy."""
    lambda_batchnorm: float = 50.0
    """Weight of the BatchNorm statistics."""
    lambda_smoothness: float = 1e-3
    """Weight of the smoothness of the images."""

    def __post_init__(self) -> None:
        at_least(self, iterations=0, batch_size=2, lr=0.0, latent=1, width=1)
        at_least(self, temperature=1e-3, lambda_batchnorm=0.0, lambda_smoothness=0.0)


# The generator


def map_sizes(size: int) -> list[int]:
    """Sides of the generator's maps, each up-sampled to the next: halved until at most 8 pixels, at least once."""
    sizes = [size]
    while sizes[0] > START or len(sizes) == 1:
        sizes.insert(0, math.ceil(sizes[0] / 2))
    return sizes


class Generator(nn.Module):
    """Noise (B, latent) → linear layer → blocks of up-sampling, 3×3 convolution, BatchNorm → images (B, 3, S, S)."""

    def __init__(self, size: int, latent: int, width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.start, *self.sizes = map_sizes(size)
        channels = [width] * len(self.sizes) + [min(width, 64)]
        self.linear = nn.Linear(latent, width * self.start**2)
        self.norm = nn.BatchNorm2d(width)
        self.convs = nn.ModuleList(nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(channels))
        self.norms = nn.ModuleList(nn.BatchNorm2d(after, eps=0.8) for after in channels[1:])
        self.colours = nn.Conv2d(channels[-1], 3, 3, padding=1)
        self.scale = nn.BatchNorm2d(3, affine=False)  # zero mean and unit variance, as normalised pixels have
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                initialise(module, rng)

    def forward(self, z: Tensor) -> Tensor:
        x = self.norm(self.linear(z).view(len(z), -1, self.start, self.start))
        x = x.contiguous(memory_format=torch.channels_last)
        for size, conv, norm in zip(self.sizes, self.convs, self.norms, strict=True):
            x = F.leaky_relu(norm(conv(F.interpolate(x, size=size, mode="nearest"))), 0.2)
        return self.scale(torch.tanh(self.colours(x)))  # type: ignore[no-any-return]


# The terms of its loss


def certainty(logits: Tensor, temperature: float) -> Tensor:
    """CE(z / τ, argmax z): small when the network is sure of each image."""
    return F.cross_entropy(logits / temperature, logits.argmax(1))


def imbalance(logits: Tensor) -> Tensor:
    """1 + Σ_c p̄_c log p̄_c / log K with p̄ the batch mean of the softmax: 0 for equal classes, 1 for a single one."""
    mean = torch.softmax(logits, dim=1).mean(0)  # p̄ (K,)
    if len(mean) == 1:
        return mean.new_zeros(())  # log K = 0
    return 1 + (mean * mean.clamp_min(TINY).log()).sum() / math.log(len(mean))  # a class may have underflown to 0


def roughness(x: Tensor) -> Tensor:
    """MSE(x, blur(x)), blur with a 5×5 Gaussian exp(−(u² + v²) / 4) that sums to one, edges mirrored."""
    offsets = torch.arange(-2, 3, device=x.device, dtype=x.dtype)
    line = torch.exp(-offsets.square() / 4)
    kernel = torch.outer(line, line) / line.sum().square()
    channels = x.shape[1]
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    return F.mse_loss(x, F.conv2d(padded, kernel.expand(channels, 1, 5, 5), groups=channels))


def batchnorm_divergence(x: Tensor, norm: nn.modules.batchnorm._BatchNorm) -> Tensor:
    """Mean over channels of log(σ̂/σ) − ½ (1 − (σ² + (μ − μ̂)²) / σ̂²); hats: this input, plain: what norm remembers."""
    assert norm.running_mean is not None and norm.running_var is not None
    var, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0)
    var, running = var + EPSILON, norm.running_var + EPSILON
    distance = running + (norm.running_mean - mean).square()
    return (0.5 * (var / running).log() - 0.5 * (1 - distance / var)).mean()


@contextmanager
def batchnorm_divergences(network: nn.Module) -> Iterator[list[Tensor]]:
    """A list to which every forward pass adds the divergence at the input of each BatchNorm."""
    found: list[Tensor] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, nn.modules.batchnorm._BatchNorm)
        found.append(batchnorm_divergence(inputs[0], module))

    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    handles = [norm.register_forward_pre_hook(note) for norm in norms if norm.running_mean is not None]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def inversion_terms(options: InversionOptions, logits: Tensor, divergences: list[Tensor], x: Tensor) -> Terms:
    """CE(z/τ, argmax z) + imbalance + λ_bn mean of the divergences + λ_smooth MSE(x, blur(x))."""
    batchnorm = torch.stack(divergences).mean() if divergences else x.new_zeros(())
    return {
        "certainty": certainty(logits, options.temperature),
        "imbalance": imbalance(logits),
        "batchnorm": options.lambda_batchnorm * batchnorm,
        "roughness": options.lambda_smoothness * roughness(x),
    }


# Training and sampling


class Inversion:
    """A generator and the optimiser that trains it."""

    def __init__(self, options: InversionOptions, size: int, device: torch.device, rng: torch.Generator) -> None:
        self.options = options
        generator = Generator(size, options.latent, options.width, rng).to(device)
        self.generator: Generator = generator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=options.lr)
        self.done, self.rng = 0, rng  # of a training that is under way: its iterations and its random numbers

    def train(
        self, network: IncrementalModel, rng: torch.Generator, report: Report = unreported, keep: Keep = unkept
    ) -> None:
        """Fit the generator to this network, which stays as it is; one that was cut off within goes on from there."""
        if self.done:
            rng.set_state(self.rng.get_state())
        self.rng = rng
        teacher = copy.deepcopy(network).eval().requires_grad_(False)
        self.generator.train()
        with distributed.alone(), batchnorm_divergences(teacher) as divergences:  # they are of a whole batch
            for iteration in range(self.done, self.options.iterations):
                divergences.clear()
                x = self.generator(self.noise(self.options.batch_size, rng))
                terms = inversion_terms(self.options, teacher(x), divergences, x)
                self.optimizer.zero_grad()
                torch.stack(list(terms.values())).sum().backward()
                self.optimizer.step()
                self.done = iteration + 1
                report(self.done, self.options.iterations)
                keep()
        self.done = 0
        distributed.align([*self.generator.parameters(), *self.statistics()])

    @torch.no_grad()
    def sample(self, count: int, rng: torch.Generator) -> Tensor:
        """New images, (count, 3, S, S)."""
        self.generator.eval()
        return self.generator(self.noise(count, rng))  # type: ignore[no-any-return]

    def noise(self, count: int, rng: torch.Generator) -> Tensor:
        """z ~ N(0, I), (count, latent)."""
        return torch.randn(count, self.options.latent, generator=rng).to(self.generator.linear.weight)

    def weights(self) -> State:
        """The generator as vectors: all parameters (G,) and BatchNorm statistics."""
        return {
            "generator": flattened(self.generator.parameters()),
            "generator_statistics": flattened(self.statistics()),
        }

    def load_weights(self, state: State) -> None:
        """The inverse of weights(); enough to sample, not to go on training."""
        fill(self.generator.parameters(), state["generator"])
        fill(self.statistics(), state["generator_statistics"])

    def state(self) -> State:
        """The generator, and what its optimiser remembers, as vectors: moments of Adam (G,) each."""
        adam = [self.optimizer.state.get(p, fresh_moments(p)) for p in self.generator.parameters()]
        return {
            **self.weights(),
            "first_moments": flattened(moments["exp_avg"] for moments in adam),
            "second_moments": flattened(moments["exp_avg_sq"] for moments in adam),
            "steps": adam[0]["step"].to(torch.int64),
        }

    def load_state(self, state: State) -> None:
        """The inverse of state()."""
        self.load_weights(state)
        if state["steps"] < 0:
            raise UserError(f"a kept generator says {int(state['steps'])} steps; teach a new model.")
        adam = {p: fresh_moments(p) for p in self.generator.parameters()}
        fill((moments["exp_avg"] for moments in adam.values()), state["first_moments"])
        fill((moments["exp_avg_sq"] for moments in adam.values()), state["second_moments"])
        for parameter, moments in adam.items():
            moments["step"].fill_(int(state["steps"]))
            self.optimizer.state[parameter] = moments

    def progress(self) -> State:
        """Enough to sample, and while the training is under way all that it needs to go on, bit for bit."""
        if not self.done:
            return self.weights()
        return {**self.state(), "iterations": torch.tensor(self.done), "noise": self.rng.get_state()}

    def load_progress(self, state: State) -> None:
        """The inverse of progress()."""
        self.load_weights(state)
        if "noise" in state:
            self.load_state(state)
            self.done, self.rng = int(state["iterations"]), torch.Generator()
            self.rng.set_state(state["noise"])

    def statistics(self) -> list[Tensor]:
        """Running means and variances of the generator's BatchNorm."""
        return [buffer for buffer in self.generator.buffers() if buffer.is_floating_point()]


def fresh_moments(parameter: Tensor) -> dict[str, Tensor]:
    """What Adam remembers about a parameter before its first step."""
    return {
        "step": torch.tensor(0.0),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def flattened(tensors: Iterable[Tensor]) -> Tensor:
    """All numbers of these tensors, one after the other."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def fill(tensors: Iterable[Tensor], values: Tensor) -> None:
    """The inverse of flattened(), in place: each tensor keeps its memory format, on which rounding depends."""
    tensors = list(tensors)
    sizes = [tensor.numel() for tensor in tensors]
    if sum(sizes) != values.numel():  # of a file that somebody has changed
        raise UserError(f"a kept generator has {values.numel()} numbers where {sum(sizes)} belong; teach a new model.")
    for tensor, part in zip(tensors, values.split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


@dataclass
class Replay:
    """A batch of B real images, then as many generated ones, and what the old network says about them."""

    x: Tensor  # (2B, 3, S, S)
    y: Tensor  # (2B,), for generated images the class that the old network sees
    real: int  # B
    old_features: Tensor  # (2B, n)
    old_logits: Tensor  # (2B, known)


@torch.no_grad()
def replay(ctx: Context, inversion: Inversion, batch: Batch) -> Replay:
    """This batch with as many generated images of old classes behind it."""
    assert ctx.old is not None
    x = torch.cat([batch.x, inversion.sample(len(batch.x), ctx.rng).to(batch.x)])
    old_features = ctx.old.features(x)
    old_logits = ctx.old.logits(old_features)
    y = torch.cat([batch.y, old_logits[len(batch.x) :].argmax(1)])
    return Replay(x, y, len(batch.x), old_features, old_logits)
