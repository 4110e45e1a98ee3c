"""What a trained model has worked out of a word once: a word that comes again costs a look into a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.models.word_features import FormTable, WordFeatures
from ensue.text.lexicon import Lexicon

MOST_FORMS, FEWEST_ROWS = 1 << 16, 1 << 10


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
        """Begin anew, with room for a few."""
        self._numbers: dict[str, int] = {}
        self._room = self._rows(FEWEST_ROWS)

    @property
    def table(self) -> FormTable:
        """The forms that are known."""
        known = len(self._numbers)
        return FormTable(self._room.vectors[:known], self._room.words[:known])

    def index(self, words: Sequence[str]) -> NDArray[np.int32]:
        """The row in `table` of each word. Rows that were given before may have changed."""
        if len(self._numbers) > self.most:
            self.forget()
        numbers = self._numbers
        new = [word for word in dict.fromkeys(words) if word not in numbers]
        if new:
            known, total = len(numbers), len(numbers) + len(new)
            if total > len(self._room.words):  # twice the room each time, so that few words are copied
                old, self._room = self.table, self._rows(max(total, 2 * len(self._room.words)))
                self._write(0, old)
            self._write(known, self.features.table(self.lexicon.encode(new), self.device))
            numbers.update(zip(new, range(known, total), strict=True))
        return np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))

    @torch.inference_mode(False)  # so that it can be written to inside and outside of that mode
    def _rows(self, count: int) -> FormTable:
        vectors = torch.zeros(count, self.features.d_forms, device=self.device)
        return FormTable(vectors, torch.zeros(count, dtype=torch.int64, device=self.device))

    def _write(self, start: int, rows: FormTable) -> None:
        for room, part in zip(self._room, rows, strict=True):
            room[start : start + len(part)] = part
