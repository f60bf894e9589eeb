"""The Empirical Feature Matrix (Eqs. 6-11 and 19) against its slow definitions, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import efcil.paper.efm
from conftest import normal
from efcil.paper.efm import (
    efm_loss,
    empirical_feature_matrix,
    factor,
    normalised,
    pseudo_norm,
    softmax_covariance_sum,
    spectrum,
)

quick = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)


def problem(seed: int = 0, samples: int = 12, classes: int = 5, dim: int = 8) -> tuple[Tensor, Tensor]:
    """Features (N, n), never negative as after a ReLU, and a classifier W (m, n)."""
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, dim, generator=rng, dtype=torch.float64).abs()
    weight = torch.randn(classes, dim, generator=rng, dtype=torch.float64)
    return features, weight


def confident_problem(scale: float) -> tuple[Tensor, Tensor]:
    """Features near the classifier's own rows: the greater the scale, the surer the classifier."""
    features, weight = problem(samples=400, classes=10, dim=64)
    target = torch.arange(400) % 10
    return 0.1 * features + scale * F.normalize(weight)[target], F.normalize(weight)


def efm_from_gradients(features: Tensor, weight: Tensor) -> Tensor:
    """Eqs. 6-7 word by word: E_x E_{y∼p} [∂log p(y)/∂f (∂log p(y)/∂f)ᵀ], every gradient by autograd."""
    total = torch.zeros(features.shape[1], features.shape[1], dtype=features.dtype)
    for row in features:
        f = row.clone().requires_grad_()
        log_p = torch.log_softmax(weight @ f, dim=0)
        for y in range(len(weight)):
            (gradient,) = torch.autograd.grad(log_p[y], f, retain_graph=True)
            total += log_p[y].exp().detach() * torch.outer(gradient, gradient)
    return total / len(features)


def efm_from_closed_form(features: Tensor, weight: Tensor) -> Tensor:
    """Eq. 8 word by word: P repeats the softmax row m times, (I_m − P)_y is a row of I_m − P taken as a column."""
    m, n = weight.shape
    total = torch.zeros(n, n, dtype=features.dtype)
    for f in features:
        p = torch.softmax(weight @ f, dim=0)
        jacobian = torch.eye(m, dtype=f.dtype) - p.repeat(m, 1)
        for y in range(m):
            column = weight.T @ jacobian[y]
            total += p[y] * torch.outer(column, column)
    return total / len(features)


@quick
@given(seed=seeds, samples=st.integers(1, 6), classes=st.integers(1, 5), dim=st.integers(1, 6))
def test_efm_is_the_mean_outer_product_of_gradients(seed: int, samples: int, classes: int, dim: int) -> None:
    """Eqs. 6-7."""
    features, weight = problem(seed, samples, classes, dim)
    expected = efm_from_gradients(features, weight)
    torch.testing.assert_close(empirical_feature_matrix(features, weight), expected, rtol=0, atol=1e-10)


@quick
@given(seed=seeds, samples=st.integers(1, 6), classes=st.integers(1, 5), dim=st.integers(1, 6))
def test_efm_is_the_mean_of_the_closed_form(seed: int, samples: int, classes: int, dim: int) -> None:
    """Eq. 8."""
    features, weight = problem(seed, samples, classes, dim)
    expected = efm_from_closed_form(features, weight)
    torch.testing.assert_close(empirical_feature_matrix(features, weight), expected, rtol=0, atol=1e-10)


@quick
@given(seed=seeds, classes=st.integers(1, 6), dim=st.integers(6, 10))
def test_efm_has_rank_one_less_than_the_classes(seed: int, classes: int, dim: int) -> None:
    """Eq. 8: the rows of I − P are orthogonal to the all-ones vector, so one direction is lost."""
    matrix = empirical_feature_matrix(*problem(seed, 20, classes, dim))
    assert torch.linalg.matrix_rank(matrix, atol=1e-9, rtol=0) == classes - 1


@quick
@given(seed=seeds, samples=st.integers(1, 9), classes=st.integers(1, 6), dim=st.integers(1, 10))
def test_efm_is_symmetric_and_positive_semi_definite(seed: int, samples: int, classes: int, dim: int) -> None:
    """Eq. 7."""
    matrix = empirical_feature_matrix(*problem(seed, samples, classes, dim))
    assert torch.equal(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix).min() >= -1e-12


@quick
@given(seed=seeds)
def test_efm_ignores_what_softmax_ignores(seed: int) -> None:
    """Eq. 8: one vector added to every row of W changes no probability, hence no entry of E."""
    features, weight = problem(seed)
    moved = weight + torch.linspace(-1, 1, weight.shape[1], dtype=weight.dtype)
    expected = empirical_feature_matrix(features, weight)
    torch.testing.assert_close(empirical_feature_matrix(features, moved), expected, rtol=0, atol=1e-10)


def test_efm_in_chunks_is_the_efm_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight = problem(samples=23)
    expected = empirical_feature_matrix(features, weight)
    monkeypatch.setattr(efcil.paper.efm, "CHUNK", 5)
    torch.testing.assert_close(empirical_feature_matrix(features, weight), expected, rtol=0, atol=1e-12)


def test_sums_of_two_halves_add_up() -> None:
    """Eq. 7 is a mean of sums, so processes may share the samples."""
    features, weight = problem()
    halves = softmax_covariance_sum(features[:5], weight) + softmax_covariance_sum(features[5:], weight)
    torch.testing.assert_close(halves, softmax_covariance_sum(features, weight), rtol=0, atol=1e-12)


def test_efm_of_one_class_is_zero() -> None:
    assert not empirical_feature_matrix(*problem(classes=1)).any()


def test_float32_efm_is_close_to_float64() -> None:
    features, weight = problem(samples=50)
    expected = empirical_feature_matrix(features, weight)
    single = empirical_feature_matrix(features.float(), weight.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_stay_finite(dtype: torch.dtype) -> None:
    features, weight = problem()
    assert empirical_feature_matrix((1e4 * features).to(dtype), weight.to(dtype)).isfinite().all()


def test_float32_efm_of_a_confident_classifier_keeps_its_directions() -> None:
    """A trained network is nearly sure of its training images; E is then small, but its directions still count."""
    features, weight = confident_problem(scale=20.0)
    assert (torch.softmax(features @ weight.T, dim=1).amax(1) > 1 - 1e-5).all()
    expected = empirical_feature_matrix(features, weight)
    single = empirical_feature_matrix(features.float(), weight.float()).double()
    assert (single - expected).norm() <= 1e-3 * expected.norm()
    values = torch.linalg.eigvalsh(single)
    assert values[0] >= -1e-4 * values[-1]


def test_kl_divergence_is_half_the_quadratic_form() -> None:
    """Eq. 9 lacks a factor: KL(p(f + δ) ‖ p(f)) = ½ δᵀEδ + O(‖δ‖³), so the ratio tends to ½ at rate ‖δ‖."""
    features, weight = problem(samples=1)
    local = empirical_feature_matrix(features, weight)
    direction = F.normalize(torch.linspace(-1, 2, 8, dtype=torch.float64), dim=0)

    def ratio(length: float) -> float:
        before = torch.log_softmax(weight @ features[0], dim=0)
        after = torch.log_softmax(weight @ (features[0] + length * direction), dim=0)
        return float((after.exp() * (after - before)).sum() / pseudo_norm(length * direction, local))

    assert ratio(1e-3) == pytest.approx(0.5, abs=2e-3)
    assert abs(ratio(1e-3) - 0.5) < 0.2 * abs(ratio(1e-2) - 0.5)


@quick
@given(seed=seeds, lambda_efm=st.floats(0, 100), eta=st.floats(0, 10))
def test_efm_loss_is_the_mean_quadratic_form(seed: int, lambda_efm: float, eta: float) -> None:
    """Eq. 10, one sample at a time."""
    delta, weight = problem(seed)
    matrix = empirical_feature_matrix(delta, weight)
    damped = lambda_efm * matrix + eta * torch.eye(8, dtype=torch.float64)
    expected = sum(float(row @ damped @ row) for row in delta) / len(delta)
    assert float(efm_loss(delta, matrix, lambda_efm, eta)) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_efm_loss_without_the_efm_is_feature_distillation() -> None:
    """Eq. 5 is Eq. 10 with λ = 0 and η = 1: the mean squared length of the drift."""
    delta, weight = problem()
    expected = sum(float(row @ row) for row in delta) / len(delta)
    assert float(efm_loss(delta, empirical_feature_matrix(delta, weight), 0.0, 1.0)) == pytest.approx(expected)


def test_efm_loss_pulls_along_the_damped_efm() -> None:
    """The gradient of Eq. 10 for one sample is 2(λE + ηI)δ / B."""
    delta, weight = problem()
    matrix = empirical_feature_matrix(delta, weight)
    leaf = delta.clone().requires_grad_()
    efm_loss(leaf, matrix, 10.0, 0.1).backward()
    expected = 2 * (10.0 * delta @ matrix + 0.1 * delta) / len(delta)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=1e-10)


@quick
@given(seed=seeds, classes=st.integers(2, 6), dim=st.integers(1, 10))
def test_spectrum_rebuilds_the_matrix(seed: int, classes: int, dim: int) -> None:
    matrix = empirical_feature_matrix(*problem(seed, 9, classes, dim))
    values, vectors = spectrum(matrix)
    assert (values >= 0).all()
    assert (values[:-1] >= values[1:]).all()
    torch.testing.assert_close(vectors * values @ vectors.T, matrix, rtol=0, atol=1e-10)


@quick
@given(seed=seeds, classes=st.integers(1, 6), dim=st.integers(1, 10))
def test_factor_times_itself_is_the_matrix(seed: int, classes: int, dim: int) -> None:
    matrix = empirical_feature_matrix(*problem(seed, 9, classes, dim))
    thin = factor(matrix)
    assert thin.shape[0] == dim
    assert thin.shape[1] <= dim
    torch.testing.assert_close(thin @ thin.T, matrix, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factor_is_as_thin_as_the_rank(dtype: torch.dtype) -> None:
    features, weight = problem(classes=4)
    assert factor(empirical_feature_matrix(features, weight).to(dtype)).shape == (8, 3)


def test_factor_of_zero_has_no_columns() -> None:
    assert factor(torch.zeros(4, 4)).shape == (4, 0)


def test_perturbation_along_the_efm_moves_predictions_and_across_it_does_not() -> None:
    """Eq. 11, with the eigenvectors as columns: f + Uε."""
    features, weight = problem(classes=4)
    values, vectors = spectrum(empirical_feature_matrix(features, weight))
    assert (values > 1e-9).sum() == 3
    noise = torch.randn(8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    along, across = vectors[:, :3] @ noise[:3], vectors[:, 3:] @ noise[3:]
    before = torch.softmax(features @ weight.T, dim=1)
    torch.testing.assert_close(torch.softmax((features + across) @ weight.T, dim=1), before, rtol=0, atol=1e-10)
    assert (torch.softmax((features + along) @ weight.T, dim=1) - before).abs().max() > 0.1


@quick
@given(seed=seeds)
def test_pseudo_norm_is_the_quadratic_form_of_each_row(seed: int) -> None:
    """Eq. 19."""
    delta, weight = problem(seed)
    matrix = empirical_feature_matrix(delta, weight)
    expected = torch.stack([row @ matrix @ row for row in delta])
    torch.testing.assert_close(pseudo_norm(delta, matrix), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close((delta @ factor(matrix)).square().sum(1), expected, rtol=0, atol=1e-10)


def test_normalised_the_mean_of_the_eigenvalues_that_are_not_zero_is_one() -> None:
    basis = torch.linalg.qr(normal(4, 4)).Q
    matrix = basis @ torch.diag(torch.tensor([3.0, 1.0, 0.5, 0.0], dtype=torch.float64)) @ basis.T
    torch.testing.assert_close(normalised(matrix), matrix / 1.5)
    assert normalised(matrix.float()).dtype == torch.float32
    nothing = torch.zeros(3, 3)
    assert torch.equal(normalised(nothing), nothing)
