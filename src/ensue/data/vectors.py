"""Readers and writers of word vectors: text formats of GloVe, word2vec and fastText, and word2vec's binary format.

In the text formats, a row has a word and its numbers, separated by blanks. Files of word2vec and fastText begin with a
header, which has the numbers of words and dimensions. Numbers in the binary format are float32, little-endian.

For random access, the cache stores the hash of each word and the offset of its row, sorted by hash. It also stores the
decompressed content of a compressed file. Both are computed at first use, and again if the file changes.
"""

import codecs
import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.cache import cache_directory, json_digest, mark_used, size_limit, write_cached
from ensue.data.decoding import COMPRESSED, read_blocks
from ensue.data.sources import TextSource
from ensue.errors import DataError, nearest, quote
from ensue.extension import installed_models
from ensue.outputs import atomic_output
from ensue.stored import Copyable
from ensue.text.boundaries import BLANKS

_ENGLISH_WORDS = ("a", "and", "for", "in", "is", "it", "of", "on", "that", "the", "this", "to", "was", "with")
_MIN_ENGLISH_SHARE = 0.1
"""The minimum share of `_ENGLISH_WORDS` in an English text."""
_MAX_ITEM_BYTES = 1 << 26  # bounds the memory for files of other formats


class ByteReader:
    """A sequential reader of bytes. It holds a block and the longest item, of at most 64 MiB, in memory."""

    def __init__(self, path: Path) -> None:
        self._blocks = read_blocks(path)
        self._buffer = b""
        self._index = self._before = 0

    @property
    def position(self) -> int:
        """The number of bytes that were consumed."""
        return self._before + self._index

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, or the remaining bytes if there are fewer, without consuming them."""
        while len(self._buffer) - self._index < count and self._load():
            pass
        return self._buffer[self._index : self._index + count]

    def read(self, count: int) -> bytes | None:
        """Consume and return the next `count` bytes; None if fewer bytes remain."""
        result = self.peek(count)
        if len(result) < count:
            return None
        self._index += count
        return result

    def read_until(self, mark: bytes) -> bytes | None:
        """Consume the bytes up to and including the next `mark`, and return the bytes before the mark.

        Returns None if the next 64 MiB, or the remaining bytes, have no mark.
        """
        searched = 0
        while (end := self._buffer.find(mark, self._index + searched)) < 0:
            searched = len(self._buffer) - self._index
            if searched > _MAX_ITEM_BYTES or not self._load():
                return None
        item = self._buffer[self._index : end]
        self._index = end + 1
        return item

    def read_line(self) -> bytes | None:
        """Consume and return the next line without its `\\n`; None at the end of the file."""
        line = self.read_until(b"\n")
        if line is None and (rest := self._buffer[self._index :]):
            self._index = len(self._buffer)
            return rest
        return line

    def _load(self) -> bool:
        block = next(self._blocks, b"")
        self._buffer = self._buffer[self._index :] + block
        self._before += self._index
        self._index = 0
        return bool(block)


_MAX_DIMENSION = 1 << 16
_MAX_HEAD_BYTES, _MAX_HEAD_ROWS = 4096, 20
_OTHER_FILES = {b"\xba\x16\x4f\x2f": "a fastText model; import it with `ensue import`, or use its .vec file"}

WordVectors = tuple[list[str], NDArray[np.float32]]


class VectorRow(NamedTuple):
    """A word and its unparsed numbers. `line` is None in binary files. `start` is the offset of the row in bytes."""

    word: bytes
    numbers: bytes
    line: int | None
    start: int


class VectorTable(NamedTuple):
    """An iterator over the rows of a file, and the dimension of its vectors."""

    dimension: int
    rows: Iterator[VectorRow]
    is_binary: bool = False


def read_vectors(path: str | Path, wanted: Collection[str] | None = None, *, num_first: int = 0) -> WordVectors:
    """Return words of a file, in the order of the file, and their vectors (words, d).

    The result has the words in `wanted` (None: all words) and the first `num_first` words of the file. `.xz` and `.gz`
    files are decompressed. Reading ends with the last wanted word. If a word occurs twice, the first vector is
    returned. Words that are empty or not UTF-8 are skipped. The number of words in a header is ignored, but a binary
    file must not have fewer words. Raises DataError (file:line) for a file without vectors, a row of another dimension,
    a number that is not finite, and a truncated binary file.
    """
    file = file_of(path)
    return _select_rows(open_table(file), wanted, num_first, file)


def file_of(path: str | Path) -> Path:
    """Return the path of a file of vectors. Raises DataError for a missing or empty file."""
    return TextSource(path, encoding="latin-1").paths[0]  # Latin-1 decodes any byte


def open_table(file: Path) -> VectorTable:
    """Open a file of vectors, whose rows are read lazily. Raises DataError for a file without vectors."""
    reader = ByteReader(file)
    if reader.peek(3) == codecs.BOM_UTF8:
        reader.read(3)
    if other := _OTHER_FILES.get(reader.peek(4)):
        raise DataError(f"no word vectors, but {other}", file)
    header = _read_header(reader)
    if header and _is_binary(reader.peek(_MAX_HEAD_BYTES)):
        return VectorTable(header[1], _binary_rows(reader, *header, file), is_binary=True)
    # the header, or else the majority of the first rows, has the dimension
    header_dimension = header[1] if header else None
    filled = _filled_lines(reader, 2 if header_dimension else 1)
    head = list(islice(filled, _MAX_HEAD_ROWS))
    widths = Counter(_count_numbers(line.split(b" ")[1:]) for _, _, line in head)
    dimension = header_dimension or next((width for width, _ in widths.most_common(1)), 0)
    if not dimension:
        raise DataError("no word vectors: expected lines of a word and its numbers, with blanks between them", file, 1)
    return VectorTable(dimension, (_split_row(*line, dimension, file) for line in chain(head, filled)))


def _read_header(reader: ByteReader) -> tuple[int, int] | None:
    fields = reader.peek(_MAX_HEAD_BYTES).partition(b"\n")[0].split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 16 for field in fields):
        return None
    count, dimension = map(int, fields)
    if not 0 < dimension <= _MAX_DIMENSION:
        return None
    reader.read_line()
    return count, dimension


def _is_binary(head: bytes) -> bool:
    if any(map(_is_number, head.replace(b"\n", b" ").split(b" ")[1:4])):  # words may contain other white space
        return False
    try:
        head[: head.rfind(b" ")].decode()
    except UnicodeDecodeError:
        return True
    return bool(set(head) & set(range(9)))


def _binary_rows(reader: ByteReader, count: int, dimension: int, path: Path) -> Iterator[VectorRow]:
    for num in range(count):
        start = reader.position
        word, numbers = reader.read_until(b" "), reader.read(4 * dimension)
        if word is None or numbers is None:
            raise DataError(f"truncated: {num:,} vectors, but the header has the number {count:,}", path)
        yield VectorRow(word.removeprefix(b"\n"), numbers, None, start)


def _filled_lines(reader: ByteReader, number: int) -> Iterator[tuple[int, int, bytes]]:
    start = reader.position
    while (line := reader.read_line()) is not None:
        if line := line.rstrip(b" \t\r"):
            yield number, start, line
        number, start = number + 1, reader.position


def row_at(file: BinaryIO, start: int, dimension: int, *, is_binary: bool) -> VectorRow:
    """Read the row at an offset. Raises DataError if its dimension is not `dimension`."""
    file.seek(start)
    if not is_binary:
        return _split_row(0, start, file.readline().rstrip(b"\n").rstrip(b" \t\r"), dimension, Path(file.name))
    word = bytearray()
    while (byte := file.read(1)) not in (b" ", b""):
        word += byte
    return VectorRow(bytes(word).removeprefix(b"\n"), file.read(4 * dimension), None, start)


def _split_row(number: int, start: int, line: bytes, dimension: int, path: Path) -> VectorRow:
    """Split a row. A word may be empty, or contain blanks if a field after the first blank is not a number."""
    if line.count(b" ") == dimension:
        word, _, numbers = line.partition(b" ")
        return VectorRow(word, numbers, number, start)
    word = line.rsplit(b" ", dimension)[0]
    _, *fields = word.split(b" ")
    if not fields or all(map(_is_number, fields)):
        result = _count_numbers(line.split(b" ")[1:])
        raise DataError(f"expected a word and {dimension} numbers, found {result}", path, number)
    return VectorRow(word, line[len(word) + 1 :], number, start)


def _count_numbers(fields: list[bytes]) -> int:
    return next((count for count, field in enumerate(reversed(fields)) if not _is_number(field)), len(fields))


def _quote(content: bytes) -> str:
    return f'"{quote(content.decode(errors="replace"))[1:-1]}"'


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _select_rows(table: VectorTable, wanted: Collection[str] | None, num_first: int, path: Path) -> WordVectors:
    missing = None if wanted is None else {word.encode(errors="surrogatepass") for word in wanted}
    words: dict[str, None] = {}
    vectors = bytearray()
    rows = iter(()) if missing == set() and not num_first else table.rows
    for number, row in enumerate(rows, start=1):
        is_wanted = missing is None or number <= num_first or row.word in missing
        if is_wanted and (word := word_of(row)) and word not in words:
            words[word] = None
            vectors += vector_of(row, table.dimension, path).tobytes()
        if missing is not None:
            missing.discard(row.word)
            if not missing and number >= num_first:
                break
    return list(words), np.frombuffer(vectors, np.float32).reshape(-1, table.dimension)


def word_of(row: VectorRow) -> str:
    """Return the word of a row; "" if the word is not valid UTF-8."""
    word = row.word.decode(errors="ignore")
    return word if len(word.encode()) == len(row.word) else ""


def vector_of(row: VectorRow, dimension: int, path: Path) -> NDArray[np.float32]:
    """Parse the numbers of a row. Raises DataError for a number that is not finite."""
    if row.line is None:
        vector = np.frombuffer(row.numbers, "<f4").astype(np.float32)
    else:
        fields = row.numbers.split(b" ")
        try:
            numbers = list(map(float, fields))
        except ValueError:
            invalid = _quote(next(field for field in fields if not _is_number(field)))
            raise DataError(f"expected {dimension} numbers after the word, found {invalid}", path, row.line) from None
        with np.errstate(over="ignore"):
            vector = np.array(numbers, np.float32)
    if not np.isfinite(vector).all():
        raise DataError(f"a number of {_quote(row.word)} is not finite", path, row.line)
    return vector


def propose_vectors(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a note on the model `en-vectors`, if it is installed and the counted words are English."""
    is_english = sum(map(counts.get, _ENGLISH_WORDS, repeat(0))) > _MIN_ENGLISH_SHARE * sum(counts.values())
    if is_english and "en-vectors" in installed_models():
        yield "features.vectors=en-vectors may help: accuracy 70.0 to 81.8 % for 100 AG News texts (docs/few-labels.md)"


FORMAT_VERSION = 1
"""The version of the format of the index."""


class VectorIndex(Copyable):
    """An index of the word vectors in a file. Raises DataError for a file without vectors.

    A compressed file that is too large for the cache is read again in each call of `find`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = file_of(path)
        table = open_table(self.path)
        self.dimension, self._is_binary = table.dimension, table.is_binary
        state = self.path.stat()
        self._name = json_digest([FORMAT_VERSION, str(self.path.absolute()), state.st_size, state.st_mtime_ns])
        self._is_compressed = self.path.suffix.lower() in COMPRESSED

    @cached_property
    def _decompressed(self) -> Path:
        return self._cached_file(".vectors", self._write_content) if self._is_compressed else self.path

    @cached_property
    def _hashes_and_offsets(self) -> NDArray[np.uint64]:
        """The hashes of all words in ascending order, and the offsets of their rows, (2, N)."""
        try:
            return self._load_index()
        except (ValueError, EOFError):  # damaged
            (cache_directory() / f"{self._name}.places").unlink(missing_ok=True)
            return self._load_index()

    def _load_index(self) -> NDArray[np.uint64]:
        index: NDArray[np.uint64] = np.load(self._cached_file(".places", self._write_index), mmap_mode="r")
        if index.dtype != np.uint64 or index.ndim != 2 or len(index) != 2:
            raise ValueError
        return index

    def find(self, words: Collection[str]) -> WordVectors:
        """Return the words that are in the file, and their vectors (words, d). Raises DataError for an invalid row."""
        if self._is_compressed and 8 * self.path.stat().st_size > size_limit():
            return read_vectors(self.path, words)
        result, vectors = [], [np.empty((0, self.dimension), np.float32)]
        with self._decompressed.open("rb") as file:
            for word in words:
                if (row := self._find_row(file, word.encode(errors="surrogatepass"))) and word_of(row):
                    try:
                        vectors.append(vector_of(row, self.dimension, self.path)[None])
                    except DataError:
                        read_vectors(self.path, {word})  # raises an error with the line number
                        raise
                    result.append(word)
        return result, np.concatenate(vectors)

    def _find_row(self, file: BinaryIO, word: bytes) -> VectorRow | None:
        hashes, starts = self._hashes_and_offsets
        begin, end = (np.searchsorted(hashes, _hash(word), side) for side in ("left", "right"))
        rows = (row_at(file, int(start), self.dimension, is_binary=self._is_binary) for start in starts[begin:end])
        return next((row for row in rows if row.word == word), None)

    def _cached_file(self, suffix: str, write: Callable[[Path], object]) -> Path:
        path = cache_directory() / f"{self._name}{suffix}"
        if path.exists():
            mark_used(path)
            return path
        return write_cached(path.name, write)

    def _write_content(self, path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(read_blocks(self.path))

    def _write_index(self, path: Path) -> None:
        hashes, starts = array("Q"), array("Q")
        for row in open_table(self._decompressed).rows:
            hashes.append(int(_hash(row.word)))
            starts.append(row.start)
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable")
        with path.open("wb") as file:
            np.save(file, np.stack([np.frombuffer(column, np.uint64)[order] for column in (hashes, starts)]))


def _hash(word: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little"))


Vector = NDArray[np.float32] | NDArray[np.float16]
Row = tuple[str, Vector]


def write_word2vec(path: Path, words: Sequence[str], vectors: NDArray[np.float32], *, binary: bool) -> None:
    """Write words and vectors (N, d). Raises DataError for an empty word, a blank in a word or an unwritable file."""
    if invalid := next((word for word in words if not word or any(blank in word for blank in BLANKS)), None):
        raise DataError(f"this format is for words, found {quote(invalid)}; .npy and .jsonl are for texts", path)
    with atomic_output(path) as partial, partial.open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            encoded = word.encode(errors="replace")
            numbers = vector.astype("<f4").tobytes() if binary else b" ".join(b"%.9g" % number for number in vector)
            file.write(encoded + b" " + numbers + b"\n")


def json_line(text: str, vector: Vector) -> str:
    """Return a text and its vector as JSON, without a line end. The digits determine float32 numbers exactly."""
    return json.dumps({"text": text, "vector": [float(f"{number:.9g}") for number in vector]}, ensure_ascii=False)


def write_vectors(path: Path, rows: Iterable[Row]) -> int:
    """Write texts and their vectors in the format of the file's suffix, and return the number of vectors.

    JSON lines and .npy files are written incrementally; other formats hold all vectors in memory.
    """
    if path.suffix not in FORMATS:
        problem = f'no format of vectors is named "{path.suffix}"{nearest(path.suffix, FORMATS)}'
        raise DataError(f"{problem}; known: {', '.join(FORMATS)}", path)
    return FORMATS[path.suffix](path, rows)


def _write_json(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with atomic_output(path) as partial, partial.open("wb") as file:
        for row in rows:
            file.write(json_line(*row).encode(errors="replace") + b"\n")
            count += 1
    return count


def _write_array(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    first: Vector = np.zeros((0, 0), np.float32)

    def write_header(file: IO[bytes]) -> None:  # the header has the same length for any number of rows
        header = {"descr": first.dtype.str, "fortran_order": False, "shape": (count, first.shape[-1])}
        np.lib.format.write_array_header_1_0(file, header)

    with atomic_output(path) as partial, partial.open("wb") as file:
        for _, vector in rows:
            if not count:
                first = vector
                write_header(file)
            file.write(vector.tobytes())
            count += 1
        file.seek(0)
        write_header(file)
    return count


def _write_words(path: Path, rows: Iterable[Row]) -> int:
    pairs = list(rows)
    table = np.stack([vector for _, vector in pairs]).astype(np.float32) if pairs else np.zeros((0, 0), np.float32)
    write_word2vec(path, [word for word, _ in pairs], table, binary=path.suffix == ".bin")
    return len(pairs)


FORMATS: dict[str, Callable[[Path, Iterable[Row]], int]] = {
    ".npy": _write_array, ".jsonl": _write_json, **dict.fromkeys((".txt", ".vec", ".bin"), _write_words),
}  # fmt: skip
"""The writer of each suffix."""
