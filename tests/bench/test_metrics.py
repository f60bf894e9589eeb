"""Accuracy, forgetting and plasticity (Eqs. 21-23) against matrices worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from efcil.bench.metrics import NAMES, summarize
from efcil.errors import UserError

NAN = float("nan")
quick = settings(deadline=None, max_examples=60)

Case = tuple[NDArray[np.float64], list[int]]


@st.composite
def cases(draw: st.DrawFn, least: int = 1) -> Case:
    """A lower triangle of accuracies in [0, 1], NaN above it, and class counts."""
    tasks = draw(st.integers(least, 5))
    values = draw(st.lists(st.floats(0, 1), min_size=tasks * tasks, max_size=tasks * tasks))
    matrix = np.array(values).reshape(tasks, tasks)
    matrix[np.triu_indices(tasks, 1)] = NAN
    return matrix, draw(st.lists(st.integers(1, 50), min_size=tasks, max_size=tasks))


def check(
    matrix: object, classes: list[int], a_step: float, a_inc: float, forgetting: float, plasticity: float
) -> None:
    assert summarize(matrix, classes) == pytest.approx(
        {
            "per_step_accuracy": a_step,
            "average_incremental_accuracy": a_inc,
            "average_forgetting": forgetting,
            "plasticity": plasticity,
        }
    )


def test_one_task_has_one_accuracy_and_no_forgetting() -> None:
    check([[0.8]], [10], a_step=0.8, a_inc=0.8, forgetting=0.0, plasticity=0.8)


def test_two_equal_tasks_by_hand() -> None:
    """Eqs. 21-23, cold start.

    A_step: 0.9, then (0.5 + 0.7)/2 = 0.6.  A_inc: (0.9 + 0.6)/2 = 0.75.
    F: 0.9 − 0.5 = 0.4.  PL: (0.9 + 0.7)/2 = 0.8.
    """
    check([[0.9, NAN], [0.5, 0.7]], [5, 5], a_step=0.6, a_inc=0.75, forgetting=0.4, plasticity=0.8)


def test_three_equal_tasks_by_hand() -> None:
    """Eqs. 21-23, cold start; the second task is at its best after the third, the first after the second.

    A_step: 0.8, then (0.9 + 0.7)/2 = 0.8, then (0.6 + 0.75 + 0.9)/3 = 0.75.
    A_inc: (0.8 + 0.8 + 0.75)/3 = 0.78333.
    F: task 1 max(0.8, 0.9) − 0.6 = 0.3, task 2 0.7 − 0.75 = −0.05, mean 0.125.
    PL: (0.8 + 0.7 + 0.9)/3 = 0.8.
    """
    matrix = [[0.8, NAN, NAN], [0.9, 0.7, NAN], [0.6, 0.75, 0.9]]
    check(matrix, [10, 10, 10], a_step=0.75, a_inc=2.35 / 3, forgetting=0.125, plasticity=0.8)


def test_warm_start_weights_tasks_by_their_classes() -> None:
    """Eqs. 21-23, warm start with 50 classes first, then 5 and 5; step 0 counts.

    A_step: 0.8, then (50·0.7 + 5·0.6)/55 = 38/55, then (50·0.6 + 5·0.4 + 5·0.9)/60 = 36.5/60.
    A_inc is the plain mean of the three. F: (0.8 − 0.6 + 0.6 − 0.4)/2 = 0.2, tasks weighing the same.
    PL: (0.8 + 0.6 + 0.9)/3.
    """
    matrix = [[0.8, NAN, NAN], [0.7, 0.6, NAN], [0.6, 0.4, 0.9]]
    a_inc = (0.8 + 38 / 55 + 36.5 / 60) / 3
    check(matrix, [50, 5, 5], a_step=36.5 / 60, a_inc=a_inc, forgetting=0.2, plasticity=2.3 / 3)


def test_numbers_keep_the_unit_of_the_matrix() -> None:
    check(np.array([[90, 0], [50, 70]]), [5, 5], a_step=60, a_inc=75, forgetting=40, plasticity=80)


def test_every_number_has_a_printed_name() -> None:
    assert set(summarize([[1.0]], [1])) == set(NAMES)


@quick
@given(cases())
def test_a_step_lies_between_the_worst_and_the_best_task(case: Case) -> None:
    """Eq. 21, left, is a weighted mean."""
    matrix, classes = case
    value = summarize(matrix, classes)["per_step_accuracy"]
    assert matrix[-1].min() - 1e-12 <= value <= matrix[-1].max() + 1e-12


@quick
@given(cases())
def test_a_inc_is_the_mean_of_a_step_over_shorter_runs(case: Case) -> None:
    """Eq. 21, right: stop after each step in turn."""
    matrix, classes = case
    steps = [summarize(matrix[:k, :k], classes[:k])["per_step_accuracy"] for k in range(1, len(classes) + 1)]
    assert summarize(matrix, classes)["average_incremental_accuracy"] == pytest.approx(sum(steps) / len(steps))


@quick
@given(cases(least=2))
def test_forgetting_is_at_least_the_loss_since_learning(case: Case) -> None:
    """Eqs. 22-23: the best past accuracy is no worse than the one just after learning the task."""
    matrix, classes = case
    since = np.mean([matrix[j, j] - matrix[-1, j] for j in range(len(matrix) - 1)])
    value = summarize(matrix, classes)["average_forgetting"]
    assert since - 1e-12 <= value <= 1


@quick
@given(cases(least=2))
def test_nothing_is_forgotten_when_accuracies_only_rise(case: Case) -> None:
    """Eq. 22."""
    matrix, classes = case
    rising = np.maximum.accumulate(np.nan_to_num(matrix), axis=0)
    assert summarize(rising, classes)["average_forgetting"] <= 1e-12


@quick
@given(cases(), st.floats(0, 100))
def test_entries_above_the_diagonal_do_not_count(case: Case, value: float) -> None:
    matrix, classes = case
    filled = np.where(np.isnan(matrix), value, matrix)
    assert summarize(filled, classes) == summarize(matrix, classes)


@quick
@given(cases(), st.floats(-1, 1))
def test_a_constant_added_moves_accuracies_and_not_forgetting(case: Case, constant: float) -> None:
    matrix, classes = case
    expected = {name: value + constant for name, value in summarize(matrix, classes).items()}
    expected["average_forgetting"] -= constant
    assert summarize(matrix + constant, classes) == pytest.approx(expected, abs=1e-9)


@quick
@given(cases(), st.integers(2, 7))
def test_only_the_proportions_of_class_counts_matter(case: Case, times: int) -> None:
    """Eq. 21."""
    matrix, classes = case
    assert summarize(matrix, [times * c for c in classes]) == pytest.approx(summarize(matrix, classes), abs=1e-12)


@quick
@given(cases(), st.randoms(use_true_random=False))
def test_a_step_does_not_depend_on_the_order_of_tasks(case: Case, random: object) -> None:
    """Eq. 21, left: the last row and the class counts, permuted together."""
    matrix, classes = case
    order = list(range(len(classes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    permuted = np.nan_to_num(matrix)
    permuted[-1] = matrix[-1, order]
    value = summarize(permuted, [classes[i] for i in order])["per_step_accuracy"]
    assert value == pytest.approx(summarize(matrix, classes)["per_step_accuracy"], abs=1e-12)


@pytest.mark.parametrize(
    ("matrix", "classes", "message"),
    [
        ([], [], "must be square"),
        ([0.5], [1], "must be square"),
        ([[0.5, 0.5]], [1], r"must be square.*\(1, 2\)"),
        ([[0.5, NAN], [0.5, 0.5]], [1], "2 positive numbers"),
        ([[0.5]], [0], "1 positive numbers"),
        ([[0.5]], [-3], r"1 positive numbers, not \[-3\]"),
        ([[0.5]], [NAN], "1 positive numbers"),
        ([[0.5]], [float("inf")], "1 positive numbers"),
        ([[0.5]], [None], "1 positive numbers"),
        ([[None]], [1], "missing numbers"),
        ([[0.5]], ["many"], "hold numbers only"),
        ([["good"]], [1], "hold numbers only"),
        ([[0.5, NAN], [NAN, 0.5]], [1, 1], "missing numbers on or below its diagonal"),
        ([[float("inf")]], [1], "missing numbers"),
        ([[0.5], [0.5, 0.5]], [1, 1], "must be square"),
    ],
)
def test_wrong_input_is_explained(matrix: object, classes: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        summarize(matrix, classes)


def test_numbers_of_any_kind_are_numbers() -> None:
    matrix, classes = [[Fraction(1, 2), 0], [Fraction(1, 4), 1]], [Fraction(3), Fraction(1)]
    assert summarize(matrix, classes) == summarize([[0.5, 0.0], [0.25, 1.0]], [3, 1])
