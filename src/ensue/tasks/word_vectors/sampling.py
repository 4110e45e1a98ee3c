"""Learning by negative sampling: what an update needs to know beside the examples and the vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.tasks.texts.drawn_words import Noise

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
