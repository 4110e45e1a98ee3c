"""The paired bootstrap has its rate of errors, and sums of items give the scores."""

import numpy as np
import pytest

from ensue.metrics.scores import MAX_ROWS, ItemRows, ScoredItems, _compute_difference, differences, f1_score, quotient


def answers(rng: np.random.Generator, share: float, size: int = 200) -> ScoredItems:
    rows = ItemRows()
    for right in rng.random(size) < share:
        rows.append((right, 1))
    return rows.build_items("texts", {"accuracy": quotient(0, 1)})


def test_equal_models_have_p_1() -> None:
    items = answers(np.random.default_rng(0), 0.7)
    (difference,) = differences(items, items).values()
    assert (difference.value, difference.low, difference.high, difference.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.slow
def test_the_test_has_its_rate_of_errors() -> None:
    """One of twenty pairs of equally good models has p below 0.05, and most other pairs do."""
    rng = np.random.default_rng(1)
    equal = [differences(answers(rng, 0.7), answers(rng, 0.7))["accuracy"] for _ in range(400)]
    assert 0.02 < np.mean([difference.p < 0.05 for difference in equal]) < 0.09
    assert 0.9 < np.mean([difference.low <= 0 <= difference.high for difference in equal]) < 0.98
    better = [differences(answers(rng, 0.85), answers(rng, 0.65))["accuracy"] for _ in range(40)]
    assert np.mean([difference.p < 0.05 for difference in better]) > 0.9


def test_groups_of_neighbors_have_the_same_sums() -> None:
    rows, size = ItemRows(), 2 * MAX_ROWS + 3
    for number in range(size):
        rows.append((number % 3 == 0, 1, number % 2))
    items = rows.build_items("sentences", {"accuracy": quotient(0, 1), "f1": f1_score(0, 1, 2), "none": quotient(0, 0)})
    assert (items.size, len(items.rows)) == (size, MAX_ROWS // 2 + 1)
    right, odd = -(-size // 3), size // 2
    assert items.compute() == {"accuracy": right / size, "f1": 2 * right / (size + odd), "none": 1.0}


def test_different_items_are_not_compared() -> None:
    rng = np.random.default_rng(2)
    assert differences(answers(rng, 0.5), answers(rng, 0.5, size=201)) == {}
    assert differences(answers(rng, 0.5, size=1), answers(rng, 0.5, size=1)) == {}


def test_p_is_the_share_of_samples_that_are_as_far_from_their_mean() -> None:
    """None of the samples is 1 or more from the difference, so p is (0 + 1) / (3 + 1)."""
    assert _compute_difference(1.0, np.array([0.9, 1.0, 1.1])).p == 0.25
