"""Spearman's ρ equals its definition and cases worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ensue.metrics.scores import spearman


def test_correlations_worked_by_hand_are_correct() -> None:
    a = np.array([1.0, 2, 3, 4, 5])
    assert spearman(a, a**3) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(a, np.array([2.0, 1, 4, 3, 5])) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert spearman(a, np.ones(5)) == 0
    assert spearman(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(np.sqrt(0.75))


@given(arrays.arrays(float, (2, 9), elements=st.integers(-3, 3)))
def test_ranks_are_numbers_of_smaller_values_and_half_of_equal_ones(values: np.ndarray) -> None:
    ranks = [[sum(row < x) + (sum(row == x) + 1) / 2 for x in row] for row in values]
    if min(np.std(ranks, axis=1)) > 0:
        assert spearman(*values) == pytest.approx(np.corrcoef(ranks)[0, 1])
