"""What a trained model has worked out of a word once: a word that comes again costs a look into a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.models.word_features import FormTable, WordFeatures
from ensue.text.lexicon import Lexicon

MOST_FORMS = 1 << 16


class FormMemory:
    """The vectors of word forms, kept until there are too many; then all are forgotten.

    `table` has a row for each form that `index` has numbered.
    """

    def __init__(
        self, features: WordFeatures, lexicon: Lexicon, device: torch.device, *, most: int = MOST_FORMS
    ) -> None:
        self.features, self.lexicon, self.device, self.most = features, lexicon, device, most
        self.forget()

    def forget(self) -> None:
        self._numbers: dict[str, int] = {}
        empty = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.table = FormTable(torch.zeros(0, self.features.d_forms, device=self.device), empty)

    def index(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The row in `table` of each word. Rows that were given before may have changed."""
        if len(self._numbers) > self.most:
            self.forget()
        numbers = self._numbers
        new = [word for word in dict.fromkeys(words) if word not in numbers]
        if new:
            found = self.features.table(self.lexicon.encode(new), self.device)
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            self.table = FormTable(*map(torch.cat, zip(self.table, found, strict=True)))
        return np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
