"""The updates in numpy, example by example: what the compiled ones are compared with, and what runs without a compiler.

Negative sampling (Mikolov et al. 2013): h has to tell a word o from words of noise o₁ … o_K. With e = 1 - σ(h·v_o) for
the word and e_k = -σ(h·v_k) for noise, each v moves by η e h and h by η Σ e v, all from the values before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.tasks.word_vectors.examples import NegativeSampling, WordExamples

Reals = NDArray[np.floating]


def sample(plan: NegativeSampling, examples: WordExamples, vectors: Reals, outputs: Reals, rate: float) -> float:
    """The updates of `examples` by negative sampling, in place; returns the loss in nats before each."""
    update = _cbow if plan.kind == "cbow" else _skip_gram
    return sum(update(plan, examples, i, vectors, outputs, rate) for i in examples.centers)


def _cbow(plan: NegativeSampling, examples: WordExamples, i: int, vectors: Reals, outputs: Reals, rate: float) -> float:
    """The mean of the context's rows has to tell the word; each of these rows then moves by the whole step."""
    context = [examples.ids[j] for j in range(examples.left[i], examples.right[i]) if j != i]
    if not context:
        return 0.0
    rows = np.concatenate([plan.rows(word) for word in context])
    nats, move = _learn(plan, examples.key, i, vectors[rows].mean(0), examples.ids[i], outputs, rate)
    np.add.at(vectors, rows, move)
    return nats


def _skip_gram(
    plan: NegativeSampling, examples: WordExamples, i: int, vectors: Reals, outputs: Reals, rate: float
) -> float:
    """The mean of the word's rows has to tell each word of the context, one after another."""
    rows = plan.rows(examples.ids[i])
    before = vectors[rows].mean(0)
    h, total = before.copy(), 0.0
    for j in range(examples.left[i], examples.right[i]):
        if j != i:
            place = i * (2 * plan.window + 1) + j - i + plan.window
            nats, move = _learn(plan, examples.key, place, h, examples.ids[j], outputs, rate)
            h += move
            total += nats
    np.add.at(vectors, rows, h - before)
    return total


def _learn(
    plan: NegativeSampling, key: int, place: int, h: Reals, target: int, outputs: Reals, rate: float
) -> tuple[float, Reals]:
    """One example: the loss, and what h has to move by. A word of noise that is the target does not count."""
    drawn = plan.noise.draw(key, place * plan.negatives + np.arange(plan.negatives))
    words = np.concatenate([[target], drawn[drawn != target]])
    is_target = np.arange(len(words)) == 0
    error = is_target - 1 / (1 + np.exp(-(outputs[words] @ h)))
    move = (rate * error @ outputs[words]).astype(h.dtype)
    np.add.at(outputs, words, rate * error[:, None] * h)
    return float(-np.log(np.maximum(1 - np.abs(error), 1e-30)).sum()), move


def step_on_counts(
    batch: Sequence[NDArray[Any]], tables: Sequence[Reals], squares: Sequence[Reals], rate: float
) -> float:
    """The updates of GloVe in place; returns the loss before each. See `task.py`."""
    (vectors, contexts, biases, context_biases), total = tables, 0.0
    for of, near, logarithm, weight in zip(*batch, strict=True):
        difference = vectors[of] @ contexts[near] + biases[of] + context_biases[near] - logarithm
        total += 0.5 * float(weight * difference * difference)
        g = rate * weight * difference
        gradients = (g * contexts[near], g * vectors[of], g, g)
        for table, square, row, gradient in zip(tables, squares, (of, near, of, near), gradients, strict=True):
            table[row] -= gradient / np.sqrt(square[row])
            square[row] += gradient**2
    return total
