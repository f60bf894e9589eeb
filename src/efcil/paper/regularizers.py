"""What holds a network back while it learns: weight penalties, distillations and the importance of weights (§3.2).

Weights are handled as one vector θ (P,): all parameters of the backbone except those of BatchNorm, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.engine.model import IncrementalModel, trained_weights

if TYPE_CHECKING:
    from efcil.engine.context import Context
    from efcil.engine.method import State

SMOOTHING = 1e-5  # probability spread over all classes, so that the student's logarithm stays finite


# Penalties


def quadratic_penalty(importance: Tensor, theta: Tensor, old_theta: Tensor) -> Tensor:
    """Σ_i Ω_i (θ_i − θ*_i)², the E-FIM loss with a diagonal F and λ = 1 (Eq. 4)."""
    return (importance * (theta - old_theta).square()).sum()


def knowledge_distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of the softened outputs, H(softmax(z_old / T), softmax(z / T)), mean over the batch (B, m)."""
    classes = logits.shape[1]
    teacher = torch.softmax(old_logits / temperature, dim=1)  # (B, m)
    student = (torch.softmax(logits / temperature, dim=1) + SMOOTHING / classes) / (1 + SMOOTHING)  # (B, m)
    return -(teacher * student.log()).sum(1).mean()


def old_head_distillation(old: IncrementalModel, x: Tensor, features: Tensor, temperature: float) -> Tensor:
    """Knowledge distillation among the old classes; their heads are frozen, so it acts on the features alone."""
    with torch.no_grad():
        old_logits, weight = old(x), old.weight  # (B, known), (known, n)
    return knowledge_distillation(features @ weight.T, old_logits, temperature)


def feature_distillation(features: Tensor, old_features: Tensor) -> Tensor:
    """Mean over the batch of ‖f(x; θ_t) − f(x; θ_{t−1})‖₂ (Eq. 5, which sums)."""
    distances: Tensor = torch.linalg.vector_norm(features - old_features, dim=1)  # (B,)
    return distances.mean()


# Weights as a vector


def flat_weights(model: IncrementalModel) -> Tensor:
    """θ, (P,); of a frozen backbone nothing, P = 0, so that no penalty holds anything back."""
    return flat(trained_weights(model), model)


def flat_gradient(loss: Tensor, model: IncrementalModel, retain_graph: bool = False) -> Tensor:
    """∂ loss / ∂θ, (P,)."""
    theta = trained_weights(model)
    gradients = torch.autograd.grad(loss, theta, retain_graph=retain_graph, materialize_grads=True) if theta else ()
    return flat(gradients, model)


def flat(tensors: Sequence[Tensor], model: IncrementalModel) -> Tensor:
    """All numbers one after the other, on the device of the model."""
    return torch.cat([model.newest.new_empty(0), *(tensor.reshape(-1) for tensor in tensors)])


# Importance of weights


def importance(
    model: IncrementalModel,
    batches: Iterable[Tensor],
    loss: Callable[[Tensor], Tensor],
    measure: Callable[[Tensor], Tensor],
) -> Tensor:
    """Mean over all images of ``measure`` of the gradient of their batch's ``loss`` of the logits, (P,)."""
    model.eval()
    total, images = torch.zeros(()), 0
    for x in batches:
        total = total + len(x) * measure(flat_gradient(loss(model(x)), model))
        images += len(x)
    return total / images


def fisher_diagonal(model: IncrementalModel, batches: Iterable[Tensor]) -> Tensor:
    """Squared batch-mean gradients of −log p(ŷ), ŷ the predicted class: a rough diagonal of F_t (Eq. 3), (P,)."""
    return importance(model, batches, lambda logits: F.cross_entropy(logits, logits.argmax(1)), torch.square)


def fused(old: Tensor, new: Tensor, alpha: float) -> Tensor:
    """Ω ← α Ω_old + (1 − α) Ω_new, (P,)."""
    return alpha * old + (1 - alpha) * new


def training_batches(ctx: Context) -> Iterator[Tensor]:
    """All images of the task once, shuffled, augmented and in batches as in training."""
    training = ctx.config.first if ctx.first else ctx.config.incremental
    ctx.reseed("importance")
    rows = torch.randperm(len(ctx.images), generator=ctx.rng).split(training.batch_size)
    return ctx.views(ctx.images, list(rows))


class PathIntegral:
    """ω: how much each weight, on its way through this task, has brought the loss down."""

    def __init__(self) -> None:
        self.omega = torch.empty(0)  # (P,)
        self.start = torch.empty(0)  # θ*, the weights before the task (P,)
        self.gradient = torch.empty(0)  # of the loss without penalty, this step (P,)
        self.before = torch.empty(0)  # the weights before this step (P,)

    def begin_task(self, model: IncrementalModel) -> None:
        self.start = flat_weights(model).detach()
        self.omega = torch.zeros_like(self.start)

    def begin_step(self, model: IncrementalModel, loss: Tensor) -> None:
        """Take the gradient of a loss whose graph the training step still needs."""
        self.gradient = flat_gradient(loss, model, retain_graph=True)
        self.before = flat_weights(model).detach()

    def end_step(self, model: IncrementalModel) -> None:
        """ω ← ω − g (θ_after − θ_before)."""
        self.omega = self.omega - self.gradient * (flat_weights(model).detach() - self.before)

    def end_task(self, model: IncrementalModel) -> tuple[Tensor, Tensor]:
        """ω and the squared way (θ − θ*)² of the whole task; both start anew, (P,) each."""
        omega, way = self.omega, (flat_weights(model).detach() - self.start).square()
        self.omega = self.start = self.gradient = self.before = torch.empty(0)
        return omega, way

    def progress(self) -> State:
        return {"path_integral": self.omega}

    def load_progress(self, state: State) -> None:
        self.omega = state["path_integral"].to(self.start.device)
