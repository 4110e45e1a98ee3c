"""Compact columns of examples: each distinct string is stored once, and texts are rows of ids.

A column grows in memory; above `SPILL_BYTES` its numbers are moved to an anonymous file. `cached_columns.py` stores
columns in the cache: `arrays` returns the arrays of a column, and `of` makes a fixed column from mapped arrays.
"""

from __future__ import annotations

import json
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, Self, cast

import numpy as np
from numpy.typing import NDArray

from ensue.cache import cache_directory
from ensue.data.mapped_file import MappedFile
from ensue.data.permutation import mix, mix_each
from ensue.errors import DataError
from ensue.parsing import parse_json

SPILL_BYTES = 32 << 20
"""The size above which `Numbers.add` moves the numbers in memory to a file."""
MAX_SLICE = 1 << 20
"""The maximum number of values that are processed at once."""
TEXT_COLUMNS = ("words", "text ")
"""Prefixes of the names of columns with the text that a model reads."""
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Arrays = Mapping[str, NDArray[Any]]
Rows = NDArray[np.int64]


class Numbers:
    """A growing array of numbers. `code` is a type code of the module `array`."""

    def __init__(self, code: str, initial: Sequence[int] = ()) -> None:
        self._recent = array(code, initial)
        self._spilled: BinaryIO | None = None
        self._fixed: NDArray[Any] | None = None
        self.file: MappedFile | None = None
        """The mapped file of the numbers that are not in memory."""

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile | None = None) -> Self:
        """Return a fixed column of numbers from a mapped file, or from an array in memory."""
        result = cls("b")
        result._fixed, result.file = arrays["numbers"], file
        return result

    def arrays(self) -> Arrays:
        """Return the array of the numbers."""
        return {"numbers": self.array}

    def extend(self, numbers: Iterable[int]) -> None:
        """Append a few numbers, which stay in memory until the next `add`."""
        self._recent.extend(numbers)

    def add(self, other: Numbers | NDArray[Any]) -> None:
        """Append many numbers, and move the numbers in memory to a file if there are too many."""
        numbers = other.array if isinstance(other, Numbers) else other
        self._recent.frombytes(numbers.astype(self._recent.typecode).tobytes())
        if len(self._recent) * self._recent.itemsize > SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._spilled is None:
                self._spilled = _open_anonymous_file()
                weakref.finalize(self, self._spilled.close)
            self._recent.tofile(self._spilled)
            self._spilled.flush()
        except OSError as error:
            raise DataError(f"texts cannot be written ({error.strerror or error})", cache_directory()) from error
        self._recent, self._fixed = array(self._recent.typecode), None

    @property
    def array(self) -> NDArray[Any]:
        """A view of the numbers. While the view is referenced, appending raises BufferError."""
        code = self._recent.typecode
        if self._spilled is not None and (self._fixed is None or self._recent):
            self._spill()
            self.file = MappedFile(self._spilled)
            self._fixed = self.file.array(code, self._spilled.tell() // self._recent.itemsize)
        if self._fixed is not None:
            return self._fixed
        return np.frombuffer(self._recent, code) if self._recent else np.zeros(0, code)

    def read(self, indices: NDArray[np.int64] | slice) -> NDArray[Any]:
        """Return the numbers at these indices. Numbers in a mapped file are verified and copied."""
        result = self.array[indices]
        if self.file is not None:
            self.file.check(self.array, indices)
            result = result.copy()
            self.file.count_read(result.nbytes, len(indices) if isinstance(indices, np.ndarray) else 1)
        return result

    def release(self) -> None:
        """Release the pages of the mapped file."""
        if self.file is not None:
            self.file.release()

    def select(self, rows: Rows) -> Self:
        """Return the numbers in these rows."""
        result = type(self)(self.array.dtype.char)
        for piece in slices_of(len(rows)):
            result.add(self.array[rows[piece]])
        return result

    def __len__(self) -> int:
        if self._spilled is not None:
            return self._spilled.tell() // self._recent.itemsize + len(self._recent)
        return len(self._recent) if self._fixed is None else len(self._fixed)


def _open_anonymous_file() -> BinaryIO:
    folder = cache_directory()
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        return cast("BinaryIO", tempfile.TemporaryFile(dir=folder))
    except OSError:
        return cast("BinaryIO", tempfile.TemporaryFile())


class _Numbering(dict[str, int]):
    """A mapping from strings to ids, in which access to a new string assigns the next id."""

    def __init__(self, values: list[str]) -> None:
        super().__init__()
        self.strings = values

    def __missing__(self, string: str) -> int:
        self[string] = number = len(self.strings)
        self.strings.append(string)
        return number


class StringColumn:
    """A list of strings with many duplicates: string n is `values[ids[n]]`."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._id_of = _Numbering(self.values)
        self.numbers = Numbers("i")
        self._counts: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """Return a fixed column of strings from a mapped file."""
        result = cls()
        result.values = parse_json(arrays["values"].tobytes())
        result.numbers, result._counts = Numbers.of({"numbers": arrays["ids"]}, file), arrays["counts"]
        return result

    def arrays(self) -> Arrays:
        """Return the ids, the values as JSON, and the frequency of each value."""
        values = np.frombuffer(json.dumps(self.values).encode(), np.uint8)
        return {"ids": self.ids, "values": values, "counts": self._count_values()}

    def extend(self, strings: Iterable[str]) -> None:
        """Append strings."""
        self.numbers.extend(map(self._id_of.__getitem__, strings))

    def add(self, other: StringColumn) -> None:
        """Append the strings of another column."""
        self.numbers.add(np.array([self._id_of[value] for value in other.values], np.int32)[other.ids])

    @property
    def ids(self) -> NDArray[np.int32]:
        """The id of each string: a view like `Numbers.array`."""
        return self.numbers.array

    def _count_values(self) -> NDArray[np.int64]:
        if self._counts is not None:
            return self._counts
        counts = np.zeros(len(self.values), np.int64)
        for piece in slices_of(len(self)):
            counts += np.bincount(self.numbers.read(piece), minlength=len(counts))
        return counts

    def counts(self) -> dict[str, int]:
        """Return how often each value occurs."""
        return dict(zip(self.values, self._count_values().tolist(), strict=True))

    def release(self) -> None:
        self.numbers.release()

    def select(self, rows: Rows) -> Self:
        """Return the strings in these rows. Values that do not occur in the rows are dropped."""
        return self.select_chunks(rows[piece] for piece in slices_of(len(rows)))

    def select_chunks(self, chunks: Iterable[NDArray[np.int64]]) -> Self:
        """Return the strings in the rows of all chunks, like `select`."""
        result, new_ids = type(self)(), np.full(len(self.values), -1, np.int32)
        for rows in chunks:
            ids = self.numbers.read(rows)
            new, firsts = np.unique(ids[new_ids[ids] < 0], return_index=True)
            new = new[np.argsort(firsts)]
            new_ids[new] = len(result.values) + np.arange(len(new))
            result.values += [self.values[id] for id in new.tolist()]
            result.numbers.add(new_ids[ids])
        result._id_of.update({value: id for id, value in enumerate(result.values)})
        return result

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
        """Return a fixed column of texts from a mapped file."""
        result = cls()
        result.words, result._lengths = StringColumn.of(arrays, file), arrays["lengths"]
        result._starts = Numbers.of({"numbers": arrays["starts"]}, file)
        return result

    def arrays(self) -> Arrays:
        """Return the arrays of the words, and the starts and lengths of the texts."""
        return {**self.words.arrays(), "starts": self.starts, "lengths": self.lengths.astype(np.int32)}

    def append(self, words: Sequence[str]) -> None:
        """Append a text."""
        self.words.extend(words)
        self._starts.extend([len(self.words)])

    def add(self, other: Texts) -> None:
        """Append the texts of another column."""
        self._starts.add(other.starts[1:] + len(self.words))
        self.words.add(other.words)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The index of the first word of each text, and the end of the last text, (N + 1,)."""
        return self._starts.array

    @property
    def lengths(self) -> NDArray[np.integer]:
        """The number of words of each text, (N,)."""
        return np.diff(self.starts) if self._lengths is None else self._lengths

    @property
    def ragged(self) -> Ragged:
        """The texts as rows of word ids."""
        return Ragged(self.words.ids, self.starts, self.lengths, self.words.numbers.file)

    def word_indices(self, rows: Rows) -> NDArray[np.int64]:
        """Return the indices, in the column of all words, of the words of these texts."""
        starts = self.starts[rows]
        lengths = self.starts[rows + 1] - starts
        return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())

    def release(self) -> None:
        self.words.release()
        self._starts.release()

    def select(self, rows: Rows) -> Self:
        """Return the texts in these rows."""
        result = type(self)()
        ends = np.cumsum(self.lengths[rows], dtype=np.int64)
        result.words = self.words.select_chunks(self.word_indices(rows[piece]) for piece in _ragged_slices(ends))
        result._starts.add(ends)
        return result

    def _words_of_texts(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Yield the index of the text and the id of each word, in chunks of whole texts."""
        for piece in _ragged_slices(self.starts[1:]):
            words = self.words.numbers.read(slice(*self.starts[[piece.start, piece.stop]].tolist()))
            yield np.repeat(np.arange(piece.start, piece.stop), self.lengths[piece]), words

    def indicators(self, ids: Mapping[str, int]) -> NDArray[np.bool_]:
        """Return whether each text has each word, (N, K). `ids` has the id of each word."""
        result = np.zeros((len(self), len(ids)), np.bool_)
        id_of_value = np.array([ids.get(value, -1) for value in self.words.values], np.int64)
        for rows, words in self._words_of_texts():
            known = id_of_value[words] >= 0
            result[rows[known], id_of_value[words[known]]] = True
        return result

    def distinct_pairs(self) -> NDArray[np.int64]:
        """Return the distinct pairs of the index of a text and the id of one of its words, (2, P), in order."""
        pieces, size = [np.zeros(0, np.int64)], max(1, len(self.words.values))
        for rows, words in self._words_of_texts():
            pairs = np.sort(rows * size + words)
            pieces.append(pairs[np.diff(pairs, prepend=-1) > 0])
        return np.stack(np.divmod(np.concatenate(pieces), size))

    def single_labels(self, ids: Mapping[str, int]) -> NDArray[np.unsignedinteger[Any]] | None:
        """Return the id of the only word of each text, (N,), 0 if unknown; None unless each text has one word."""
        if (self.lengths != 1).any():
            return None
        id_of_value = np.array([ids.get(value, 0) for value in self.words.values], np.min_scalar_type(len(ids)))
        result = np.empty(len(self), id_of_value.dtype)
        for piece in slices_of(len(self)):
            result[piece] = id_of_value[self.words.numbers.read(piece)]
        return result

    def digests(self, like: Texts | None = None) -> NDArray[np.uint64]:
        """Return two hashes of each text, (2, N). With `like`, equal texts of both columns have equal hashes."""
        result = np.zeros((2, len(self)), np.uint64)
        number_of = np.arange(len(self.words.values))
        if like is not None:
            id_of = {value: number for number, value in enumerate(like.words.values)}
            number_of = np.array([id_of.get(value, -1) for value in self.words.values], np.int64)
        for piece in _ragged_slices(self.starts[1:]):
            lengths = self.lengths[piece].astype(np.int64)
            ends = np.cumsum(lengths)
            within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
            start = int(self.starts[piece][0])
            words = number_of[self.words.numbers.read(slice(start, start + len(within)))] + (within << 32)
            for row, hashes in enumerate(result):
                sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mix_each(mix(row), words))))
                hashes[piece] = mix_each(mix(row), lengths) + sums[ends] - sums[ends - lengths]
        return result

    def max_ranks(self) -> NDArray[np.int64]:
        """Return the frequency rank of the rarest word of each text, (N,), from 1; 0 for an empty text."""
        counts = np.array([*self.words.counts().values()], np.int64)
        ranks = 1 + np.argsort(np.argsort(-counts, kind="stable"))
        result = np.zeros(len(self), np.int64)
        for rows, words in self._words_of_texts():
            np.maximum.at(result, rows, ranks[words])
        return result

    def __getitem__(self, row: int) -> tuple[str, ...]:  # type: ignore[override]  # no slices
        start, stop = self.starts[row : row + 2].tolist()
        return tuple(self.words.values[id] for id in self.words.numbers.read(slice(start, stop)).tolist())

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for ids, starts in self.ragged.chunks():
            words = [self.words.values[id] for id in ids.tolist()]
            yield from (tuple(words[begin:end]) for begin, end in pairwise(starts.tolist()))

    def __len__(self) -> int:
        return len(self._starts) - 1


class Columns:
    """Examples as columns of equal length, by name."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)

    def add(self, other: Columns) -> None:
        """Append the examples of `other`."""
        for name, column in self.columns.items():
            column.add(other.columns[name])

    @property
    def group_keys(self) -> NDArray[np.int64]:
        """The id of the group of each example, by first appearance. Without groups, each example is a group."""
        groups = self.columns.get("groups")
        return np.arange(len(self)) if groups is None or not any(groups.values) else np.array(groups.ids, np.int64)

    def num_shared(self, other: Columns) -> int:
        """Return the number of examples of `other` whose texts also occur in these examples."""
        keys = [np.zeros(len(columns), np.uint64) for columns in (self, other)]
        for name, column in self.columns.items():
            if name.startswith(TEXT_COLUMNS):
                for key, texts in zip(keys, (column, other.columns[name]), strict=True):
                    key[:] = key * _HASH_FACTOR + texts.digests(column)[0]
        return int(np.isin(keys[1], keys[0]).sum())

    def select(self, rows: Rows) -> Self:
        """Return the examples in these rows."""
        return type(self)({name: column.select(rows) for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def slices_of(count: int) -> Iterator[slice]:
    """Split the range of `count` numbers into slices of at most `MAX_SLICE` numbers."""
    return (slice(start, min(start + MAX_SLICE, count)) for start in range(0, count, MAX_SLICE))


def _ragged_slices(ends: NDArray[np.int64]) -> Iterator[slice]:
    """Split rows with these `ends` into slices of up to `MAX_SLICE` rows and values. A longer row is its own slice."""
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + MAX_SLICE, side="right")))
        stop = min(stop, start + MAX_SLICE)
        yield slice(start, stop)
        start = stop


def number_rows(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return an id for each row of the columns `keys`, (N,). Distinct rows are numbered by first appearance."""
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    for key in keys:
        differs[1:] |= np.diff(key[order]) != 0
    result = np.empty(len(order), np.int64)
    result[order] = np.argsort(np.argsort(order[differs]))[np.cumsum(differs) - 1]
    return result


class Ragged:
    """Rows of numbers of different lengths: row n is `values[starts[n] : starts[n + 1]]`.

    With a `table`, the values are indices of rows of the table, which are numbers or vectors.
    """

    def __init__(
        self, values: NDArray[np.integer], starts: NDArray[np.int64], lengths: NDArray[np.integer] | None = None,
        file: MappedFile | None = None, table: NDArray[np.integer] | None = None,
    ) -> None:  # fmt: skip
        self.values, self.starts, self.file, self.table = values, starts, file, table
        self.lengths: NDArray[Any] = np.diff(starts) if lengths is None else lengths

    @classmethod
    def of(cls, rows: Iterable[NDArray[np.integer]]) -> Ragged:
        return RaggedRows(rows=rows).ragged()

    def padded(self, rows: Rows, fill: int = 0, *, among: Rows | None = None) -> NDArray[np.int64]:
        """Return rows padded on the right, (B, T, ...). T is the maximum length of rows `among` (default: `rows`)."""
        if self.file is None and among is None and len(rows) == 1:
            return self[int(rows[0])][np.newaxis].astype(np.int64)
        indices, mask = padded_indices(self.starts, self.lengths, rows, among=among)
        if self.file is not None:
            self.file.count_read(0, 2 * len(rows))
        result = self._read(indices) if len(self.values) else np.zeros((), np.int64)
        if self.file is not None:
            self.file.count_read(indices.nbytes, len(rows))
        mask = mask.reshape(mask.shape + (1,) * (result.ndim - 2))
        return np.where(mask, result, fill).astype(np.int64)

    def mask(self, rows: Rows, *, among: Rows | None = None) -> NDArray[np.bool_] | None:
        """Return the mask of `padded`, (B, T), which is False at padding; None if there is no padding."""
        result = padding_mask(self.lengths, rows, among=among)
        if self.file is not None:
            self.file.count_read(0, len(rows))
        return result

    def joined(self, firsts: NDArray[np.int64]) -> Ragged:
        """Concatenate rows: row n of the result has the rows from `firsts[n]` to `firsts[n + 1]` (exclusive)."""
        if len(firsts) == len(self.starts) and (firsts[1:] > firsts[:-1]).all():
            return self  # no row is joined with another row
        return Ragged(self.values, self.starts[firsts], file=self.file, table=self.table)

    def chunks(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
        """Yield chunks of rows: the values of the rows, and the start of each row followed by the end of the last."""
        for piece in _ragged_slices(self.starts[1:]):
            starts = self.starts[piece.start : piece.stop + 1]
            yield self._read(slice(*starts[[0, -1]])), starts - starts[0]
            if self.file is not None:
                self.file.release()

    def _read(self, indices: NDArray[np.int64] | slice) -> NDArray[np.integer]:
        if self.file is not None:
            self.file.check(self.values, indices)
        return self.values[indices] if self.table is None else self.table[self.values[indices]]

    def __getitem__(self, row: int) -> NDArray[np.integer]:
        return self._read(slice(*self.starts[row : row + 2]))

    def slice(self, start: int, stop: int) -> Ragged:
        """Return consecutive rows."""
        return Ragged(self.values, self.starts[start : stop + 1], file=self.file, table=self.table)

    def __len__(self) -> int:
        return len(self.lengths)


def padded_indices(
    starts: NDArray[np.int64], lengths: NDArray[np.integer], rows: Rows, *, among: Rows | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the indices of the values of rows, padded on the right with 0, and their mask, both (B, T).

    T is the length of the longest row of `among` (default: `rows`).
    """
    columns = np.arange(int(lengths[rows if among is None else among].max(initial=0)))
    mask = columns < lengths[rows][:, None]
    return np.where(mask, starts[rows][:, None] + columns, 0), mask


def padding_mask(lengths: NDArray[np.integer], rows: Rows, *, among: Rows | None = None) -> NDArray[np.bool_] | None:
    """Return the mask of `padded_indices`; None if all rows of `among` (default: `rows`) have the same length."""
    all_lengths = lengths[rows if among is None else among]
    longest = int(all_lengths.max(initial=0))
    return None if (all_lengths == longest).all() else np.arange(longest) < lengths[rows][:, None]


class RaggedRows:
    """A growing column of rows of numbers, which `ragged` returns as `Ragged`."""

    def __init__(self, code: str = "i", rows: Iterable[NDArray[np.integer]] = ()) -> None:
        self._values, self._starts = Numbers(code), Numbers("q", [0])
        self._lengths: NDArray[np.integer] | None = None
        for row in rows:
            self.append(row)

    @classmethod
    def of(cls, arrays: Arrays, file: MappedFile) -> Self:
        """Return a fixed column of rows from a mapped file."""
        result = cls()
        result._values, result._starts = (Numbers.of({"numbers": arrays[key]}, file) for key in ("ids", "starts"))
        result._lengths = arrays["lengths"]
        return result

    def arrays(self) -> Arrays:
        """Return the numbers of all rows, and the starts and lengths of the rows."""
        lengths = self.ragged().lengths.astype(np.int32)
        return {"ids": self._values.array, "starts": self._starts.array, "lengths": lengths}

    def append(self, row: NDArray[np.integer]) -> None:
        """Append a row."""
        self._values.add(row)
        self._starts.extend([len(self._values)])

    def ragged(self) -> Ragged:
        """Return a view of the rows. While the view is referenced, appending raises BufferError."""
        return Ragged(self._values.array, self._starts.array, self._lengths, self._values.file)

    def release(self) -> None:
        self._values.release()

    def select(self, rows: Rows) -> Self:
        """Return these rows."""
        ragged = self.ragged()
        return type(self)(self._values.array.dtype.char, (ragged[row] for row in rows.tolist()))

    def __len__(self) -> int:
        return len(self._starts) - 1
