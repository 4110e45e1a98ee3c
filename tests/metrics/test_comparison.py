"""The paired bootstrap: how often it is right, and that sums of items are the scores."""

import numpy as np
import pytest

from ensue.metrics.scores import MAX_ROWS, ItemRows, ScoredItems, _compute_difference, differences, f1_score, quotient


def answers(rng: np.random.Generator, share: float, size: int = 200) -> ScoredItems:
    rows = ItemRows()
    for right in rng.random(size) < share:
        rows.append((right, 1))
    return rows.build_items("texts", {"accuracy": quotient(0, 1)})


def test_a_difference_of_nothing_is_chance() -> None:
    one = answers(np.random.default_rng(0), 0.7)
    (found,) = differences(one, one).values()
    assert (found.value, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.slow
def test_it_errs_as_often_as_it_says() -> None:
    """Of models that are equally good, one in twenty differs with p below 0.05; of others most do."""
    rng = np.random.default_rng(1)
    equal = [differences(answers(rng, 0.7), answers(rng, 0.7))["accuracy"] for _ in range(400)]
    assert 0.02 < np.mean([found.p < 0.05 for found in equal]) < 0.09
    assert 0.9 < np.mean([found.low <= 0 <= found.high for found in equal]) < 0.98
    better = [differences(answers(rng, 0.85), answers(rng, 0.65))["accuracy"] for _ in range(40)]
    assert np.mean([found.p < 0.05 for found in better]) > 0.9


def test_neighbors_together_have_the_same_sums() -> None:
    rows, size = ItemRows(), 2 * MAX_ROWS + 3
    for number in range(size):
        rows.append((number % 3 == 0, 1, number % 2))
    found = rows.build_items("sentences", {"accuracy": quotient(0, 1), "f1": f1_score(0, 1, 2), "none": quotient(0, 0)})
    assert (found.size, len(found.rows)) == (size, MAX_ROWS // 2 + 1)
    right, odd = -(-size // 3), size // 2
    assert found.compute() == {"accuracy": right / size, "f1": 2 * right / (size + odd), "none": 1.0}


def test_other_items_are_not_compared() -> None:
    rng = np.random.default_rng(2)
    assert differences(answers(rng, 0.5), answers(rng, 0.5, size=201)) == {}
    assert differences(answers(rng, 0.5, size=1), answers(rng, 0.5, size=1)) == {}


def test_p_is_the_share_of_samples_that_are_as_far_from_their_mean() -> None:
    """Samples stand around the difference: none of these is 1 away from it, so p is (0 + 1) / (3 + 1)."""
    assert _compute_difference(1.0, np.array([0.9, 1.0, 1.1])).p == 0.25
