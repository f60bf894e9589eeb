"""What is kept of a covariance: its defining properties, draws that have it, bytes, states, and whole lessons."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import TinyNet, make_blobs, quick_learner
from efcil import IncrementalClassifier
from efcil.bench.footprint import sizes_and_type
from efcil.bench.grids import GRIDS
from efcil.bench.scenarios import config_digest, resolve
from efcil.config import from_dict
from efcil.engine.numerics import JITTER
from efcil.errors import UserError
from efcil.paper.covariances import FULL, KeptCovariance, leading
from efcil.paper.prototypes import GaussianPrototypes, gaussian_prototypes
from efcil.teaching.kept import bytes_per_class

N = 6  # features
QUICK = {"epochs": 3, "views": 2}
KINDS = [
    KeptCovariance(kind, rank, dtype)
    for (kind, rank), dtype in itertools.product(
        [("full", 32), ("low-rank", 2), ("shared", 32), ("diagonal", 32)], ["float32", "float16"]
    )
]
every_kind = pytest.mark.parametrize("kept", KINDS, ids=lambda kept: f"{kept.kind} {kept.dtype}")


def features_of(counts: list[int], seed: int = 0, first: int = 0) -> tuple[Tensor, Tensor]:
    """Features of classes of different spread, float64, and their columns."""
    rng = torch.Generator().manual_seed(seed)
    columns = torch.arange(first, first + len(counts)).repeat_interleave(torch.tensor(counts))
    mixing = torch.randn(first + len(counts), N, N, generator=rng, dtype=torch.float64)
    noise = torch.randn(len(columns), N, generator=rng, dtype=torch.float64)
    return torch.einsum("in,inm->im", noise, mixing[columns]) + columns[:, None], columns


def kept_of(counts: list[int], kept: KeptCovariance, seed: int = 0) -> GaussianPrototypes:
    return gaussian_prototypes(*features_of(counts, seed), kept)


def tolerance(kept: KeptCovariance) -> float:
    return 2e-2 if kept.half else 1e-9


def test_a_low_rank_has_the_leading_variances_and_the_mean_of_all_others() -> None:
    exact = torch.cov(features_of([40])[0].T)
    kept = kept_of([40], KeptCovariance("low-rank", 2)).covariance(0)
    values, vectors = torch.linalg.eigh(exact)
    expected = torch.cat([values[:-2].mean().expand(N - 2), values[-2:]])
    torch.testing.assert_close(vectors.T @ kept @ vectors, expected.diag(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("rank", [1, 3, N - 1, N, 100])
def test_the_total_variance_stays_whatever_the_rank(rank: int) -> None:
    prototypes = kept_of([40, 3], KeptCovariance("low-rank", rank))
    for index, exact in enumerate(kept_of([40, 3], FULL).whole_factors()):
        total = float(exact.square().sum())
        assert float(prototypes.covariance(index).trace()) == pytest.approx(total, rel=1e-12)


def test_a_rank_of_all_features_or_of_all_images_is_full() -> None:
    full = kept_of([40, 3, 1], FULL)
    for rank in (N, N + 9):
        whole = kept_of([40, 3, 1], KeptCovariance("low-rank", rank))
        assert all(torch.equal(a, b) for a, b in zip(whole.factors, full.factors, strict=True))
        assert whole.rest is not None and not whole.rest.any()
    thin = kept_of([40, 3, 1], KeptCovariance("low-rank", 2))
    assert torch.equal(thin.factors[1], full.factors[1])  # two rows say all of three images


def test_equal_variances_leave_no_leading_direction() -> None:
    factor, rest = leading(torch.eye(N, dtype=torch.float64), 2)
    assert rest == pytest.approx(1) and float(factor.abs().max()) < 1e-6


@pytest.mark.parametrize("rank", [1, 3])
def test_leading_directions_of_few_images_with_many_features(rank: int) -> None:
    """Fewer rows than features, two of them the same, in float32: as the eigenvectors of the covariance say."""
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    factor = torch.cat([rows, rows[:1]])
    found, rest = leading(factor, rank)
    values, vectors = torch.linalg.eigh(factor.double().T @ factor.double())
    assert rest == pytest.approx(float(values[:-rank].sum()) / (20 - rank))
    expected = (vectors[:, -rank:] * (values[-rank:] - rest)) @ vectors[:, -rank:].T
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.T @ found, expected.float(), rtol=1e-4, atol=1e-4)


def test_diagonal_is_the_variance_of_each_feature() -> None:
    features, columns = features_of([40, 5])
    prototypes = gaussian_prototypes(features, columns, KeptCovariance("diagonal"))
    for index in (0, 1):
        expected = features[columns == index].var(0).diag()
        torch.testing.assert_close(prototypes.covariance(index), expected, rtol=0, atol=1e-9)


def pooled_covariance(features: Tensor, columns: Tensor) -> Tensor:
    centred = torch.cat([features[columns == c] - features[columns == c].mean(0) for c in columns.unique()])
    return centred.T @ centred / (len(features) - len(columns.unique()))


def test_shared_is_the_covariance_within_classes_of_all_images_of_all_tasks() -> None:
    """Whatever the split into tasks; a class of one image says nothing of it."""
    kept = KeptCovariance("shared")
    features, columns = features_of([9, 1, 30, 5])
    early = columns < 2
    both = gaussian_prototypes(features[early], columns[early], kept).extended(
        gaussian_prototypes(features[~early], columns[~early], kept)
    )
    once = gaussian_prototypes(features, columns, kept)
    expected = pooled_covariance(features, columns)
    for prototypes, index in itertools.product((both, once), range(4)):
        torch.testing.assert_close(prototypes.covariance(index), expected, rtol=0, atol=1e-9)
    assert len(both.factors) == 1 and both.counts.tolist() == [9, 1, 30, 5]


def test_shared_stays_when_those_who_gave_it_are_forgotten_and_single_images_come() -> None:
    kept = KeptCovariance("shared")
    first = kept_of([1, 9], kept)
    after = first.removed(1).extended(kept_of([1], kept))
    assert len(after) == 2 and first.covariance(0).trace() > 0
    torch.testing.assert_close(after.covariance(0), first.covariance(0))


def test_shared_by_classes_of_one_image_each_is_nothing() -> None:
    prototypes = kept_of([1, 1], KeptCovariance("shared"))
    assert not prototypes.covariance(0).any()
    drawn = prototypes.sample_classes(torch.tensor([1] * 50), torch.Generator().manual_seed(0))
    assert float((drawn - prototypes.means[1]).std()) == pytest.approx(JITTER**0.5, rel=0.2)


@every_kind
def test_draws_have_the_covariance_that_is_kept(kept: KeptCovariance) -> None:
    """Five standard errors; the empirical covariance of so many draws differs by less than that once in a million."""
    prototypes = kept_of([40, 3], kept)
    columns = torch.tensor([1, 0, 0]).repeat(40_000)
    drawn = prototypes.sample_classes(columns, torch.Generator().manual_seed(3))
    for index in (0, 1):
        own, covariance = drawn[columns == index], prototypes.covariance(index) + JITTER * torch.eye(N)
        spread = covariance.diagonal().sqrt()
        error = 5 * 2**0.5 * torch.outer(spread, spread) / len(own) ** 0.5
        assert ((torch.cov(own.T) - covariance).abs() <= error).all()
        assert ((own.mean(0) - prototypes.means[index]).abs() <= 5 * spread / len(own) ** 0.5).all()


@every_kind
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_float16_holds_features_of_any_size(kept: KeptCovariance, size: float) -> None:
    features, columns = features_of([40, 3])
    exact = gaussian_prototypes(features, columns, KeptCovariance(kept.kind, kept.rank))
    prototypes = gaussian_prototypes(size * features, columns, kept)
    for index in (0, 1):
        expected = exact.covariance(index)
        atol = tolerance(kept) * float(expected.abs().max())
        torch.testing.assert_close(prototypes.covariance(index) / size**2, expected, rtol=0, atol=atol)


@every_kind
def test_state_and_back_in_the_declared_shapes(kept: KeptCovariance) -> None:
    features, columns = features_of([40, 3, 9])
    prototypes = gaussian_prototypes(features.float(), columns, kept)
    state = prototypes.state()
    rows = {"full": 6 + 2 + 6, "low-rank": 6, "shared": 6, "diagonal": 3}[kept.kind]
    sizes = {"m": 3, "n": N, "r": rows, "s": rows}
    found = {name: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in state.items()}
    assert found == {name: sizes_and_type(shape, sizes) for name, shape in kept.shapes().items()}
    again = GaussianPrototypes.from_state(state, kept)
    columns = torch.tensor([2, 0, 1, 1])
    drawn = [p.sample_classes(columns, torch.Generator().manual_seed(1)) for p in (prototypes, again)]
    assert torch.equal(*drawn)
    if not kept.half:
        halves = gaussian_prototypes(*features_of([40, 3, 9]), KeptCovariance(kept.kind, kept.rank, "float16")).state()
        assert 2 * halves["covariance_factors"].nbytes == state["covariance_factors"].nbytes


@every_kind
def test_a_class_that_is_removed_takes_what_is_its_own(kept: KeptCovariance) -> None:
    before = kept_of([40, 3, 9], kept)
    left = before.removed(1)
    assert left.counts.tolist() == [40, 9] and len(left.factors) == (1 if kept.kind == "shared" else 2)
    for index, earlier in enumerate((0, 2)):
        assert torch.equal(left.means[index], before.means[earlier])
        assert torch.equal(left.covariance(index), before.covariance(earlier))
    assert GaussianPrototypes.from_state(left.state(), kept).state().keys() == before.state().keys()


@every_kind
def test_new_classes_come_after_old_ones(kept: KeptCovariance) -> None:
    old, new = kept_of([40, 3], kept, seed=1), kept_of([9], kept, seed=2)
    both = old.extended(new)
    assert torch.equal(both.means, torch.cat([old.means, new.means]))
    if kept.kind != "shared":
        assert torch.equal(both.covariance(1), old.covariance(1)) and torch.equal(both.covariance(2), new.covariance(0))


def test_version_1_files_are_read_into_what_is_to_be_kept() -> None:
    full = kept_of([40, 3], FULL)
    old = {"means": full.means, "covariance_factors": full.full_factors(), "counts": full.counts}
    loaded = GaussianPrototypes.from_state(old, KeptCovariance("diagonal"))
    torch.testing.assert_close(loaded.covariance(0), full.covariance(0).diagonal().diag(), rtol=0, atol=1e-9)


# Whole lessons


def taught(method: str, kept: KeptCovariance, **options: Any) -> IncrementalClassifier:
    chosen = {"kept_covariance": {"kind": kept.kind, "rank": kept.rank, "dtype": kept.dtype}, **options}
    learner = quick_learner(method, first={"epochs": 3}, options={"rebalancing": QUICK, **chosen})
    past = None
    for classes in (["cat", "dog"], ["ant", "bee"], ["cow"]):
        images, labels = make_blobs(classes, 9)
        learner.partial_fit(images, labels, past=past if options.get("drift") == "oracle" else None)
        past = (
            (images, labels) if past is None else tuple(map(np.concatenate, zip(past, (images, labels), strict=True)))
        )
    return learner


@every_kind
def test_a_model_learns_is_saved_loaded_and_forgets(kept: KeptCovariance, tmp_path: Path) -> None:
    learner = taught("efc++", kept)
    learner.save(tmp_path / "model.efcil")
    again = IncrementalClassifier.load(tmp_path / "model.efcil", backbone=TinyNet())
    images, _ = make_blobs(["cat", "dog", "ant", "bee", "cow"], 5, seed=9)
    assert again.kept_bytes == learner.kept_bytes == expected_bytes(kept)
    for model in (learner, again):
        model.partial_fit(*make_blobs(["hen"], 9))
        model.forget("dog")
    assert (learner.predict_proba(images) == again.predict_proba(images)).all()
    shared = ("efm", "covariance_factors", "factor_scales") if kept.kind == "shared" else ("efm",)
    of_all = sum(tensor.nbytes for name, tensor in again._method.state().items() if name in shared)
    assert sum(bytes_per_class(again)) == again.kept_bytes - of_all


@pytest.mark.parametrize("kind", ["low-rank", "shared", "diagonal"])
@pytest.mark.parametrize("drift", ["none", "ridge", "dual-projection", "oracle"])
def test_every_drift_moves_whatever_is_kept(kind: Any, drift: str) -> None:
    learner = taught("efc++", KeptCovariance(kind, 2), drift=drift)
    memory = learner._method.memory  # type: ignore[attr-defined]
    assert len(memory.prototypes) == 5 and memory.prototypes.kept.kind == kind
    drawn, _ = learner._method.drawn(3, torch.Generator().manual_seed(0))  # type: ignore[misc]
    assert drawn.isfinite().all()


def expected_bytes(kept: KeptCovariance) -> int:
    """Five classes of nine images and six features each, with an EFM."""
    size = 2 if kept.half else 4
    covariances = {"full": 5 * N * N, "low-rank": 5 * kept.rank * N, "shared": N * N, "diagonal": 5 * N}[
        kept.kind
    ] * size
    rows = 5 * 8 if kept.kind in ("full", "low-rank") else 0
    rest = 5 * 4 if kept.kind == "low-rank" else 0
    scales = (4 if kept.kind == "shared" else 5 * 4) if kept.half else 0
    return 5 * N * 4 + 5 * 8 + covariances + rows + rest + scales + N * N * 4


# Settings


def test_what_is_kept_by_default_is_in_no_digest() -> None:
    """Rows of results from before there was a choice still count."""
    plain = resolve("cifar100-cold10-fast", "efc++", 0)
    said = resolve("cifar100-cold10-fast", "efc++", 0, ["options.kept_covariance.kind=full"])
    other = resolve("cifar100-cold10-fast", "efc++", 0, ["options.kept_covariance.kind=shared"])
    assert config_digest(plain) == config_digest(said) == "001d92ab6d3e7867"
    assert config_digest(other) != config_digest(plain)


def test_the_grid_of_all_kinds_resolves() -> None:
    digests = set()
    for entry in GRIDS["covariances"].methods:
        method, _, changes = entry.partition(":")
        digests.add(config_digest(resolve("cifar100-cold10-fast", method, 0, [c for c in changes.split(",") if c])))
    assert len(digests) == len(GRIDS["covariances"].methods) == 7


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UserError, match="rank must be at least 1"):
        from_dict(KeptCovariance, {"rank": 0})
    with pytest.raises(UserError, match="value for kind"):
        from_dict(KeptCovariance, {"kind": "sparse"})
