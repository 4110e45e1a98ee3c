"""From running text to examples: words are left out at random, and each of the others has a context; and what learning
by negative sampling knows beside them.

All of it is a function of the text, the seed and the step, and the same in every way to compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import mix, random_numbers, shares
from ensue.tasks.contract.task import Batch
from ensue.tasks.texts.drawn_words import Noise

UNKNOWN, LINE_END = 0, 1
"""The ids of a `WordTokenizer` that are no words. Words follow."""
_KEPT, _WINDOW, _NOISE = range(3)  # what a random number of (seed, step) is for


@dataclass(frozen=True)
class WordExamples(Batch):
    """The words `ids` (n,) of a part of the text; word i has the context [left[i], right[i]) without i itself.

    The examples, which are the rows, are those of the words in `centers`. `key` is the stream of their noise,
    `num_words` the number of words in the text before some were left out.
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
        """The number of words in the text."""
        return self.num_words

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of all words that are centers, each as often as it has words in its context, and of these."""
        inside = slice(self.centers.start, self.centers.stop)
        left, right = self.left[inside].astype(np.int64), self.right[inside].astype(np.int64)
        centers = np.repeat(np.arange(len(left)), right - left)
        begins = np.cumsum(right - left) - (right - left)
        others = np.arange(len(centers)) - begins[centers] + left[centers]
        centers += self.centers.start
        return centers[centers != others], others[centers != others]


class WordContexts:
    """The examples of each step: `words` tokens of the text, those of step n behind those of step n - 1.

    `kept` (V,) is the probability that a word stays, 0 for what is no word. A context has up to b words on either side
    on its own line, with b drawn from 1 to `window` for each word; with `across_lines` a line end is passed over.
    """

    def __init__(
        self, tokens: TokenFile, kept: NDArray[np.float64], *, words: int, window: int, across_lines: bool, seed: int
    ) -> None:
        self.tokens, self.kept, self.words = tokens, kept, words
        self.window, self.across_lines, self.seed = window, across_lines, seed
        self.steps_per_epoch = -(-len(tokens) // words)

    def examples(self, step: int) -> WordExamples:
        """The examples of a step, counted from 0 over all epochs."""
        start = step % self.steps_per_epoch * self.words
        ids = self.tokens.read(start, min(start + self.words, len(self.tokens)))
        stays = self._chances(step, _KEPT, len(ids)) < self.kept[ids]
        lines = np.zeros(len(ids), np.int64) if self.across_lines else np.cumsum(ids == LINE_END)
        count = int(np.count_nonzero(ids != LINE_END))
        ids, lines = ids[stays], lines[stays]
        reach = 1 + (self._chances(step, _WINDOW, len(ids)) * self.window).astype(np.int64)
        places = np.arange(len(ids))
        left = np.maximum(places - reach, np.searchsorted(lines, lines))
        right = np.minimum(places + reach + 1, np.searchsorted(lines, lines, side="right"))
        return WordExamples(
            range(len(ids)), ids.astype(np.int32), left.astype(np.int32), right.astype(np.int32),
            key=self._key(step, _NOISE), num_words=count,
        )  # fmt: skip

    def _key(self, step: int, purpose: int) -> int:
        return mix(self.seed, step, purpose)

    def _chances(self, step: int, purpose: int, count: int) -> NDArray[np.float64]:
        """Numbers from 0 to below 1."""
        return shares(random_numbers(self._key(step, purpose), np.arange(count)))


def kept_shares(counts: NDArray[np.int64], subsample: float) -> NDArray[np.float64]:
    """The probability that a word stays: √(t/f) + t/f, at most 1, for the share f that it has of all words; t is
    `subsample`, 0 for no limit.

    It is the rule of the published word2vec; the paper (Mikolov et al. 2013) has √(t/f).
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
    """`window` is the longest reach of a context. `subwords` has the rows of each word's n-grams, if there are any."""

    kind: Kind
    window: int
    negatives: int
    noise: Noise
    subwords: Ragged | None = None

    def rows(self, word: int) -> NDArray[np.integer]:
        """The rows whose mean is the vector of a word: its own, and those of its n-grams."""
        if self.subwords is None:
            return np.array([word])
        start, stop = self.subwords.starts[word : word + 2]
        return np.concatenate([[word], self.subwords.values[start:stop]])

    def places(self, centers: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the example of a word and a word of its context, which chooses its noise."""
        return centers if self.kind == "cbow" else centers * (2 * self.window + 1) + others - centers + self.window
