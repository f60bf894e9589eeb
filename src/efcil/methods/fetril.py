"""FeTrIL: frozen backbone, linear SVM on new features that are translated to old classes (Feature Translation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from efcil.config import at_least
from efcil.engine.context import Context
from efcil.engine.method import Method
from efcil.engine.model import IncrementalModel
from efcil.errors import UserError
from efcil.paper.prototypes import appended, class_means

Nearest = Literal["euclidean", "cosine"]


class FeTrIL(Method):
    name = "fetril"
    year = 2023
    idea = "backbone frozen after the first task, linear SVM on translated features of new classes"
    stores = "class means, the SVM"
    shapes: ClassVar = {"means": "m n", "weight": "m n", "bias": "m"}
    freezes_backbone = True

    @dataclass(frozen=True)
    class Options:
        """Settings of FeTrIL."""

        nearest: Nearest = "euclidean"
        """Which new class lends its features to an old one: nearest mean, or mean of nearest direction."""
        svm_c: float = 1.0
        """Weight of the squared hinge loss against the L2 penalty, C of the SVM."""
        svm_tolerance: float = 1e-4
        """Where the solver of the SVM stops."""

        def __post_init__(self) -> None:
            at_least(self, svm_c=1e-12, svm_tolerance=1e-12)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.means = torch.empty(0)  # (m, n)
        self.weight = torch.empty(0)  # (m, n)
        self.bias = torch.empty(0)  # (m,)

    def before_task(self, ctx: Context) -> None:
        support_vector_machine()  # a missing package is noticed before the epochs, not after them

    def after_task(self, ctx: Context) -> None:
        (features,) = ctx.extract(ctx.model, augmented=False)
        means = class_means(features, ctx.columns)
        columns = ctx.columns
        if not ctx.first:
            pseudo, pseudo_columns = pseudo_features(features, columns, self.means, means, self.options.nearest)
            features, columns = torch.cat([pseudo, features]), torch.cat([pseudo_columns, columns])
        self.means = appended(self.means, means)
        self.weight, self.bias = fit_svm(features, columns, self.options.svm_c, self.options.svm_tolerance)

    def scores(self, model: IncrementalModel, features: Tensor) -> Tensor:
        return F.normalize(features) @ self.weight.T + self.bias


def pseudo_features(
    features: Tensor, columns: Tensor, old_means: Tensor, new_means: Tensor, nearest: Nearest
) -> tuple[Tensor, Tensor]:
    """For every old class c, f(x) − μ_k + μ_c for each x of its nearest new class k; and their columns."""
    if nearest == "cosine":
        similarity = F.normalize(old_means) @ F.normalize(new_means).T  # (old, new)
    else:
        similarity = -torch.cdist(old_means, new_means)
    lenders = similarity.argmax(1)  # k(c)
    moved = [
        features[columns == len(old_means) + k] - new_means[k] + old_mean
        for k, old_mean in zip(lenders.tolist(), old_means, strict=True)
    ]
    sizes = torch.tensor([len(part) for part in moved], device=columns.device)
    return torch.cat(moved), torch.arange(len(moved), device=columns.device).repeat_interleave(sizes)


def fit_svm(features: Tensor, columns: Tensor, c: float, tolerance: float) -> tuple[Tensor, Tensor]:
    """Weight (m, n) and bias (m,) of a one-versus-rest linear SVM on features of unit length."""
    m, n = int(columns.max()) + 1, features.shape[1]
    if m == 1:  # nothing to tell apart
        return features.new_zeros(1, n), features.new_zeros(1)
    svm = support_vector_machine()(dual=False, C=c, tol=tolerance)
    svm.fit(F.normalize(features).double().cpu().numpy(), columns.cpu().numpy())
    weight, bias = (torch.from_numpy(part).to(features).contiguous() for part in (svm.coef_, svm.intercept_))
    if m == 2:  # the library keeps the second class only
        return torch.cat([-weight, weight]), torch.cat([-bias, bias])
    return weight, bias


def support_vector_machine() -> Any:
    """scikit-learn's linear SVM."""
    try:
        from sklearn.svm import LinearSVC
    except ModuleNotFoundError:
        raise UserError("FeTrIL needs the linear SVM of scikit-learn; run: pip install 'efcil[baselines]'") from None
    return LinearSVC
