"""The training tasks of word vectors: negative sampling on words in context, and GloVe on counts of pairs.

    J = Σ_ij f(X_ij) (w_i·c_j + b_i + a_j - log X_ij)² / 2,   f(x) = min(1, (x / largest_count)^power)

GloVe uses AdaGrad with an update for each pair (Pennington et al. 2014). The state between steps has the sums of
squared gradients, which begin at 1, as in the published program. These sums are updated in place to save memory.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.engine.c_library import library
from ensue.engine.products import parallel_rows
from ensue.engine.storage import address
from ensue.extensions.word_vectors.examples import NegativeSampling, WordContexts, WordExamples
from ensue.extensions.word_vectors.model import CountedVectors, SampledVectors
from ensue.notices import warn_once
from ensue.tasks.contract.task import Batch, LazyBatch, Task
from ensue.types import Loss, State
from ensue.version import package_text

FloatArray = NDArray[np.floating]


def update_by_sampling_in_numpy(
    sampling: NegativeSampling, examples: WordExamples, vectors: FloatArray, outputs: FloatArray, rate: float
) -> float:
    """Update the tables by negative sampling, in place; return the sum of the losses before each update, in nats."""
    update = _update_cbow if sampling.kind == "cbow" else _update_skip_gram
    return sum(update(sampling, examples, i, vectors, outputs, rate) for i in examples.centers)


def _update_cbow(
    sampling: NegativeSampling, examples: WordExamples, i: int, vectors: FloatArray, outputs: FloatArray, rate: float
) -> float:
    """Predict word i from the mean of the rows of its context. As in word2vec, each row gets the full step."""
    context = [examples.ids[j] for j in range(examples.left[i], examples.right[i]) if j != i]
    if not context:
        return 0.0
    rows = np.concatenate([sampling.rows(word) for word in context])
    nats, step = _update_outputs(sampling, examples.key, i, vectors[rows].mean(0), examples.ids[i], outputs, rate)
    np.add.at(vectors, rows, step)
    return nats


def _update_skip_gram(
    sampling: NegativeSampling, examples: WordExamples, i: int, vectors: FloatArray, outputs: FloatArray, rate: float
) -> float:
    """Predict each word of the context, one after another, from the mean of the rows of word i."""
    rows = sampling.rows(examples.ids[i])
    before = vectors[rows].mean(0)
    h, total = before.copy(), 0.0
    for j in range(examples.left[i], examples.right[i]):
        if j != i:
            pair = i * (2 * sampling.window + 1) + j - i + sampling.window
            nats, step = _update_outputs(sampling, examples.key, pair, h, examples.ids[j], outputs, rate)
            h += step
            total += nats
    np.add.at(vectors, rows, h - before)
    return total


def _update_outputs(
    sampling: NegativeSampling, key: int, example: int, h: FloatArray, target: int, outputs: FloatArray, rate: float
) -> tuple[float, FloatArray]:
    """Update the output vectors; return the loss and the update of h. Noise words equal to the target are skipped."""
    drawn = sampling.noise.draw(key, example * sampling.negatives + np.arange(sampling.negatives))
    words = np.concatenate([[target], drawn[drawn != target]])
    is_target = np.arange(len(words)) == 0
    error = is_target - 1 / (1 + np.exp(-(outputs[words] @ h)))
    step = (rate * error @ outputs[words]).astype(h.dtype)
    np.add.at(outputs, words, rate * error[:, None] * h)
    return float(-np.log(np.maximum(1 - np.abs(error), 1e-30)).sum()), step


def update_glove_in_numpy(
    batch: Sequence[NDArray[Any]], tables: Sequence[FloatArray], squares: Sequence[FloatArray], rate: float
) -> float:
    """Update the tables of GloVe in place; return the sum of the losses before each update."""
    (vectors, contexts, biases, context_biases), total = tables, 0.0
    for i, j, logarithm, weight in zip(*batch, strict=True):
        difference = vectors[i] @ contexts[j] + biases[i] + context_biases[j] - logarithm
        total += 0.5 * float(weight * difference * difference)
        g = rate * weight * difference
        gradients = (g * contexts[j], g * vectors[i], g, g)
        for table, square, row, gradient in zip(tables, squares, (i, j, i, j), gradients, strict=True):
            table[row] -= gradient / np.sqrt(square[row])
            square[row] += gradient**2
    return total


@cache
def compiled_functions(dimension: int, negatives: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the compiled functions for vectors of this dimension; None without a compiler."""
    text = package_text("extensions/word_vectors/updates.c")
    compiled = library(text, dtype, (f"-DDIMENSION={dimension}", f"-DNEGATIVES={negatives}"))
    for name in ("cbow", "skip_gram", "glove") if compiled else ():
        getattr(compiled, name).restype = ctypes.c_double
    return compiled


class CompiledSampling:
    """The compiled updates of negative sampling for `words` words and a table of `rows` vectors."""

    def __init__(
        self, sampling: NegativeSampling, *, words: int, rows: int, dimension: int, dtype: torch.dtype
    ) -> None:
        self.sampling, self.words, self.rows, self.dimension, self.dtype = sampling, words, rows, dimension, dtype
        compiled = compiled_functions(dimension, sampling.negatives, dtype)
        assert compiled is not None
        self._function = getattr(compiled, sampling.kind.replace("-", "_"))
        self._noise = _copy(sampling.noise.threshold.view(np.int32)), _copy(sampling.noise.alias)
        if not sampling.noise.size == len(sampling.noise.threshold) == words:
            raise ValueError(f"noise: expected {words} words, found {sampling.noise.size}")
        _check_values("noise", sampling.noise.alias, words)
        self._subwords = _copy_subwords(sampling.subwords, words, rows)

    def update(self, examples: WordExamples, vectors: Tensor, outputs: Tensor, rate: float) -> float:
        """Update the tables in place; return the sum of the losses before each update, in nats.

        Raises ValueError or TypeError for an array whose values, shape or type the C code does not allow.
        """
        count, sampling = len(examples.ids), self.sampling
        names = ("ids", "left", "right")
        arrays = [_address(name, getattr(examples, name), torch.int32, count) for name in names]
        _check_values("ids", examples.ids, self.words)
        _check_values("left", examples.left, count)
        _check_values("right", examples.right, count + 1)
        if (np.abs(np.stack([examples.left, examples.right - 1]) - np.arange(count)) > sampling.window).any():
            raise ValueError(f"a context is wider than {sampling.window} words on a side")
        centers = examples.centers
        if centers.step != 1 or not 0 <= centers.start <= centers.stop <= count:
            raise ValueError(f"centers: expected a range within 0 to {count}, found {centers}")
        tensors: list[ctypes.c_void_p | None] = [
            ctypes.c_void_p(address("vectors", vectors, self.dtype, (self.rows, self.dimension))),
            ctypes.c_void_p(address("outputs", outputs, self.dtype, (self.words, self.dimension))),
            *(None if array is None else ctypes.c_void_p(array.data_ptr()) for array in self._subwords),
            *(ctypes.c_void_p(array.data_ptr()) for array in self._noise),
        ]
        numbers = ctypes.c_uint64(sampling.noise.size), ctypes.c_uint64(examples.key), ctypes.c_int64(sampling.window)
        arguments = *arrays, *tensors, *numbers, ctypes.c_double(rate)
        return _sum_over_threads(centers, lambda *bounds: self._function(*bounds, *arguments))


def update_glove(
    batch: Sequence[NDArray[Any]], tables: Sequence[Tensor], squares: Sequence[Tensor], rate: float
) -> float:
    """Update the tables of GloVe in place; return the sum of the losses before each update.

    `batch` has the columns (n,) of `PairBatch`. `squares` has the sums of squared gradients of `tables`. Raises
    ValueError or TypeError for an array whose values, shape or type the C code does not allow.
    """
    (words, dimension), dtype = tables[0].shape, tables[0].dtype
    compiled = compiled_functions(dimension, 0, dtype)
    assert compiled is not None
    for name, array in zip(("words", "contexts"), batch, strict=False):
        _check_values(name, array, words)
    types = (torch.int32, torch.int32, torch.float32, torch.float32)
    arrays = [_address("a batch", array, kind, len(batch[0])) for array, kind in zip(batch, types, strict=True)]
    sizes = [(words, dimension)] * 2 + [(words,)] * 2
    arrays += [
        ctypes.c_void_p(address("a table", tensor, dtype, size))
        for tensor, size in zip([*tables, *squares], sizes * 2, strict=True)
    ]
    rows = range(len(batch[0]))
    return _sum_over_threads(rows, lambda *bounds: compiled.glove(*bounds, *arrays, ctypes.c_double(rate)))


def _sum_over_threads(rows: range, update: Any) -> float:
    """Split the range `rows` among threads, and return the sum of `update(start, stop)` over the subranges."""
    sums = [0.0] * torch.get_num_threads()

    def add(start: int, stop: int, thread: int) -> None:
        sums[thread] = update(ctypes.c_int64(rows.start + start), ctypes.c_int64(rows.start + stop))

    if rows:
        parallel_rows(len(rows), add)
    return sum(sums)


def _copy_subwords(subwords: Ragged | None, words: int, rows: int) -> tuple[Tensor, Tensor] | tuple[None, None]:
    if subwords is None:
        return None, None
    starts = subwords.starts
    if len(starts) != words + 1 or starts[0] != 0 or starts[-1] != len(subwords.values) or (np.diff(starts) < 0).any():
        raise ValueError(f"n-grams: expected offsets for each of {words} words")
    _check_values("n-grams", subwords.values, rows)
    return _copy(subwords.values, torch.int32), _copy(starts, torch.int64)


def _copy(array: NDArray[Any], dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype, copy=True)


def _check_values(name: str, array: NDArray[np.integer], limit: int) -> None:
    if len(array) and not 0 <= int(array.min()) <= int(array.max()) < limit:
        actual = f"{int(array.min())} to {int(array.max())}"
        raise ValueError(f"{name}: expected values from 0 to {limit - 1}, found {actual}")


def _address(name: str, array: NDArray[Any], dtype: torch.dtype, size: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address(name, torch.from_numpy(array), dtype, (size,)))


NO_COMPILER = (
    "no C compiler: word vectors are trained in numpy, about 80 times slower; `pip install ziglang` installs one"
)


class SampledTask(Task[SampledVectors, WordExamples]):
    """The training task of negative sampling on `contexts`."""

    def __init__(self, contexts: WordContexts, sampling: NegativeSampling, *, judged_by: str) -> None:
        self.contexts, self.sampling, self.judged_by = contexts, sampling, judged_by
        self.steps_per_epoch = contexts.steps_per_epoch
        self.tokens_per_step = len(contexts.tokens) / contexts.steps_per_epoch
        self._compiled: CompiledSampling | None = None

    def _complete_sampling(self, model: SampledVectors) -> NegativeSampling:
        if self.sampling.subwords is not model.subwords:
            self.sampling = replace(self.sampling, subwords=model.subwords)
        return self.sampling

    def batch(self, step: int, device: torch.device) -> WordExamples:
        return self.contexts.examples(step)

    def update(
        self, model: SampledVectors, batch: LazyBatch[WordExamples], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        examples, vectors, outputs = batch.all_rows, model.vectors.data, model.outputs.data
        if compiled_functions(model.d_words, self.sampling.negatives, vectors.dtype):
            if self._compiled is None:
                sizes = {"words": model.vocabulary_size, "rows": len(vectors), "dimension": vectors.shape[1]}
                self._compiled = CompiledSampling(self._complete_sampling(model), **sizes, dtype=vectors.dtype)
            nats = self._compiled.update(examples, vectors, outputs, learning_rate)
        else:
            warn_once("word vectors", NO_COMPILER)
            nats = update_by_sampling_in_numpy(
                self._complete_sampling(model), examples, vectors.numpy(), outputs.numpy(), learning_rate
            )
        return Loss(torch.tensor(nats), max(1, examples.count)), None

    def loss(self, model: SampledVectors, batch: WordExamples, state: State) -> tuple[Loss, State]:
        """Return the loss of all examples in nats, at the current weights. `update` changes weights at each example."""
        sampling, (centers, neighbors) = self._complete_sampling(model), batch.pairs()
        if not len(centers):
            return Loss(model.vectors.sum() * 0, max(1, batch.count)), None
        targets, pairs = batch.ids[neighbors], sampling.noise_indices(centers, neighbors)
        if sampling.kind == "cbow":
            starts = np.flatnonzero(np.diff(centers, prepend=-1))
            inputs = Ragged(batch.ids[neighbors], np.append(starts, len(neighbors)))
            targets, indices, pairs = batch.ids[centers[starts]], np.arange(len(starts)), centers[starts]
        else:
            inputs, indices = Ragged(batch.ids, np.arange(len(batch.ids) + 1)), centers
        h = self._average_rows(model, inputs)[torch.from_numpy(indices)]
        drawn = sampling.noise.draw(batch.key, pairs[:, None] * sampling.negatives + np.arange(sampling.negatives))
        is_noise = torch.from_numpy(drawn != targets[:, None])
        positive = (model.outputs[torch.from_numpy(targets).long()] * h).sum(1)
        negative = (model.outputs[torch.from_numpy(drawn).long()] * h.unsqueeze(1)).sum(2)
        total = -F.logsigmoid(positive).sum() - (F.logsigmoid(-negative) * is_noise).sum()
        return Loss(total, max(1, batch.count)), None

    def _average_rows(self, model: SampledVectors, words: Ragged) -> Tensor:
        """Return the mean vector of each list of words, over the rows of all words and their n-grams."""
        rows = [np.concatenate([*map(self.sampling.rows, words.values[a:b])]) for a, b in pairwise(words.starts)]
        offsets = torch.from_numpy(np.cumsum([0, *map(len, rows)])[:-1])
        return F.embedding_bag(torch.from_numpy(np.concatenate(rows)).long(), model.vectors, offsets, mode="mean")


@dataclass(frozen=True)
class PairBatch(Batch):
    """A batch of pairs (n,): words, context words, the logarithms of the counts, and the weights in the loss."""

    words: NDArray[np.int32]
    contexts: NDArray[np.int32]
    logarithms: NDArray[np.float32]
    weights: NDArray[np.float32]

    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """Return the four columns in the order that the updates expect."""
        return self.words, self.contexts, self.logarithms, self.weights


class CountedTask(Task[CountedVectors, PairBatch]):
    """The training task of GloVe on `pairs`, records of `pair_counts`."""

    def __init__(
        self, pairs: NDArray[np.void], *, batch_size: int, largest_count: float, power: float, words: int,
        judged_by: str,
    ) -> None:  # fmt: skip
        self.pairs, self.batch_size, self.largest_count, self.power = pairs, batch_size, largest_count, power
        self.judged_by = judged_by
        self.steps_per_epoch = -(-len(pairs) // batch_size)
        self.tokens_per_step = words / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> PairBatch:
        start = step % self.steps_per_epoch * self.batch_size
        records = self.pairs[start : start + self.batch_size]
        counts = records["count"].astype(np.float64)
        weights = np.minimum(1, (counts / self.largest_count) ** self.power)
        words, contexts = (np.ascontiguousarray(records[name], np.int32) for name in ("word", "context"))
        return PairBatch(words, contexts, np.log(counts).astype(np.float32), weights.astype(np.float32))

    def initial_state(self, model: CountedVectors) -> tuple[Tensor, ...]:
        """Return the sums of squared gradients, in the order of `CountedVectors.tables`."""
        return tuple(map(torch.ones_like, model.tables()))

    def update(
        self, model: CountedVectors, batch: LazyBatch[PairBatch], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        counts = batch.all_rows.columns()
        squares = self.initial_state(model) if state is None else state
        if compiled_functions(model.d_words, 0, model.vectors.dtype):
            loss = update_glove(counts, model.tables(), squares, learning_rate)
        else:
            warn_once("word vectors", NO_COMPILER)
            tables, sums = ([tensor.numpy() for tensor in group] for group in (model.tables(), squares))
            loss = update_glove_in_numpy(counts, tables, sums, learning_rate)
        return Loss(torch.tensor(loss), batch.count), squares

    def loss(self, model: CountedVectors, batch: PairBatch, state: State) -> tuple[Loss, State]:
        """Return the loss of all pairs at the current weights. `update` changes the weights at each pair."""
        i, j = (torch.from_numpy(array).long() for array in (batch.words, batch.contexts))
        products = (model.vectors[i] * model.contexts[j]).sum(1) + model.biases[i] + model.context_biases[j]
        differences = products - torch.from_numpy(batch.logarithms)
        return Loss((torch.from_numpy(batch.weights) * differences.square()).sum() / 2, batch.count), None
