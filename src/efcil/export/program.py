"""Everything between pixels and answers as one traced program; what does not depend on the image is computed before."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from efcil.classifier import IncrementalClassifier
from efcil.engine.answers import UNUSUAL
from efcil.errors import UserError

INPUT = "images"


class Answering(nn.Module):
    """uint8 pixels (N, S, S, 3) of the stored side S to the answers of a classifier, by name."""

    def __init__(self, classifier: IncrementalClassifier) -> None:
        super().__init__()
        model, self.preprocessing = classifier._fitted()
        # In a list, so that torch.export takes weights for constants: what follows from them is computed before, too.
        self.networks = [copy.deepcopy(model).cpu().eval().requires_grad_(False)]
        self.method = copy.deepcopy(classifier._method)  # of what it keeps nothing may stay on another device
        self.method.load_state({name: tensor.detach().cpu() for name, tensor in classifier._method.state().items()})

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        with ComputedBefore():
            return self.answers(images)

    def answers(self, images: Tensor) -> dict[str, Tensor]:
        """As IncrementalClassifier.answers has them; familiarity and unknown only where the method can tell."""
        (model,) = self.networks
        pixels = self.preprocessing.centred(images.permute(0, 3, 1, 2))
        features: Tensor = model.backbone(self.preprocessing.normalised(pixels, images.device))
        answers = {"probabilities": self.method.probabilities(model, features).float()}
        familiarity = self.method.familiarity(model, features)
        if familiarity is not None:
            answers |= {"familiarity": familiarity.float(), "unknown": familiarity < UNUSUAL}
        return answers


class ComputedBefore(TorchFunctionMode):
    """Keeps out of the program what follows from the classes alone, such as the inverse of a covariance.

    It is computed while the program is traced and becomes a constant: runtimes lack such operations, and would repeat
    them for every image.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.cdist and kwargs.get("p", 2) == 2 and args[0].ndim == args[1].ndim == 2:
            func, kwargs = distances, {}
        if func is torch.special.ndtr and args[0].dtype == torch.float64:
            args = (args[0].float(),)  # onnxruntime has it in no other type
        if kwargs.get("inplace"):
            kwargs = {**kwargs, "inplace": False}  # the conversion to ONNX takes more than twice as long otherwise
        if any(depends_on_input(value) for value in pytree.tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return func(*args, **kwargs)


def depends_on_input(value: Any) -> bool:
    """Whether a value stands for one that is known only when the program runs."""
    if isinstance(value, Tensor):
        return type(value) not in (Tensor, nn.Parameter)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def distances(points: Tensor, others: Tensor) -> Tensor:
    """torch.cdist, which computes in one way up to 25 points and in another beyond; here one does for every number.

    The squares are expanded around the middle of the others, so that little is lost to rounding.
    """
    middle = others.mean(0)
    points, others = points - middle, others - middle
    squares = points.square().sum(1)[:, None] + others.square().sum(1) - 2 * points @ others.T
    return squares.clamp_min(0).sqrt()


def traced(classifier: IncrementalClassifier) -> torch.export.ExportedProgram:
    """The program of a classifier, for any number of images; or one sentence on why there is none."""
    answering = Answering(classifier)
    side = answering.preprocessing.stored
    try:
        program = trace(answering, torch.zeros(2, side, side, 3, dtype=torch.uint8))
    except Exception as error:  # torch.export has many ways to say that it cannot follow
        raise UserError(refusal(answering, classifier, error)) from None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names files of this machine
    return program


def trace(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    with torch.no_grad(), quietly():
        return torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False)


def refusal(answering: Answering, classifier: IncrementalClassifier, error: Exception) -> str:
    """Which part cannot be followed, the network or the method, and how torch.export says so."""
    size = answering.preprocessing.size
    what = f"the scores of {classifier.config.method} are no function of the features"
    try:
        trace(answering.networks[0].backbone, torch.zeros(2, 3, size, size))
    except Exception as own:
        what, error = f"the backbone {classifier.config.backbone} is no function of the image", own
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"This model cannot be exported: {what} that torch.export can follow for any number of images ({said:.150})."


@contextmanager
def quietly() -> Iterator[None]:
    """Without the words that exporters have for those who develop them; what goes wrong is raised all the same."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
