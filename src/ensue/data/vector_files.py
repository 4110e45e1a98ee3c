"""Writers of vectors: word2vec's text and binary formats, numpy's .npy, and JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ensue.errors import DataError, nearest, quote
from ensue.outputs import written
from ensue.text.boundaries import BLANKS

Vector = NDArray[np.float32] | NDArray[np.float16]
Row = tuple[str, Vector]


def write_word2vec(path: Path, words: Sequence[str], vectors: NDArray[np.float32], *, binary: bool) -> None:
    """Write words and vectors (N, d). Raises DataError for a word with a blank, and for an unwritable file."""
    if invalid := next((word for word in words if not word or any(blank in word for blank in BLANKS)), None):
        raise DataError(f"a row of this format is one word, found {quote(invalid)}; .npy and .jsonl take texts", path)
    with _open_output(path) as file:
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
    with _open_output(path) as file:
        for row in rows:
            file.write(json_line(*row).encode(errors="replace") + b"\n")
            count += 1
    return count


def _write_array(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    first: Vector = np.zeros((0, 0), np.float32)

    def write_header(file: IO[bytes]) -> None:  # its length is the same for any number of rows
        header = {"descr": first.dtype.str, "fortran_order": False, "shape": (count, first.shape[-1])}
        np.lib.format.write_array_header_1_0(file, header)

    with _open_output(path) as file:
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


@contextmanager
def _open_output(path: Path) -> Iterator[IO[bytes]]:
    with written(path) as partial, partial.open("wb") as file:
        yield file


FORMATS: dict[str, Callable[[Path, Iterable[Row]], int]] = {
    ".npy": _write_array, ".jsonl": _write_json, **dict.fromkeys((".txt", ".vec", ".bin"), _write_words),
}  # fmt: skip
"""The writer of each suffix."""
