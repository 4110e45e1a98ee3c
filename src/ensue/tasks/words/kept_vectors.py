"""Vectors of the words of many texts, worked out once and kept in the cache, from where they are mapped.

Numbers are float16. A text that stands in a data set several times is worked out once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.cache import bound, put, used
from ensue.cache_folders import cache_directory
from ensue.data.compact_texts import Ragged
from ensue.errors import DataError
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.tasks.contract.chunks import chunks

FORMAT = 1
"""Raise it when the vectors of a model change though its files do not."""
CHUNK_WORDS = 8_192
"""The most words whose vectors are worked out at once."""

Halves = NDArray[np.float16]
Told = Callable[[str, float], None]
"""Hears what is worked out, and which share of it is done."""


class LayersOfTexts(ABC):
    """The vectors of the words of texts in the layers of one run."""

    @abstractmethod
    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Halves:
        """The texts' vectors (B, T, L, d), zeros where there is no word, as wide as all of `among` (None: texts)."""

    def batch(self, texts: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Tensor:
        """`rows` as float32 on a device, cut."""
        return torch.from_numpy(self.rows(row_slice.of(texts), among=texts)).to(device).float()


@dataclass(frozen=True)
class KeptVectors(LayersOfTexts):
    """Vectors in a file of the cache (R, L, d), of which row 0 is zero, and the numbers of the texts' rows."""

    file: Halves
    numbers: Ragged

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Halves:
        found: Halves = self.file[self.numbers.padded(texts, among=among)]
        return found


def kept_vectors(
    words: Ragged,
    forms: Sequence[str],
    find: Callable[[Sequence[Sequence[str]]], Sequence[Halves]],
    *,
    shape: tuple[int, ...],
    key: Sequence[Any],
    told: Callable[[float], None],
) -> KeptVectors | None:
    """The vectors of texts as numbers of word `forms`, from the cache if it has them; else `find` works them out.

    `shape` is that of a word's vectors, and `key` is JSON that tells all that they depend on but the texts. `told`
    hears which share is done. None if they are more than the cache may hold. Raises DataError if they cannot be
    written.
    """
    texts = DistinctTexts(words, forms)
    count = len(texts.words.values)
    whole = (1 + count, *shape)
    if np.prod(whole, dtype=np.float64) * np.dtype(np.float16).itemsize > bound():
        return None
    name = hashlib.sha256(json.dumps([FORMAT, *key, texts.fingerprint]).encode()).hexdigest()[:32] + ".npy"

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, {"descr": "<f2", "fortran_order": False, "shape": whole})
            stream.write(np.zeros(shape, "<f2").tobytes())
            done = 0
            for chunk in chunks(texts, len, most_words=CHUNK_WORDS):
                for vectors in find(chunk):
                    stream.write(vectors.astype("<f2").tobytes())
                done += sum(map(len, chunk))
                told(done / max(1, count))

    file = _opened(cache_directory() / name, whole)
    if file is None:
        try:
            file = _opened(put(name, write), whole)
        except OSError as error:
            raise DataError(f"vectors cannot be written ({error.strerror or error})", cache_directory()) from error
    assert file is not None
    return KeptVectors(file, texts.rows)


class WordsOfTexts:
    """Texts as numbers of word forms, each as a list of words when it is asked for."""

    def __init__(self, words: Ragged, forms: Sequence[str]) -> None:
        self.words, self.forms = words, forms

    def __getitem__(self, text: int) -> list[str]:
        start, stop = self.words.starts[text], self.words.starts[text + 1]
        return [self.forms[form] for form in self.words.values[start:stop].tolist()]

    def __len__(self) -> int:
        return len(self.words)


class DistinctTexts:
    """The texts that differ, as lists of words, in the order in which they come first. Row 1 is the first word's."""

    def __init__(self, words: Ragged, forms: Sequence[str]) -> None:
        self.forms = forms
        starts, first, chosen, begin = [], {}, [], 1
        for text, length in enumerate(words.lengths.tolist()):
            content = words.values[words.starts[text] : words.starts[text] + length].tobytes()
            if content not in first:
                first[content] = begin
                begin += length
                chosen.append(text)
            starts.append(first[content])
        self.words = Ragged.of(words.values[words.starts[text] : words.starts[text + 1]] for text in chosen)
        shifts = np.repeat(np.array(starts, np.int64) - words.starts[:-1], words.lengths)
        places = np.arange(words.starts[0], words.starts[-1]) if len(words) else np.zeros(0, np.int64)
        self.rows = Ragged((places + shifts).astype(np.int64), words.starts - words.starts[0])
        """For each text the numbers of its words' rows."""

    @property
    def fingerprint(self) -> str:
        """A checksum of all words."""
        digest = hashlib.sha256(json.dumps(list(self.forms)).encode())
        for part in (self.words.values.astype("<i8"), self.words.starts.astype("<i8")):
            digest.update(part.tobytes())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[list[str]]:
        texts = WordsOfTexts(self.words, self.forms)
        return (texts[text] for text in range(len(texts)))


def _opened(path: Path, shape: tuple[int, ...]) -> Halves | None:
    """The vectors in a file; None if it is missing, damaged or another's."""
    try:
        used(path)
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == np.float16 else None
