"""Tasks of more images than fit in memory: features come in chunks, and only sums and what is kept of them stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import make_blobs, quick_learner
from efcil import IncrementalClassifier
from efcil.engine import context
from efcil.engine.context import Context
from efcil.methods.efc_plus_plus import EFCPlusPlus
from efcil.paper import drift
from efcil.paper.covariances import FULL, KeptCovariance
from efcil.paper.drift import Kernel, StreamedDrift, compensate
from efcil.paper.prototypes import GatheredPrototypes, gaussian_prototypes
from efcil.paper.rebalancing import dealt
from efcil.parts.consolidation import Consolidation

N = 6  # features of a quick learner
TASKS = (["cat", "dog"], ["ant", "bee", "hen"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kept", [FULL, KeptCovariance("low-rank", 2), KeptCovariance("shared")])
@pytest.mark.parametrize("in_order", [True, False])
def test_prototypes_from_chunks_are_those_of_all_features(in_order: bool, kept: KeptCovariance) -> None:
    columns = torch.arange(4).repeat_interleave(torch.tensor([30, 1, 17, 2]))
    if not in_order:
        columns = columns[torch.randperm(len(columns), generator=torch.Generator().manual_seed(1))]
    features = normal(50, N) * (1 + columns[:, None]) + 100 * columns[:, None]
    whole = gaussian_prototypes(features, columns, kept)
    gathered = GatheredPrototypes(columns, features, kept)
    for rows in torch.arange(50).split(7):
        gathered.add(features[rows], columns[rows])
        assert len(gathered.open) <= 1 or not in_order
    parts = gathered.prototypes()
    assert parts.counts.tolist() == [30, 1, 17, 2]
    torch.testing.assert_close(parts.means, whole.means, rtol=1e-12, atol=0)
    for index in range(4):
        torch.testing.assert_close(parts.covariance(index), whole.covariance(index), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", ["scaled", "literal"])
@pytest.mark.parametrize("with_efm", [True, False])
@pytest.mark.parametrize("distance", [1.0, 300.0])  # far away all weights are zero but those of the nearest
def test_streamed_drift_is_that_of_all_pairs(
    kernel: Kernel, with_efm: bool, distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "PAIRS", 20)
    old, new, prototypes = normal(40, N), normal(40, N, seed=1), distance * normal(5, N, seed=2)
    efm = normal(N, N, seed=3)
    settings = (efm @ efm.T if with_efm else None, 0.2, kernel)
    sums = StreamedDrift(prototypes, *settings)
    for part in old.split(13):
        if kernel == "scaled":
            sums.look(part)
    for parts in zip(old.split(13), new.split(13), strict=True):
        sums.add(*parts)
    torch.testing.assert_close(sums.moved(), compensate(prototypes, old, new, *settings), rtol=1e-9, atol=1e-9)


def test_equal_distances_give_every_image_the_same_weight() -> None:
    sums = StreamedDrift(torch.zeros(1, 2), torch.zeros(2, 2), 0.2, "scaled")
    old, new = torch.zeros(4, 2), torch.arange(8.0).view(4, 2)
    sums.look(old)
    sums.add(old, new)
    torch.testing.assert_close(sums.moved(), new.mean(0, keepdim=True))


def test_parts_have_every_row_and_every_class() -> None:
    columns = torch.tensor([3] * 20 + [4] * 2 + [5] * 7)
    parts = dealt(columns, 4, torch.Generator().manual_seed(0))
    assert torch.cat(parts).unique().tolist() == list(range(29))
    for part in parts:
        assert columns[part].unique().tolist() == [3, 4, 5]
    own = torch.cat([part[columns[part] != 4] for part in parts])
    assert len(own) == 27  # only the class of two images repeats any


# Whole lessons


def memory_after(at_once: int | None, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Consolidation, Any]:
    if at_once is not None:
        monkeypatch.setattr(context, "AT_ONCE", at_once)
    settings = {"rebalancing": {"epochs": 0}, **options}
    learner = quick_learner("efc++", first={"epochs": 3}, options=settings)
    for classes in TASKS:
        learner.partial_fit(*make_blobs(classes, 100))
    return learner._method.memory, learner  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{}, {"kernel": "literal", "drift": "kernel"}])
def test_a_task_in_chunks_leaves_the_same_memory(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred images of six features in chunks of at most a batch."""
    whole, _ = memory_after(None, monkeypatch, **options)
    monkeypatch.setattr("efcil.engine.preprocessing.Preprocessing.batch", 40)
    chunks, _ = memory_after(64 * N, monkeypatch, **options)
    torch.testing.assert_close(chunks.efm, whole.efm, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(chunks.prototypes.means, whole.prototypes.means, rtol=1e-4, atol=1e-4)
    for index in range(5):
        expected = whole.prototypes.covariance(index)
        torch.testing.assert_close(chunks.prototypes.covariance(index), expected, rtol=1e-3, atol=1e-4)


class LargestMatrix(TorchDispatchMode):
    """Notes how many numbers the largest matrix of real numbers had that was made meanwhile."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.is_floating_point() and made.ndim == 2:
            self.numbers = max(self.numbers, made.numel())
        return made


@pytest.mark.parametrize("per_class", [150, 300])
@pytest.mark.parametrize("streamed", [True, False])
def test_no_matrix_grows_with_the_images_of_a_task(
    per_class: int, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the epochs of a later task: drift, re-balancing, statistics. Else one has a row for each image."""
    monkeypatch.setattr("efcil.engine.preprocessing.Preprocessing.batch", 40)
    monkeypatch.setattr("efcil.paper.rebalancing.CHUNK", 64)
    monkeypatch.setattr(drift, "PAIRS", 400)
    if streamed:
        monkeypatch.setattr(context, "AT_ONCE", 40 * N)
    options = {"rebalancing": {"epochs": 3, "views": 2, "batch_size": 16}}
    learner = quick_learner("efc++", first={"epochs": 1}, augmentation="crop_flip", options=options)
    learner.partial_fit(*make_blobs(TASKS[0], 8))
    after, largest = EFCPlusPlus.after_task, LargestMatrix()

    def watched(self: EFCPlusPlus, ctx: Context) -> None:
        with largest:
            after(self, ctx)

    monkeypatch.setattr(EFCPlusPlus, "after_task", watched)
    learner.partial_fit(*make_blobs(TASKS[1], per_class))
    images = 3 * per_class
    assert largest.numbers <= 2 * 40 * N if streamed else largest.numbers >= images * N


def test_rebalancing_in_parts_takes_as_many_passes_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efcil.engine.preprocessing.Preprocessing.batch", 40)
    monkeypatch.setattr(context, "AT_ONCE", 80 * N)
    seen, told = 0, []
    extract = Context.extract

    def counted(self: Context, *models: Any, augmented: bool, images: Any = None) -> list[Tensor]:
        nonlocal seen
        seen += len(self.images if images is None else images) * len(models)
        return extract(self, *models, augmented=augmented, images=images)

    learner: IncrementalClassifier = quick_learner("efc++", options={"rebalancing": {"epochs": 5, "views": 2}})
    learner.partial_fit(*make_blobs(TASKS[0], 8))
    monkeypatch.setattr(Context, "extract", counted)
    monkeypatch.setattr(
        "efcil.engine.progress.Silent.stage",
        lambda self, task, stage, done=0, total=0: told.append((stage, done, total)),
    )
    learner.partial_fit(*make_blobs(TASKS[1], 60))
    assert seen == 180 * (1 + 2 + 2 + 1)  # range and drift of both networks, two views, statistics
    steps = [(done, total) for stage, done, total in told if stage == "re-balancing" and total]
    assert steps == [(done, 15) for done in range(1, 16)]  # five epochs of three parts
    images, labels = make_blobs([*TASKS[0], *TASKS[1]], 20, seed=5)
    assert learner.score(images, labels) > 0.5
