"""Training examples of word vectors: words in context, with subsampling of frequent words.

The examples depend only on the text, the seed and the step.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import mix, random_numbers, uniform_floats
from ensue.tasks.contract.task import Batch

UNKNOWN, LINE_END = 0, 1
"""The ids of a `WordTokenizer` for unknown words and for line ends. The ids of words follow."""
_SUBSAMPLING, _WINDOW, _NOISE = range(3)  # each step has a stream of random numbers for each purpose
TWO_32 = 1 << 32


class Noise:
    """A sampler of words by the alias method (Walker 1977).

    The sampler has a column for each word c. A column yields c below its `threshold`, and the word `alias[c]` above
    the threshold. A draw uses one number of 64 bits: the upper half selects the column, and the lower half is compared
    with the threshold. So probabilities are exact within 1/2³². The `weights` (V,) are at least 0, with a positive sum.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        shares = weights * (len(weights) / weights.sum())
        threshold, alias = np.ones(len(weights)), np.arange(len(weights))
        small, large = (list(np.flatnonzero(mask)) for mask in (shares < 1, shares >= 1))
        while small and large:
            rare, frequent = small.pop(), large[-1]
            threshold[rare], alias[rare] = shares[rare], frequent
            shares[frequent] -= 1 - shares[rare]
            if shares[frequent] < 1:
                small.append(large.pop())
        for word in small:  # these shares are 1 up to rounding, so the threshold stays 1, except for weights of 0
            if not weights[word]:
                threshold[word], alias[word] = 0, int(weights.argmax())
        self.threshold = np.minimum(np.rint(threshold * TWO_32), TWO_32 - 1).astype(np.uint32)
        self.alias, self.size = alias.astype(np.int32), len(alias)

    def draw(self, key: int, positions: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return the words at `positions` of the random stream `key`, an array of the same shape."""
        numbers = random_numbers(key, positions)
        columns = ((numbers >> np.uint64(32)) * np.uint64(self.size) >> np.uint64(32)).astype(np.int64)
        is_below = (numbers & np.uint64(TWO_32 - 1)) < self.threshold[columns]
        return np.where(is_below, columns, self.alias[columns]).astype(np.int32)


@dataclass(frozen=True)
class WordExamples(Batch):
    """The words `ids` (n,) of a segment of the text after subsampling.

    The context of word i is the range [left[i], right[i]) without i. The rows of the batch are the words in the range
    `centers`. `key` is the key of the random stream from which noise is drawn. `num_words` is the number of words in
    the segment before subsampling.
    """

    shared: ClassVar[frozenset[str]] = frozenset({"ids", "left", "right"})
    centers: range
    ids: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    key: int
    num_words: int

    @property
    def count(self) -> int:
        """The number of words in the segment before subsampling."""
        return self.num_words

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all pairs of a center and a word in its context, as two arrays (p,) of positions in `ids`."""
        rows = slice(self.centers.start, self.centers.stop)
        left, right = self.left[rows].astype(np.int64), self.right[rows].astype(np.int64)
        centers = np.repeat(np.arange(len(left)), right - left)
        starts = np.cumsum(right - left) - (right - left)
        neighbors = np.arange(len(centers)) - starts[centers] + left[centers]
        centers += self.centers.start
        return centers[centers != neighbors], neighbors[centers != neighbors]


class WordContexts:
    """The examples of all steps. Each step has the next segment of `words` tokens in the text.

    `keep` (V,) are the results of `keep_probabilities`. A context has up to b words on each side, with b drawn from 1
    to `window` for each word. Contexts end at line ends unless `across_lines` is true.
    """

    def __init__(
        self, tokens: TokenFile, keep: NDArray[np.float64], *, words: int, window: int, across_lines: bool, seed: int
    ) -> None:
        self.tokens, self.keep, self.words = tokens, keep, words
        self.window, self.across_lines, self.seed = window, across_lines, seed
        self.steps_per_epoch = -(-len(tokens) // words)

    def examples(self, step: int) -> WordExamples:
        """Return the examples of a step, counted from 0 over all epochs."""
        start = step % self.steps_per_epoch * self.words
        ids = self.tokens.read(start, min(start + self.words, len(self.tokens)))
        is_kept = self._draw_uniform(step, _SUBSAMPLING, len(ids)) < self.keep[ids]
        lines = np.zeros(len(ids), np.int64) if self.across_lines else np.cumsum(ids == LINE_END)
        num_words = int(np.count_nonzero(ids != LINE_END))
        ids, lines = ids[is_kept], lines[is_kept]
        b = 1 + (self._draw_uniform(step, _WINDOW, len(ids)) * self.window).astype(np.int64)
        positions = np.arange(len(ids))
        left = np.maximum(positions - b, np.searchsorted(lines, lines))
        right = np.minimum(positions + b + 1, np.searchsorted(lines, lines, side="right"))
        words, starts, ends = (array.astype(np.int32) for array in (ids, left, right))
        return WordExamples(range(len(ids)), words, starts, ends, key=mix(self.seed, step, _NOISE), num_words=num_words)

    def _draw_uniform(self, step: int, purpose: int, count: int) -> NDArray[np.float64]:
        return uniform_floats(random_numbers(mix(self.seed, step, purpose), np.arange(count)))


def keep_probabilities(counts: NDArray[np.int64], subsample: float) -> NDArray[np.float64]:
    """Return the probability min(1, √(t/f) + t/f) that subsampling keeps a word, 0 for ids that are not words.

    f is the word's share of the text, and t is `subsample` (0: no subsampling). The rule is that of the program
    word2vec; the paper has √(t/f) (Mikolov et al. 2013).
    """
    counts = np.where(np.arange(len(counts)) > LINE_END, counts, 0)
    if not subsample:
        return (counts > 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = subsample * counts.sum() / counts
        return np.where(counts > 0, np.minimum(np.sqrt(ratio) + ratio, 1), 0)


Kind = Literal["cbow", "skip-gram"]


@dataclass(frozen=True)
class NegativeSampling:
    """Settings of negative sampling. `subwords`: the rows of each word's n-grams in the table of vectors, or None."""

    kind: Kind
    window: int
    negatives: int
    noise: Noise
    subwords: Ragged | None = None

    def rows(self, word: int) -> NDArray[np.integer]:
        """Return the rows of a word and its n-grams in the table of vectors. Their mean is the vector of the word."""
        if self.subwords is None:
            return np.array([word])
        start, stop = self.subwords.starts[word : word + 2]
        return np.concatenate([[word], self.subwords.values[start:stop]])

    def noise_indices(self, centers: NDArray[np.int64], neighbors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of each pair in the random stream of the noise. In CBOW, it is the index of the center."""
        return centers if self.kind == "cbow" else centers * (2 * self.window + 1) + neighbors - centers + self.window
