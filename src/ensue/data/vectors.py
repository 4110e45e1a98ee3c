"""Pretrained word vectors: GloVe's text, word2vec's text and binary, fastText's text.

In text, a row is a word and its numbers with a blank between them; word2vec and fastText put a header before the rows,
the number of words and that of dimensions. In word2vec's binary files the numbers are float32, little-endian.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.byte_reader import ByteReader
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.parsing import shown

_LARGEST_DIMENSION = 1 << 16
_BYTES_TO_LOOK_AT = 4096
_ROWS_TO_LOOK_AT = 20
_OTHER_FILES = {
    b"\xba\x16\x4f\x2f": "a fastText model; `ensue import` reads it, and a .vec file belongs to it",
    b"PK\x03\x04": "a zip archive; unpack it and name one of its files",
}


class _Row(NamedTuple):
    """A word as in the file, and its numbers, not yet parsed; `line` is None in binary files."""

    word: bytes
    numbers: bytes
    line: int | None


class _Table(NamedTuple):
    dimension: int
    rows: Iterator[_Row]


def read_vectors(path: str | Path, wanted: Collection[str] | None = None) -> tuple[list[str], NDArray[np.float32]]:
    """The words of `wanted` that the file has (all of them for None), in its order, and their vectors (words, d).

    `.xz` and `.gz` are decompressed. Memory is that of the vectors returned; reading ends with the last one wanted. Of
    a word that comes twice the first one counts; one that is empty or no UTF-8 is passed over. What a header says of
    the number of words means nothing, except that a binary file must not end before.

    Raises DataError (file:line) for a row of another dimension, for what is no finite number, for a binary file that is
    cut off, and for files that hold no vectors.
    """
    file = TextSource(path, encoding="latin-1").paths[0]  # which has no byte that it could not decode
    reader = ByteReader(file)
    if reader.peek(3) == codecs.BOM_UTF8:
        reader.take(3)
    other = next((what for magic, what in _OTHER_FILES.items() if reader.peek(4) == magic), None)
    if other:
        raise DataError(f"no word vectors, but {other}", file)
    header = _header(reader)
    if header and _is_binary(reader.peek(_BYTES_TO_LOOK_AT)):
        table = _Table(header[1], _binary_rows(reader, *header, file))
    else:
        table = _text_table(reader, header[1] if header else None, file)
    return _chosen(table, wanted, file)


def _header(reader: ByteReader) -> tuple[int, int] | None:
    """The numbers of words and of dimensions, if the first line has them, which is then read."""
    fields = reader.peek(_BYTES_TO_LOOK_AT).partition(b"\n")[0].split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 16 for field in fields):
        return None
    count, dimension = map(int, fields)
    if not 0 < dimension <= _LARGEST_DIMENSION:
        return None
    reader.line()
    return count, dimension


def _is_binary(head: bytes) -> bool:
    """Whether what follows the header has no numbers to be read, but bytes that no text has."""
    if any(map(_is_number, head.replace(b"\n", b" ").split(b" ")[1:4])):  # a word may hold any other white space
        return False
    try:
        head[: head.rfind(b" ")].decode()
    except UnicodeDecodeError:
        return True
    return bool(set(head) & set(range(9)))


def _binary_rows(reader: ByteReader, count: int, dimension: int, path: Path) -> Iterator[_Row]:
    for read in range(count):
        word, numbers = reader.until(b" "), reader.take(4 * dimension)
        if word is None or numbers is None:
            raise DataError(f"cut off: it ends after {read:,} of the {count:,} vectors that its header promises", path)
        yield _Row(word.removeprefix(b"\n"), numbers, None)


def _text_table(reader: ByteReader, promised: int | None, path: Path) -> _Table:
    """The rows, and the dimension: the header's, or that of most of the first rows."""
    raw = enumerate(iter(reader.line, None), 2 if promised else 1)
    lines = ((number, line.rstrip(b" \t\r")) for number, line in raw)
    filled = ((number, line) for number, line in lines if line)
    head = list(islice(filled, _ROWS_TO_LOOK_AT))
    widths = Counter(_count_numbers(line.split(b" ")[1:]) for _, line in head)
    dimension = promised or next((width for width, _ in widths.most_common(1)), 0)
    if not dimension:
        raise DataError("no word vectors: expected lines of a word and its numbers, with blanks between them", path, 1)
    return _Table(dimension, (_row(line, number, dimension, path) for number, line in chain(head, filled)))


def _row(line: bytes, number: int, dimension: int, path: Path) -> _Row:
    """A row taken apart. A word may be empty, and it may have blanks in it, but no number behind a blank."""
    if line.count(b" ") == dimension:
        word, _, numbers = line.partition(b" ")
        return _Row(word, numbers, number)
    word = line.rsplit(b" ", dimension)[0]
    _, *parts = word.split(b" ")
    if not parts or all(map(_is_number, parts)):
        found = _count_numbers(line.split(b" ")[1:])
        raise DataError(f"expected a word and {dimension} numbers, found {found}", path, number)
    return _Row(word, line[len(word) + 1 :], number)


def _count_numbers(fields: list[bytes]) -> int:
    """How many numbers are at the end."""
    return next((count for count, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))


def _quoted(content: bytes) -> str:
    """The bytes as quoted text for a message."""
    return f'"{shown(content.decode(errors="replace"))[1:-1]}"'


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _chosen(table: _Table, wanted: Collection[str] | None, path: Path) -> tuple[list[str], NDArray[np.float32]]:
    missing = None if wanted is None else {word.encode(errors="surrogatepass") for word in wanted}
    words: dict[str, None] = {}
    vectors = bytearray()
    if missing == set():
        return [], np.empty((0, table.dimension), np.float32)
    for row in table.rows:
        if missing is not None and row.word not in missing:
            continue
        word = row.word.decode(errors="ignore")
        if not word or word in words or len(word.encode()) < len(row.word):
            continue
        words[word] = None
        vectors += _vector(row, table.dimension, path).tobytes()
        if missing is not None:
            missing.remove(row.word)
            if not missing:
                break
    return list(words), np.frombuffer(vectors, np.float32).reshape(-1, table.dimension)


def _vector(row: _Row, dimension: int, path: Path) -> NDArray[np.float32]:
    if row.line is None:
        vector = np.frombuffer(row.numbers, "<f4").astype(np.float32)
    else:
        fields = row.numbers.split(b" ")
        try:
            numbers = list(map(float, fields))
        except ValueError:
            wrong = _quoted(next(field for field in fields if not _is_number(field)))
            raise DataError(f"expected {dimension} numbers behind the word, found {wrong}", path, row.line) from None
        with np.errstate(over="ignore"):
            vector = np.array(numbers, np.float32)
    if not np.isfinite(vector).all():
        raise DataError(f"a number of {_quoted(row.word)} is not finite", path, row.line)
    return vector
