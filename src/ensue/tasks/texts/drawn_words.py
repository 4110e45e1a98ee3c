"""Words drawn at random: those that stand for the whole vocabulary in a training step, and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.permutation import mix, random_numbers, shares
from ensue.models.specification import WordHead
from ensue.nn import WordSample


class SampledWords:
    """Draws `size` words for a step; a word with a count c is expected in proportion to (c + 1)^power, at most once.

    The words lie side by side, the most expected first, each as long as it is expected, and one is drawn from each of
    `size` equal parts of this line (stratified sampling). So a word that is expected once is always there, and no other
    more than twice. Raises ValueError for a size below 1 or above the vocabulary's.
    """

    def __init__(self, counts: NDArray[np.int64], *, size: int, power: float, seed: int) -> None:
        if not 1 <= size <= len(counts):
            raise ValueError(f"{size:,} words are drawn; expected 1 to {len(counts):,}")
        self.size, self.seed = size, seed
        self.expected = _at_most_once(np.power(counts + 1.0, power), size)
        self._order = np.argsort(-self.expected, kind="stable")
        self._ends = np.cumsum(self.expected[self._order])

    def draw(self, step: int, device: torch.device) -> WordSample:
        """The words of a step."""
        parts = np.arange(self.size)
        points = parts + shares(random_numbers(mix(self.seed, step), parts))
        places = np.minimum(np.searchsorted(self._ends, points, side="right"), len(self._order) - 1)
        ids = self._order[places]
        log_expected = np.log(self.expected[ids]).astype(np.float32)
        return WordSample(torch.from_numpy(ids).to(device), torch.from_numpy(log_expected).to(device))


def _at_most_once(weights: NDArray[Any], size: int) -> NDArray[np.float64]:
    """How often each is expected among `size`: in proportion to its weight, and those of large weights once."""
    order = np.argsort(-weights, kind="stable")
    left = np.cumsum(weights[order][::-1])[::-1]  # the weight of each and of all that are lighter
    certain = int(np.argmax(weights[order] * (size - np.arange(len(order))) < left)) if size < len(order) else size
    expected = np.ones(len(weights))
    rest = order[certain:]
    expected[rest] = weights[rest] * (size - certain) / left[certain] if len(rest) else 1
    return expected


def sampled_words(head: WordHead, counts: NDArray[np.int64], seed: int) -> SampledWords | None:
    """The words of a recipe's steps, for the counts of its vocabulary; None if all words are computed."""
    if not 0 < head.sampled < len(counts):
        return None
    return SampledWords(counts, size=head.sampled, power=head.sampled_power, seed=seed)


def notes_on_sampling(head: WordHead, vocabulary_size: int) -> list[str]:
    """A remark if there are too few words to choose from."""
    if head.sampled < vocabulary_size:
        return []
    return [f"the vocabulary has {vocabulary_size:,} symbols, not more than head.sampled: all are computed"]


_ONE = 1 << 32


class Noise:
    """The alias method (Walker 1977): of `size` columns each is divided between two words at its `threshold`.

    `weights` (V,) are at least 0 and not all 0. A draw takes one number of 64 bits: its upper half chooses a
    column, its lower half one of the two words. So a weight is met within 1/2³².
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        shares = weights * (len(weights) / weights.sum())
        threshold, other = np.ones(len(weights)), np.arange(len(weights))
        small, large = (list(np.flatnonzero(found)) for found in (shares < 1, shares >= 1))
        while small and large:
            less, more = small.pop(), large[-1]
            threshold[less], other[less] = shares[less], more
            shares[more] -= 1 - shares[less]
            if shares[more] < 1:
                small.append(large.pop())
        for rest in small:  # of rounding, at 1 but for that; unless nothing was to be drawn there
            if not weights[rest]:
                threshold[rest], other[rest] = 0, int(weights.argmax())
        self.threshold = np.minimum(np.rint(threshold * _ONE), _ONE - 1).astype(np.uint32)
        self.other = other.astype(np.int32)

    @property
    def size(self) -> int:
        """The number of columns, which is that of the words."""
        return len(self.other)

    def draw(self, key: int, places: NDArray[np.integer]) -> NDArray[np.int32]:
        """The words at these places of the stream `key`."""
        numbers = random_numbers(key, places)
        columns = ((numbers >> np.uint64(32)) * np.uint64(self.size) >> np.uint64(32)).astype(np.int64)
        below = (numbers & np.uint64(_ONE - 1)) < self.threshold[columns]
        return np.where(below, columns, self.other[columns]).astype(np.int32)
