"""Many texts in little memory: each distinct word form once, and the texts as rows of their numbers.

Columns grow in memory, and those that become long in nameless files. `kept_columns.py` writes them to a file of the
cache, from which they are mapped.
"""

from __future__ import annotations

import json
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from ensue.cache_folders import cache_directory
from ensue.data.mapped_file import MappedFile
from ensue.data.permutation import mix, mixed
from ensue.errors import DataError
from ensue.parsing import parse_json

SPILL_BYTES = 32 << 20
"""Numbers of more bytes go to a file."""
PIECE = 1 << 20
"""The numbers that are worked on at once."""
TEXT_COLUMNS = ("words", "text ")
"""How the names of columns begin that have what a model reads."""
_ODD = np.uint64(0x9E3779B97F4A7C15)

Arrays = Mapping[str, NDArray[Any]]


class Column(Protocol):
    """A value for each example. Arrays of numbers say all of it."""

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """The column that arrays of a mapped file say. Nothing can be added to it."""

    def arrays(self) -> Arrays:
        """The arrays that `of` takes."""

    def add(self, other: Any) -> None:
        """Appends the values of another column."""

    def release(self) -> None:
        """Gives back the memory of what was read of a file."""

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The values in these rows."""

    def __len__(self) -> int: ...


class Numbers:
    """Numbers that come in part by part, of one of the types of the module `array`."""

    def __init__(self, code: str, first: Sequence[int] = ()) -> None:
        self._recent = array(code, first)
        self._spilled: BinaryIO | None = None
        self._fixed: NDArray[Any] | None = None
        self.file: MappedFile | None = None
        """The map of those that are not in memory."""

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile | None = None) -> Self:
        """The numbers of a mapped file, or of an array in memory."""
        found = cls("b")
        found._fixed, found.file = arrays["numbers"], file
        return found

    def arrays(self) -> Arrays:
        """The numbers."""
        return {"numbers": self.array}

    def extend(self, numbers: Iterable[int]) -> None:
        """Appends some numbers."""
        self._recent.extend(numbers)

    def add(self, other: Numbers | NDArray[Any]) -> None:
        """Appends many numbers."""
        numbers = other.array if isinstance(other, Numbers) else other
        self._recent.frombytes(numbers.astype(self._recent.typecode).tobytes())
        if len(self._recent) * self._recent.itemsize > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._spilled is None:
                self._spilled = _nameless_file()
                weakref.finalize(self, self._spilled.close)
            self._recent.tofile(self._spilled)
            self._spilled.flush()
        except OSError as error:
            raise DataError(f"many texts cannot be written ({error.strerror or error})", cache_directory()) from error
        self._recent, self._fixed = array(self._recent.typecode), None

    @property
    def array(self) -> NDArray[Any]:
        """A view: as long as somebody keeps it, nothing more can come in (`BufferError`)."""
        code = self._recent.typecode
        if self._spilled is not None and (self._fixed is None or self._recent):
            self._spill()
            self.file = MappedFile(self._spilled)
            self._fixed = self.file.array(code, self._spilled.tell() // self._recent.itemsize)
        if self._fixed is not None:
            return self._fixed
        return np.frombuffer(self._recent, code) if self._recent else np.zeros(0, code)

    def read(self, places: NDArray[np.int64] | slice) -> NDArray[Any]:
        """A copy of the numbers at these places."""
        found = self.array[places]
        if self.file is not None:
            self.file.check(self.array, places)
            found = found.copy()
            self.file.touched(found.nbytes, len(places) if isinstance(places, np.ndarray) else 1)
        return found

    def release(self) -> None:
        """Gives back the memory of what was read of a file."""
        if self.file is not None:
            self.file.release()

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The numbers in these rows."""
        found = type(self)(self.array.dtype.char)
        for piece in pieces(len(rows)):
            found.add(self.array[rows[piece]])
        return found

    def __len__(self) -> int:
        if self._spilled is not None:
            return self._spilled.tell() // self._recent.itemsize + len(self._recent)
        return len(self._recent) if self._fixed is None else len(self._fixed)


def _nameless_file() -> BinaryIO:
    """A file that ends with its process: in the cache, or where the system has temporary files."""
    folder = cache_directory()
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return cast("BinaryIO", tempfile.TemporaryFile(dir=folder))
    except OSError:
        return cast("BinaryIO", tempfile.TemporaryFile())


class _Numbering(dict[str, int]):
    """The number of each string. One that is new is appended to `strings`."""

    def __init__(self, values: list[str]) -> None:
        super().__init__()
        self.strings = values

    def __missing__(self, string: str) -> int:
        self[string] = number = len(self.strings)
        self.strings.append(string)
        return number


class StringColumn:
    """A long list of strings of which many are equal: `values[ids[n]]` is the n-th."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._number = _Numbering(self.values)
        self.numbers = Numbers("i")
        self._counts: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """The strings of a mapped file."""
        found = cls()
        found.values = parse_json(arrays["values"].tobytes())
        found.numbers, found._counts = Numbers.of({"numbers": arrays["ids"]}, file), arrays["counts"]
        return found

    def arrays(self) -> Arrays:
        """The numbers of the strings, the values as JSON, and how often each occurs."""
        values = np.frombuffer(json.dumps(self.values).encode(), np.uint8)
        return {"ids": self.ids, "values": values, "counts": self._counted()}

    def extend(self, strings: Iterable[str]) -> None:
        """Appends strings."""
        self.numbers.extend(map(self._number.__getitem__, strings))

    def add(self, other: StringColumn) -> None:
        """Appends the strings of another column."""
        self.numbers.add(np.array([self._number[value] for value in other.values], np.int32)[other.ids])

    @property
    def ids(self) -> NDArray[np.int32]:
        """A view: as long as somebody keeps it, nothing more can come in (`BufferError`)."""
        return self.numbers.array

    def _counted(self) -> NDArray[np.int64]:
        if self._counts is not None:
            return self._counts
        counts = np.zeros(len(self.values), np.int64)
        for piece in pieces(len(self)):
            counts += np.bincount(self.numbers.read(piece), minlength=len(counts))
        return counts

    def counts(self) -> dict[str, int]:
        """How often each value occurs."""
        return dict(zip(self.values, self._counted().tolist(), strict=True))

    def release(self) -> None:
        """Gives back the memory of what was read of a file."""
        self.numbers.release()

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The strings in these rows. Of its values only those that are among them, in their order."""
        return self.taken(rows[piece] for piece in pieces(len(rows)))

    def taken(self, parts: Iterable[NDArray[np.int64]]) -> Self:
        """`select` for rows that come part by part."""
        found, number = type(self)(), np.full(len(self.values), -1, np.int32)
        for rows in parts:
            ids = self.numbers.read(rows)
            new, firsts = np.unique(ids[number[ids] < 0], return_index=True)
            new = new[np.argsort(firsts)]
            number[new] = len(found.values) + np.arange(len(new))
            found.values += [self.values[id] for id in new.tolist()]
            found.numbers.add(number[ids])
        found._number.update({value: number for number, value in enumerate(found.values)})
        return found

    def __len__(self) -> int:
        return len(self.numbers)


class Texts(Sequence[tuple[str, ...]]):
    """Texts as sequences of words."""

    def __init__(self) -> None:
        self.words = StringColumn()
        self._starts = Numbers("q", [0])
        self._lengths: NDArray[np.integer] | None = None

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """The texts of a mapped file."""
        found = cls()
        found.words, found._lengths = StringColumn.of(arrays, file), arrays["lengths"]
        found._starts = Numbers.of({"numbers": arrays["starts"]}, file)
        return found

    def arrays(self) -> Arrays:
        """The arrays of the words, and where each text begins."""
        return {**self.words.arrays(), "starts": self.starts, "lengths": self.lengths.astype(np.int32)}

    def append(self, words: Sequence[str]) -> None:
        """Appends a text."""
        self.words.extend(words)
        self._starts.extend([len(self.words)])

    def add(self, other: Texts) -> None:
        """Appends the texts of others."""
        self._starts.add(other.starts[1:] + len(self.words))
        self.words.add(other.words)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each text begins among all words, and where the last one ends."""
        return self._starts.array

    @property
    def lengths(self) -> NDArray[np.integer]:
        """The number of words of each text, (N,)."""
        return np.diff(self.starts) if self._lengths is None else self._lengths

    @property
    def ragged(self) -> Ragged:
        """The texts as rows of the numbers of their words."""
        return Ragged(self.words.ids, self.starts, self.lengths, self.words.numbers.file)

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the words of these texts stand among all words, one text after another."""
        starts = self.starts[rows]
        lengths = self.starts[rows + 1] - starts
        ends = np.cumsum(lengths)
        return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())

    def release(self) -> None:
        """Gives back the memory of what was read of a file."""
        self.words.release()
        self._starts.release()

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The texts in these rows."""
        part = type(self)()
        ends = np.cumsum(self.lengths[rows], dtype=np.int64)
        part.words = self.words.taken(self.places(rows[piece]) for piece in _pieces_of(ends))
        part._starts.add(ends)
        return part

    def has(self, numbers: Mapping[str, int]) -> NDArray[np.bool_]:
        """Which text has which of these words, (N, K). `numbers` says their places; others are left out."""
        found = np.zeros((len(self), len(numbers)), np.bool_)
        known = np.array([numbers.get(value, -1) for value in self.words.values], np.int64)
        for piece in _pieces_of(self.starts[1:]):
            words = known[self.words.numbers.read(slice(*self.starts[[piece.start, piece.stop]].tolist()))]
            rows = np.repeat(np.arange(piece.start, piece.stop), self.lengths[piece])[words >= 0]
            found[rows, words[words >= 0]] = True
        return found

    def only(self, numbers: Mapping[str, int]) -> NDArray[np.unsignedinteger[Any]] | None:
        """The number of the one word of each text, (N,), 0 for a word without a number; None unless each has one."""
        if (self.lengths != 1).any():
            return None
        known = np.array([numbers.get(value, 0) for value in self.words.values], np.min_scalar_type(len(numbers)))
        found = np.empty(len(self), known.dtype)
        for piece in pieces(len(self)):
            found[piece] = known[self.words.numbers.read(piece)]
        return found

    def digests(self, like: Texts | None = None) -> NDArray[np.uint64]:
        """Two hashes of each text (2, N), equal for equal texts; with `like` equal to those of equal texts there."""
        found = np.zeros((2, len(self)), np.uint64)
        number_of = np.arange(len(self.words.values))
        if like is not None:
            known = {value: number for number, value in enumerate(like.words.values)}
            number_of = np.array([known.get(value, -1) for value in self.words.values], np.int64)
        for piece in _pieces_of(self.starts[1:]):
            lengths = self.lengths[piece].astype(np.int64)
            ends = np.cumsum(lengths)
            within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
            first = int(self.starts[piece][0])
            words = number_of[self.words.numbers.read(slice(first, first + len(within)))] + (within << 32)
            for row, hashes in enumerate(found):
                sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed(mix(row), words))))
                hashes[piece] = mixed(mix(row), lengths) + sums[ends] - sums[ends - lengths]
        return found

    def rarest(self) -> NDArray[np.int64]:
        """The rank of the rarest word of each text (N,), 1 for the most frequent one of all; 0 for no word."""
        counts = np.array([*self.words.counts().values()], np.int64)
        ranks = np.empty(len(counts), np.int64)
        ranks[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
        found = np.zeros(len(self), np.int64)
        for piece in _pieces_of(self.starts[1:]):
            words = self.words.numbers.read(slice(*self.starts[[piece.start, piece.stop]].tolist()))
            rows = np.repeat(np.arange(piece.start, piece.stop), self.lengths[piece])
            np.maximum.at(found, rows, ranks[words])
        return found

    def __getitem__(self, row: int) -> tuple[str, ...]:  # type: ignore[override]  # a text at a time
        start, stop = self.starts[row : row + 2].tolist()
        return tuple(self.words.values[id] for id in self.words.numbers.read(slice(start, stop)).tolist())

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for piece in _pieces_of(self.starts[1:]):
            starts = self.starts[piece.start : piece.stop + 1]
            words = [self.words.values[id] for id in self.words.numbers.read(slice(starts[0], starts[-1])).tolist()]
            ends = (starts - starts[0]).tolist()
            yield from (tuple(words[begin:end]) for begin, end in pairwise(ends))

    def __len__(self) -> int:
        return len(self._starts) - 1


class Columns:
    """Examples as columns of equal length, by name."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)

    def add(self, other: Columns) -> None:
        """Appends the examples of others."""
        for name, column in self.columns.items():
            column.add(other.columns[name])

    @property
    def sources(self) -> NDArray[np.int64]:
        """The number of each example's group, in order of first appearance; without groups each example has its own."""
        groups = self.columns.get("groups")
        return np.arange(len(self)) if groups is None or not any(groups.values) else np.array(groups.ids, np.int64)

    def num_shared(self, other: Columns) -> int:
        """How many examples of others have texts that are here."""
        keys = [np.zeros(len(part), np.uint64) for part in (self, other)]
        for name, column in self.columns.items():
            if name.startswith(TEXT_COLUMNS):
                for key, texts in zip(keys, (column, other.columns[name]), strict=True):
                    key[:] = key * _ODD + texts.digests(column)[0]
        return int(np.isin(keys[1], keys[0]).sum())

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The examples in these rows."""
        return type(self)({name: column.select(rows) for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def pieces(count: int) -> Iterator[slice]:
    """Slices of so many numbers, one after another."""
    return (slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE))


def _pieces_of(ends: NDArray[np.int64]) -> Iterator[slice]:
    """Slices of texts that end there, each of PIECE words or less, or of one text, and of PIECE texts or less."""
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PIECE, side="right")))
        stop = min(stop, start + PIECE)
        yield slice(start, stop)
        start = stop


def numbered(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """The number of each row of keys (N,). Distinct ones are numbered in the order in which they come first."""
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for key in keys:
        differs[1:] |= np.diff(key[order]) != 0
    firsts = order[differs]
    number = np.empty(len(firsts), np.int64)
    number[np.argsort(firsts)] = np.arange(len(firsts))
    found = np.empty(len(order), np.int64)
    found[order] = number[np.cumsum(differs) - 1]
    return found


class Ragged:
    """Rows of numbers, or of vectors of numbers, one after another in `values`, from `starts[n]` to `starts[n + 1]`. A
    `table` has what the numbers stand for.
    """

    def __init__(
        self,
        values: NDArray[np.integer],
        starts: NDArray[np.int64],
        lengths: NDArray[np.integer] | None = None,
        file: MappedFile | None = None,
        table: NDArray[np.integer] | None = None,
    ) -> None:
        self.values, self.starts, self.file, self.table = values, starts, file, table
        self.lengths: NDArray[Any] = np.diff(starts) if lengths is None else lengths

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
        if self.file is not None:
            self.file.touched(0, 2 * len(rows))
        found = self._read(places) if len(self.values) else np.zeros((), np.int64)
        if self.file is not None:
            self.file.touched(places.nbytes, len(rows))
        real = real.reshape(real.shape + (1,) * (found.ndim - 2))
        return np.where(real, found, fill).astype(np.int64)

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Which places of `padded` are real; None if all of `among` are."""
        found = real_places(self.lengths, rows, among=among)
        if self.file is not None:
            self.file.touched(0, len(rows))
        return found

    def joined(self, firsts: NDArray[np.int64]) -> Ragged:
        """Several rows as one: those from `firsts[n]` to `firsts[n + 1]`."""
        if len(firsts) == len(self.starts) and (firsts[1:] > firsts[:-1]).all():
            return self  # each is by itself
        return Ragged(self.values, self.starts[firsts], file=self.file, table=self.table)

    def parts(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
        """The values of many rows, and where each of these begins and the last one ends, part by part."""
        for piece in _pieces_of(self.starts[1:]):
            starts = self.starts[piece.start : piece.stop + 1]
            yield self._read(slice(*starts[[0, -1]])), starts - starts[0]
            if self.file is not None:
                self.file.release()

    def _read(self, places: NDArray[np.int64] | slice) -> NDArray[np.integer]:
        if self.file is not None:
            self.file.check(self.values, places)
        return self.values[places] if self.table is None else self.table[self.values[places]]

    def __getitem__(self, row: int) -> NDArray[np.integer]:
        return self._read(slice(*self.starts[row : row + 2]))

    def slice(self, start: int, stop: int) -> Ragged:
        """Some of the rows, one after another."""
        return Ragged(self.values, self.starts[start : stop + 1], file=self.file, table=self.table)

    def __len__(self) -> int:
        return len(self.lengths)


def side_by_side(
    starts: NDArray[np.int64],
    lengths: NDArray[np.integer],
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
    lengths: NDArray[np.integer], rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None
) -> NDArray[np.bool_] | None:
    """Which places of `side_by_side` are real; None if all rows of `among` are equally long."""
    all_lengths = lengths[rows if among is None else among]
    longest = int(all_lengths.max(initial=0))
    return None if (all_lengths == longest).all() else np.arange(longest) < lengths[rows][:, None]


class RaggedRows:
    """A `Ragged` that grows row by row, of one of the types of the module `array`, and a column of such rows."""

    def __init__(self, code: str = "i") -> None:
        self._values, self._starts = Numbers(code), Numbers("q", [0])
        self._lengths: NDArray[np.integer] | None = None

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """The rows of a mapped file."""
        found = cls()
        found._values, found._starts = (Numbers.of({"numbers": arrays[key]}, file) for key in ("ids", "starts"))
        found._lengths = arrays["lengths"]
        return found

    def arrays(self) -> Arrays:
        """The numbers of all rows, and where each row begins."""
        lengths = self.ragged().lengths.astype(np.int32)
        return {"ids": self._values.array, "starts": self._starts.array, "lengths": lengths}

    def append(self, row: NDArray[np.integer]) -> None:
        """Appends a row."""
        self._values.add(row)
        self._starts.extend([len(self._values)])

    def ragged(self) -> Ragged:
        """The rows so far. As long as somebody keeps it, no more can come in (`BufferError`)."""
        return Ragged(self._values.array, self._starts.array, self._lengths, self._values.file)

    def release(self) -> None:
        """Gives back the memory of what was read of a file."""
        self._values.release()

    def __len__(self) -> int:
        return len(self._starts) - 1
