"""The factorisation that every Gaussian goes through: exact where there is a factor, near where rounding took it."""

from __future__ import annotations

import pytest
import torch

from conftest import normal
from efcil.engine.numerics import cholesky


def test_a_matrix_that_has_a_factor_keeps_it_to_the_last_digit() -> None:
    root = normal(6, 6)
    for matrix in (root @ root.T, (root @ root.T).float()):
        assert torch.equal(cholesky(matrix), torch.linalg.cholesky(matrix))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-20, 1e-5, 1.0, 1e5, 1e15])
def test_a_matrix_that_rounding_made_indefinite_gets_a_factor_that_is_near(size: float, dtype: torch.dtype) -> None:
    root = size * normal(40, 3).to(dtype)  # rank 3 of 40
    matrix = root @ root.T
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(matrix)
    factor = cholesky(matrix)
    assert torch.isfinite(factor).all() and torch.equal(factor, factor.tril())
    error = (factor.double() @ factor.double().T - matrix.double()).abs().max()
    assert error < 1e3 * torch.finfo(dtype).eps * matrix.abs().max()


def test_the_gradient_passes_through_what_was_added() -> None:
    root = normal(8, 2).requires_grad_()
    cholesky(root @ root.T).diagonal().sum().backward()
    assert root.grad is not None and torch.isfinite(root.grad).all()
