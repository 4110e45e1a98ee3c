"""A table of the word vectors that a trained model has computed, so that each word form is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.vector_index import VectorIndex
from ensue.engine import Copy, are_cached
from ensue.models.word_features import EncodedForms, FormTable, WordFeatures
from ensue.stored import Copyable
from ensue.text.lexicon import Lexicon

MOST_FORMS, FEWEST_ROWS = 1 << 16, 1 << 10
FORM_CHARACTERS = 64
"""A form counts as one for each of so many characters: a text may be a single word of half a million."""


class Room(NamedTuple):
    """Rows of a table, and the ids by which each was looked up: of word, shape, pretrained vector, and of affixes."""

    vectors: Tensor
    keys: Tensor
    lacks: Tensor
    ids: Tensor


class Known(NamedTuple):
    """Word forms with their numbers, and a table of rows. A row is written once and never changed."""

    numbers: dict[str, int]
    rooms: list[Room]
    """A single table; it is replaced by a larger one when it is full."""
    characters: Copy | None
    """The module of the characters by which the rows were made."""

    @property
    def table(self) -> FormTable:
        """The rows of the forms so far."""
        count = len(self.numbers)
        return FormTable(*(part[:count] for part in self.rooms[0][:3]))


class FormMemory(Copyable):
    """The vectors of word forms. When there are more than `most`, all are forgotten. Pretrained vectors that the model
    does not have are looked up in `vectors`.

    So they are when a weight has changed, in whichever way. Of the words that are asked for, what stands in tables is
    compared, and of the module of the characters, which is small, each number, unless the weights are held.

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
        self.features, self.lexicon, self.device, self.most, self.vectors = features, lexicon, device, most, vectors
        self._lock = Lock()
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_known": None}  # a copy computes the vectors again

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.forget()

    def forget(self) -> None:
        """Removes all forms."""
        self._size = 0
        characters = self.features.characters
        self._known = Known({}, [self._rows(FEWEST_ROWS)], None if characters is None else Copy(characters))

    @property
    def table(self) -> FormTable:
        """The rows of all known forms."""
        return self._known.table

    def look_up(self, words: Sequence[str]) -> tuple[FormTable, NDArray[np.int32]]:
        """A table with a row for each of `words`, and the number of each word's row, (N,)."""
        with self._lock:
            if self._size > self.most or not (are_cached() or self._holds(words)):
                self.forget()
            known = self._known
            new = [word for word in dict.fromkeys(words) if word not in known.numbers]
        rows = self._worked_out(new) if new else None
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

    @torch.inference_mode()
    def _holds(self, words: Sequence[str]) -> bool:
        """Whether the rows of those of `words` that are known are what the features give now."""
        known, characters = self._known, self.features.characters
        numbers = sorted({known.numbers[word] for word in words if word in known.numbers})
        if characters is not None and not (known.characters and known.characters.equals(characters)):
            return False
        rows = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        vectors, keys, _, ids = (part[rows] for part in known.rooms[0])
        first = 0 if self.features.words is None else self.features.words.d_out
        spelled = None if characters is None else vectors[:, first : first + characters.d_out]
        words_of, shapes, pretrained = ids[:, :3].unbind(1)
        table, kept = self.features.vectors, self.features.kept_vectors
        count = (0 if table is None else table.num_embeddings) + (0 if kept is None else len(kept))
        of_file = pretrained >= count  # the model does not have them
        forms = EncodedForms(words_of, ids[:, :0], keys, ids[:, 3:], shapes, pretrained.masked_fill(of_file, 0), keys)
        found = self.features.form_vectors(forms, spelled=spelled)
        if table is not None:
            found[of_file, -table.embedding_dim :] = vectors[of_file, -table.embedding_dim :]
        return torch.equal(found, vectors)

    def _worked_out(self, words: Sequence[str]) -> Room:
        features, lexicon = self.read(words)
        forms = lexicon.encode(words)
        ids = np.column_stack([forms.words, forms.shapes, forms.vectors, forms.affixes])
        return Room(*features.table(forms, self.device), torch.from_numpy(ids).to(self.device))

    def _add(self, known: Known, words: list[str], rows: Room) -> None:
        """Adds the rows of words, except for those that another thread has added meanwhile."""
        new = [place for place, word in enumerate(words) if word not in known.numbers]
        if len(new) < len(words):
            chosen = torch.tensor(new, dtype=torch.int64, device=self.device)
            words, rows = [words[place] for place in new], Room(*(part[chosen] for part in rows))
        count, total = len(known.numbers), len(known.numbers) + len(words)
        if total > len(known.rooms[0].keys):  # twice the size each time, so that rows are seldom copied
            larger = self._rows(max(total, 2 * len(known.rooms[0].keys)))
            _write(larger, 0, Room(*(part[:count] for part in known.rooms[0])))
            known.rooms[0] = larger
        _write(known.rooms[0], count, rows)
        known.numbers.update(zip(words, range(count, total), strict=True))
        self._size += sum(1 + len(word) // FORM_CHARACTERS for word in words)

    @torch.inference_mode(False)  # so that it can be written both in and out of inference mode
    def _rows(self, count: int) -> Room:
        keys = torch.zeros(count, dtype=torch.int64, device=self.device)
        vectors = torch.zeros(count, self.features.d_forms, device=self.device)
        return Room(vectors, keys, keys.clone(), keys.new_zeros(count, 3 + self.lexicon.encode([]).affixes.shape[1]))


def _write(room: Room, start: int, rows: Room) -> None:
    for whole, part in zip(room, rows, strict=True):
        whole[start : start + len(part)] = part
