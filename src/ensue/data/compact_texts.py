"""Many texts in little memory: each distinct word form once, and the texts as rows of their numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray


class StringColumn:
    """A long list of strings of which many are equal: `values[ids[n]]` is the n-th."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._number: dict[str, int] = {}
        self._ids = array("i")

    def extend(self, strings: Iterable[str]) -> None:
        """Appends strings."""
        number, values = self._number, self.values
        for string in strings:
            found = number.get(string)
            if found is None:
                found = number[string] = len(values)
                values.append(string)
            self._ids.append(found)

    @property
    def ids(self) -> NDArray[np.int32]:
        """A view: as long as somebody keeps it, nothing more can come in (`BufferError`)."""
        return np.frombuffer(self._ids, np.int32) if self._ids else np.zeros(0, np.int32)

    def counts(self) -> dict[str, int]:
        """How often each value occurs."""
        counts = np.bincount(self.ids, minlength=len(self.values)).tolist()
        return dict(zip(self.values, counts, strict=True))

    def take(self, places: NDArray[np.int64]) -> Self:
        """The strings at these places. Of its values only those that are among them, in their order."""
        ids = self.ids[places]
        found, firsts, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        part = type(self)()
        part.values = [self.values[id] for id in found[order].tolist()]
        part._number = {value: number for number, value in enumerate(part.values)}
        part._ids.frombytes(np.argsort(order).astype(np.int32)[inverse].tobytes())
        return part

    def __len__(self) -> int:
        return len(self._ids)


class Texts:
    """Texts as sequences of words."""

    def __init__(self) -> None:
        self.words = StringColumn()
        self._ends = array("q")

    def __getitem__(self, row: int) -> list[str]:
        """The words of a text."""
        first = self._ends[row - 1] if row else 0
        return [self.words.values[id] for id in self.words.ids[first : self._ends[row]].tolist()]

    def append(self, words: Sequence[str]) -> None:
        """Appends a text."""
        self.words.extend(words)
        self._ends.append(len(self.words))

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each text begins among all words, and where the last one ends."""
        ends = np.frombuffer(self._ends, np.int64) if self._ends else np.zeros(0, np.int64)
        return np.concatenate(([0], ends), dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of words of each text, (N,)."""
        return np.diff(self.starts)

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the words of these texts stand among all words, one text after another."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        ends = np.cumsum(lengths)
        return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The texts in these rows."""
        part = type(self)()
        part.words = self.words.take(self.places(rows))
        part._ends.frombytes(np.cumsum(self.lengths[rows]).astype(np.int64).tobytes())
        return part

    def __len__(self) -> int:
        return len(self._ends)


class Ragged:
    """Rows of numbers, or of vectors of numbers, one after another in `values`, from `starts[n]` to `starts[n + 1]`."""

    def __init__(self, values: NDArray[np.integer], starts: NDArray[np.int64]) -> None:
        self.values, self.starts = values, starts
        self.lengths = np.diff(starts)

    @classmethod
    def of(cls, rows: Iterable[NDArray[np.integer]]) -> Ragged:
        """These rows."""
        found = RaggedRows()
        for row in rows:
            found.append(row)
        return found.ragged()

    def padded(
        self, rows: NDArray[np.int64], fill: int = 0, *, among: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """The rows side by side (B, T), filled up on the right, as wide as all those of `among`."""
        places, real = side_by_side(self.starts, self.lengths, rows, among=among)
        found = self.values[places] if len(self.values) else np.zeros((), np.int64)
        real = real.reshape(real.shape + (1,) * (found.ndim - 2))
        return np.where(real, found, fill).astype(np.int64)

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Which places of `padded` are real; None if all of `among` are."""
        return real_places(self.lengths, rows, among=among)

    def joined(self, firsts: NDArray[np.int64]) -> Ragged:
        """Several rows as one: those from `firsts[n]` to `firsts[n + 1]`."""
        return Ragged(self.values, self.starts[firsts])

    def __getitem__(self, row: int) -> NDArray[np.integer]:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def slice(self, start: int, stop: int) -> Ragged:
        """Some of the rows, one after another."""
        return Ragged(self.values, self.starts[start : stop + 1])

    def __len__(self) -> int:
        return len(self.lengths)


def side_by_side(
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    among: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the values of these rows stand, side by side (B, T), filled up on the right by 0, as wide as all rows of
    `among` (None: these rows); and which are real.
    """
    columns = np.arange(int(lengths[rows if among is None else among].max(initial=0)))
    real = columns < lengths[rows][:, None]
    return np.where(real, starts[rows][:, None] + columns, 0), real


def real_places(
    lengths: NDArray[np.int64], rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None
) -> NDArray[np.bool_] | None:
    """Which places of `side_by_side` are real; None if all rows of `among` are equally long."""
    all_lengths = lengths[rows if among is None else among]
    longest = int(all_lengths.max(initial=0))
    return None if (all_lengths == longest).all() else np.arange(longest) < lengths[rows][:, None]


class RaggedRows:
    """A `Ragged` that grows row by row."""

    def __init__(self) -> None:
        self._values, self._starts = array("i"), array("q", [0])

    def append(self, row: NDArray[np.integer]) -> None:
        """Appends a row."""
        self._values.frombytes(row.astype(np.int32).tobytes())
        self._starts.append(len(self._values))

    def ragged(self) -> Ragged:
        """The rows so far."""
        return Ragged(np.array(self._values, np.int32), np.array(self._starts, np.int64))
