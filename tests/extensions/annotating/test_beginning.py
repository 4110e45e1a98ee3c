"""Probabilities of the labels of a pool of texts, from a few examples of each label."""

import numpy as np
import pytest

from ensue.extensions.annotating.beginning import CONCENTRATION, EXAMPLE_WEIGHT, NUM_ROUNDS, label_probabilities


def test_probabilities_equal_the_written_out_equations() -> None:
    generator = np.random.default_rng(1)
    pool, examples = generator.normal(size=(9, 5)), generator.normal(size=(4, 5))
    labels = np.array([0, 1, 2, 1])
    u, e = ([v / np.sqrt(v @ v) for v in vectors] for vectors in (pool, examples))
    sums = [sum(EXAMPLE_WEIGHT * v for v, label in zip(e, labels, strict=True) if label == k) for k in range(3)]
    means = [v / np.sqrt(v @ v) for v in sums]
    for round in range(NUM_ROUNDS + 1):
        p = []
        for v in u:
            powers = [np.exp(CONCENTRATION * (v @ mean)) for mean in means]
            p.append([power / sum(powers) for power in powers])
        if round < NUM_ROUNDS:
            moved = [sums[k] + sum(row[k] * v for row, v in zip(p, u, strict=True)) for k in range(3)]
            means = [v / np.sqrt(v @ v) for v in moved]
    probabilities = label_probabilities(pool.astype(np.float32), examples.astype(np.float32), labels)
    assert probabilities == pytest.approx(np.array(p), abs=1e-4)


def test_a_zero_vector_has_equal_probabilities() -> None:
    pool = np.array([[0, 0], [3, 0], [0, 2]], np.float32)
    shares = label_probabilities(pool, np.array([[1, 0], [0, 1]], np.float32), np.array([0, 1]))
    assert shares[0] == pytest.approx([0.5, 0.5])
    assert shares[1:].argmax(1).tolist() == [0, 1]
    assert len(label_probabilities(pool[:0], pool[1:], np.array([0, 1]))) == 0
