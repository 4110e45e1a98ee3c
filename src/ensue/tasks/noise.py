"""Words drawn at random in proportion to their weights, each draw in constant time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ensue.data.permutation import random_numbers

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
