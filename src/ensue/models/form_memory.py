"""A table of the word vectors that a trained model has computed, so that each word form is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.vector_index import VectorIndex
from ensue.models.word_features import FormTable, WordFeatures
from ensue.text.lexicon import Lexicon

MOST_FORMS, FEWEST_ROWS = 1 << 16, 1 << 10


class Known(NamedTuple):
    """Word forms with their numbers, and a table of rows. A row is written once and never changed."""

    numbers: dict[str, int]
    rooms: list[FormTable]
    """A single table; it is replaced by a larger one when it is full."""

    @property
    def table(self) -> FormTable:
        """The rows of the forms so far."""
        count = len(self.numbers)
        return FormTable(*(part[:count] for part in self.rooms[0]))


class FormMemory:
    """The vectors of word forms. When there are more than `most`, all are forgotten. Pretrained vectors that the model
    does not have are looked up in `vectors`.

    Threads may share it. Each thread computes its new forms by itself; a lock protects looking up and adding. A table
    that was returned never changes, whatever is added or forgotten later.
    """

    def __init__(
        self,
        features: WordFeatures,
        lexicon: Lexicon,
        device: torch.device,
        *,
        most: int = MOST_FORMS,
        vectors: VectorIndex | None = None,
    ) -> None:
        self.features, self.lexicon, self.device, self.most = features, lexicon, device, most
        self.vectors = vectors
        self._lock = Lock()
        self.forget()

    def forget(self) -> None:
        """Removes all forms."""
        self._known = Known({}, [self._rows(FEWEST_ROWS)])

    @property
    def table(self) -> FormTable:
        """The rows of all known forms."""
        return self._known.table

    def look_up(self, words: Sequence[str]) -> tuple[FormTable, NDArray[np.int32]]:
        """A table with a row for each of `words`, and the number of each word's row, (N,)."""
        with self._lock:
            if len(self._known.numbers) > self.most:
                self.forget()
            known = self._known
            new = [word for word in dict.fromkeys(words) if word not in known.numbers]
        rows = None
        if new:
            features, lexicon = self.read(new)
            rows = features.table(lexicon.encode(new), self.device)
        with self._lock:
            if rows is not None:
                self._add(known, new, rows)
            return known.table, np.fromiter(map(known.numbers.__getitem__, words), np.int32, len(words))

    def read(self, words: Sequence[str]) -> tuple[WordFeatures, Lexicon]:
        """The features and the lexicon in which these words have the vectors of the file, too."""
        if self.vectors is None or self.lexicon.vectors is None:
            return self.features, self.lexicon
        forms = dict.fromkeys(form for word in words for form in (word, word.lower()))
        found, rows = self.vectors.find([form for form in forms if form not in self.lexicon.vectors.ids])
        if not found:
            return self.features, self.lexicon
        return self.features.beside(torch.from_numpy(rows).to(self.device)), self.lexicon.beside(found)

    def _add(self, known: Known, words: list[str], rows: FormTable) -> None:
        """Adds the rows of words, except for those that another thread has added meanwhile."""
        new = [place for place, word in enumerate(words) if word not in known.numbers]
        if len(new) < len(words):
            chosen = torch.tensor(new, dtype=torch.int64, device=self.device)
            words, rows = [words[place] for place in new], FormTable(*(part[chosen] for part in rows))
        count, total = len(known.numbers), len(known.numbers) + len(words)
        if total > len(known.rooms[0].keys):  # twice the size each time, so that rows are seldom copied
            larger = self._rows(max(total, 2 * len(known.rooms[0].keys)))
            _write(larger, 0, known.table)
            known.rooms[0] = larger
        _write(known.rooms[0], count, rows)
        known.numbers.update(zip(words, range(count, total), strict=True))

    @torch.inference_mode(False)  # so that it can be written both in and out of inference mode
    def _rows(self, count: int) -> FormTable:
        vectors = torch.zeros(count, self.features.d_forms, device=self.device)
        return FormTable(vectors, *(torch.zeros(count, dtype=torch.int64, device=self.device) for _ in range(2)))


def _write(room: FormTable, start: int, rows: FormTable) -> None:
    for whole, part in zip(room, rows, strict=True):
        whole[start : start + len(part)] = part
