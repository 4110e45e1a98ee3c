"""The updates twice: in numpy, example by example, and in C (updates.c), on as many threads as torch has.

Those in numpy are what the compiled ones are compared with, and what runs without a compiler. The code in C is compiled
for each length of vectors, on first use, as the engine's cells are. It checks nothing; all that it is handed is checked
here: arrays that do not change once, the others before each call.

Negative sampling (Mikolov et al. 2013): h has to tell a word o from words of noise o₁ … o_K. With e = 1 - σ(h·v_o) for
the word and e_k = -σ(h·v_k) for noise, each v moves by η e h and h by η Σ e v, all from the values before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.engine.c_library import library
from ensue.engine.products import in_parts
from ensue.engine.storage import address
from ensue.tasks.word_vectors.examples import NegativeSampling, WordExamples
from ensue.version import package_text

Reals = NDArray[np.floating]


def sample_in_numpy(
    plan: NegativeSampling, examples: WordExamples, vectors: Reals, outputs: Reals, rate: float
) -> float:
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


def step_on_counts_in_numpy(
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


@cache
def functions(dimension: int, negatives: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for vectors of this length; None without a compiler."""
    text = package_text("tasks/word_vectors/updates.c")
    found = library(text, dtype, (f"-DDIMENSION={dimension}", f"-DNEGATIVES={negatives}"))
    for name in ("cbow", "skip_gram", "glove") if found else ():
        getattr(found, name).restype = ctypes.c_double
    return found


class CompiledSampling:
    """Negative sampling for `words` words whose vectors, with those of n-grams, are `rows` rows."""

    def __init__(self, plan: NegativeSampling, *, words: int, rows: int, dimension: int, dtype: torch.dtype) -> None:
        self.plan, self.words, self.rows, self.dimension, self.dtype = plan, words, rows, dimension, dtype
        found = functions(dimension, plan.negatives, dtype)
        assert found is not None
        self._function = getattr(found, plan.kind.replace("-", "_"))
        self._noise = _constant(plan.noise.threshold.view(np.int32)), _constant(plan.noise.other)
        if not plan.noise.size == len(plan.noise.threshold) == words:
            raise ValueError(f"noise is expected of {words} words, found {plan.noise.size}")
        _check_values("noise", plan.noise.other, words)
        self._subwords = None if plan.subwords is None else _checked_subwords(plan.subwords, words, rows)

    def sample(self, examples: WordExamples, vectors: Tensor, outputs: Tensor, rate: float) -> float:
        """The updates of `examples`, in place; returns the loss in nats before each.

        Raises:
            ValueError, TypeError: an array has not the size, type, layout or values that C takes it to have.
        """
        count, plan = len(examples.ids), self.plan
        names = ("ids", "left", "right")
        arrays = [_address(name, getattr(examples, name), torch.int32, count) for name in names]
        _check_values("ids", examples.ids, self.words)
        _check_values("left", examples.left, count)
        _check_values("right", examples.right, count + 1)
        if (np.abs(np.stack([examples.left, examples.right - 1]) - np.arange(count)) > plan.window).any():
            raise ValueError(f"a context reaches further than {plan.window} words")
        centers = examples.centers
        if centers.step != 1 or not 0 <= centers.start <= centers.stop <= count:
            raise ValueError(f"examples are expected in 0 to {count}, found {centers}")
        arrays += [
            ctypes.c_void_p(address("vectors", vectors, self.dtype, (self.rows, self.dimension))),
            ctypes.c_void_p(address("outputs", outputs, self.dtype, (self.words, self.dimension))),
            *(
                [None, None]
                if self._subwords is None
                else (ctypes.c_void_p(part.data_ptr()) for part in self._subwords)
            ),
            *(ctypes.c_void_p(part.data_ptr()) for part in self._noise),
        ]
        numbers = ctypes.c_uint64(plan.noise.size), ctypes.c_uint64(examples.key), ctypes.c_int64(plan.window)
        return _in_parts(centers, lambda *part: self._function(*part, *arrays, *numbers, ctypes.c_double(rate)))


def step_on_counts(
    batch: Sequence[NDArray[Any]], tables: Sequence[Tensor], squares: Sequence[Tensor], rate: float
) -> float:
    """The updates of GloVe in place; returns the loss before each.

    `batch` are pairs of words, logarithms and weights; `tables` the vectors, the contexts' vectors and both biases;
    `squares` their sums of squares. Raises as `CompiledSampling.sample` does.
    """
    (words, dimension), dtype = tables[0].shape, tables[0].dtype
    found = functions(dimension, 0, dtype)
    assert found is not None
    for name, array in zip(("words", "words near"), batch, strict=False):
        _check_values(name, array, words)
    types = (torch.int32, torch.int32, torch.float32, torch.float32)
    arrays = [_address("a batch", array, kind, len(batch[0])) for array, kind in zip(batch, types, strict=True)]
    sizes = [(words, dimension)] * 2 + [(words,)] * 2
    arrays += [
        ctypes.c_void_p(address("a table", tensor, dtype, size))
        for tensor, size in zip([*tables, *squares], sizes * 2, strict=True)
    ]
    return _in_parts(range(len(batch[0])), lambda *part: found.glove(*part, *arrays, ctypes.c_double(rate)))


def _in_parts(places: range, work: Any) -> float:
    """The sum of `work(first, last)` over parts of the places, each on a thread of its own."""
    sums = [0.0] * torch.get_num_threads()

    def add(first: int, last: int, worker: int) -> None:
        sums[worker] = work(ctypes.c_int64(places.start + first), ctypes.c_int64(places.start + last))

    if places:
        in_parts(len(places), add)
    return sum(sums)


def _checked_subwords(subwords: Ragged, words: int, rows: int) -> tuple[Tensor, Tensor]:
    starts = subwords.starts
    if len(starts) != words + 1 or starts[0] != 0 or starts[-1] != len(subwords.values) or (np.diff(starts) < 0).any():
        raise ValueError(f"n-grams are expected for each of {words} words")
    _check_values("n-grams", subwords.values, rows)
    return _constant(subwords.values, torch.int32), _constant(starts, torch.int64)


def _constant(array: NDArray[Any], dtype: torch.dtype = torch.int32) -> Tensor:
    """A copy that nobody else can change."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype, copy=True)


def _check_values(name: str, array: NDArray[np.integer], limit: int) -> None:
    if len(array) and not 0 <= int(array.min()) <= int(array.max()) < limit:
        raise ValueError(f"{name} are expected from 0 to {limit - 1}, found {int(array.min())} to {int(array.max())}")


def _address(name: str, array: NDArray[Any], dtype: torch.dtype, size: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address(name, torch.from_numpy(array), dtype, (size,)))
