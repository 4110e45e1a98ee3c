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
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import blocks
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.parsing import shown

_LONGEST_PART = 1 << 26


class ByteReader:
    """Reads forward. Memory is that of a block and of the longest part, which has at most 64 MiB."""

    def __init__(self, path: Path) -> None:
        self._blocks = blocks(path)
        self._held = b""
        self._place = self._before = 0

    @property
    def position(self) -> int:
        """How many bytes of the content have been read."""
        return self._before + self._place

    def peek(self, count: int) -> bytes:
        """The next `count` bytes, or all that are left. They can still be read."""
        while len(self._held) - self._place < count and self._load():
            pass
        return self._held[self._place : self._place + count]

    def take(self, count: int) -> bytes | None:
        """The next `count` bytes; None if there are not so many."""
        taken = self.peek(count)
        if len(taken) < count:
            return None
        self._place += count
        return taken

    def until(self, mark: bytes) -> bytes | None:
        """The bytes before the next `mark`, a byte that is read too; None if there is none in the next 64 MiB."""
        seen = 0
        while (end := self._held.find(mark, self._place + seen)) < 0:
            seen = len(self._held) - self._place
            if seen > _LONGEST_PART or not self._load():
                return None
        part = self._held[self._place : end]
        self._place = end + 1
        return part

    def line(self) -> bytes | None:
        """The next line without its `\\n`; None at the end."""
        line = self.until(b"\n")
        if line is None and (rest := self._held[self._place :]):
            self._place = len(self._held)
            return rest
        return line

    def _load(self) -> bool:
        block = next(self._blocks, b"")
        self._held = self._held[self._place :] + block
        self._before += self._place
        self._place = 0
        return bool(block)


_LARGEST_DIMENSION = 1 << 16
_BYTES_TO_LOOK_AT = 4096
_ROWS_TO_LOOK_AT = 20
_OTHER_FILES = {
    b"\xba\x16\x4f\x2f": "a fastText model; `ensue import` reads it, and a .vec file belongs to it",
}


class Row(NamedTuple):
    """A word as in the file, and its unparsed numbers; `line` is None in binary files, `start` its first byte."""

    word: bytes
    numbers: bytes
    line: int | None
    start: int


class Table(NamedTuple):
    """The rows of a file."""

    dimension: int
    rows: Iterator[Row]
    is_binary: bool = False


def read_vectors(
    path: str | Path, wanted: Collection[str] | None = None, *, first: int = 0
) -> tuple[list[str], NDArray[np.float32]]:
    """The words of `wanted` that the file has (all of them for None), and the `first` ones of the file, in its order,
    and their vectors (words, d).

    `.xz` and `.gz` are decompressed. Memory is that of the vectors returned; reading ends with the last one wanted. Of
    a word that comes twice the first one counts; one that is empty or no UTF-8 is passed over. What a header says of
    the number of words means nothing, except that a binary file must not end before.

    Raises DataError (file:line) for a row of another dimension, for what is no finite number, for a binary file that is
    cut off, and for files that hold no vectors.
    """
    file = file_of(path)
    return _chosen(open_table(file), wanted, first, file)


def file_of(path: str | Path) -> Path:
    """The file of vectors. Raises DataError for one that is missing or empty."""
    return TextSource(path, encoding="latin-1").paths[0]  # which has no byte that it could not decode


def open_table(file: Path) -> Table:
    """The rows of a file, which is read as they are asked for. Raises DataError for a file without vectors."""
    reader = ByteReader(file)
    if reader.peek(3) == codecs.BOM_UTF8:
        reader.take(3)
    other = next((what for magic, what in _OTHER_FILES.items() if reader.peek(4) == magic), None)
    if other:
        raise DataError(f"no word vectors, but {other}", file)
    header = _header(reader)
    if header and _is_binary(reader.peek(_BYTES_TO_LOOK_AT)):
        return Table(header[1], _binary_rows(reader, *header, file), is_binary=True)
    return _text_table(reader, header[1] if header else None, file)


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


def _binary_rows(reader: ByteReader, count: int, dimension: int, path: Path) -> Iterator[Row]:
    for read in range(count):
        start = reader.position
        word, numbers = reader.until(b" "), reader.take(4 * dimension)
        if word is None or numbers is None:
            raise DataError(f"cut off: it ends after {read:,} of the {count:,} vectors that its header promises", path)
        yield Row(word.removeprefix(b"\n"), numbers, None, start)


def _text_table(reader: ByteReader, promised: int | None, path: Path) -> Table:
    """The rows, and the dimension: the header's, or that of most of the first rows."""
    filled = _filled_lines(reader, 2 if promised else 1)
    head = list(islice(filled, _ROWS_TO_LOOK_AT))
    widths = Counter(_count_numbers(line.split(b" ")[1:]) for _, _, line in head)
    dimension = promised or next((width for width, _ in widths.most_common(1)), 0)
    if not dimension:
        raise DataError("no word vectors: expected lines of a word and its numbers, with blanks between them", path, 1)
    return Table(dimension, (_row(*line, dimension, path) for line in chain(head, filled)))


def _filled_lines(reader: ByteReader, number: int) -> Iterator[tuple[int, int, bytes]]:
    """Lines that are not empty, with their numbers and the places where they begin."""
    start = reader.position
    while (line := reader.line()) is not None:
        if line := line.rstrip(b" \t\r"):
            yield number, start, line
        number, start = number + 1, reader.position


def row_at(file: BinaryIO, start: int, dimension: int, *, is_binary: bool) -> Row:
    """The row that begins at the byte `start` of a file. Raises DataError for another dimension."""
    file.seek(start)
    if not is_binary:
        return _row(0, start, file.readline().rstrip(b"\n").rstrip(b" \t\r"), dimension, Path(file.name))
    word = bytearray()
    while (byte := file.read(1)) not in (b" ", b""):
        word += byte
    return Row(bytes(word).removeprefix(b"\n"), file.read(4 * dimension), None, start)


def _row(number: int, start: int, line: bytes, dimension: int, path: Path) -> Row:
    """A row taken apart. A word may be empty, and it may have blanks in it, but no number behind a blank."""
    if line.count(b" ") == dimension:
        word, _, numbers = line.partition(b" ")
        return Row(word, numbers, number, start)
    word = line.rsplit(b" ", dimension)[0]
    _, *parts = word.split(b" ")
    if not parts or all(map(_is_number, parts)):
        found = _count_numbers(line.split(b" ")[1:])
        raise DataError(f"expected a word and {dimension} numbers, found {found}", path, number)
    return Row(word, line[len(word) + 1 :], number, start)


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


def _chosen(
    table: Table, wanted: Collection[str] | None, first: int, path: Path
) -> tuple[list[str], NDArray[np.float32]]:
    missing = None if wanted is None else {word.encode(errors="surrogatepass") for word in wanted}
    words: dict[str, None] = {}
    vectors = bytearray()
    rows = iter(()) if missing == set() and not first else table.rows
    for number, row in enumerate(rows, start=1):
        is_wanted = missing is None or number <= first or row.word in missing
        if is_wanted and (word := word_of(row)) and word not in words:
            words[word] = None
            vectors += vector_of(row, table.dimension, path).tobytes()
        if missing is not None:
            missing.discard(row.word)
            if not missing and number >= first:
                break
    return list(words), np.frombuffer(vectors, np.float32).reshape(-1, table.dimension)


def word_of(row: Row) -> str:
    """The word of a row; "" for bytes that are no UTF-8."""
    word = row.word.decode(errors="ignore")
    return word if len(word.encode()) == len(row.word) else ""


def vector_of(row: Row, dimension: int, path: Path) -> NDArray[np.float32]:
    """The numbers of a row. Raises DataError for what is no finite number."""
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
