"""Vectors to files: word2vec's text and binary, which `vectors.py` reads, numpy's .npy, and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ensue.errors import DataError, nearest
from ensue.outputs import written
from ensue.parsing import shown
from ensue.text.boundaries import BLANKS

Vector = NDArray[np.float32] | NDArray[np.float16]
Row = tuple[str, Vector]


def write_word2vec(path: Path, words: Sequence[str], vectors: NDArray[np.float32], *, binary: bool) -> None:
    """Writes words and their vectors (N, d). Raises DataError for a word with a blank, and if it cannot be written."""
    if wrong := next((word for word in words if not word or any(blank in word for blank in BLANKS)), None):
        raise DataError(f"a row of this format is one word, found {shown(wrong)}; .npy and .jsonl take texts", path)
    with _opened(path) as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            spelled = word.encode(errors="replace")
            numbers = vector.astype("<f4").tobytes() if binary else b" ".join(b"%.9g" % number for number in vector)
            file.write(spelled + b" " + numbers + b"\n")


def json_line(text: str, vector: Vector) -> str:
    """A text and its vector as a line of JSON, without a line end. The numbers are those of the vector, exactly."""
    return json.dumps({"text": text, "vector": [float(f"{number:.9g}") for number in vector]}, ensure_ascii=False)


def write_vectors(path: Path, rows: Iterable[Row]) -> int:
    """Writes texts with their vectors in the format that the name of the file ends with, and returns how many they are.

    JSON lines and .npy are written as the rows come; the other formats hold all vectors in memory.
    """
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(
            f'no format of vectors is named "{path.suffix}"{nearest(path.suffix, FORMATS)}; known: {known}', path
        )
    return FORMATS[path.suffix](path, rows)


def _write_json(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with _opened(path) as file:
        for row in rows:
            file.write(json_line(*row).encode(errors="replace") + b"\n")
            count += 1
    return count


def _write_array(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    form: Vector = np.zeros((0, 0), np.float32)

    def write_header(file: IO[bytes]) -> None:  # it has room for any number of rows, so its length is the same
        described = {"descr": form.dtype.str, "fortran_order": False, "shape": (count, form.shape[-1])}
        np.lib.format.write_array_header_1_0(file, described)

    with _opened(path) as file:
        for _, vector in rows:
            if not count:
                form = vector
                write_header(file)
            file.write(vector.tobytes())
            count += 1
        file.seek(0)
        write_header(file)
    return count


def _write_text(path: Path, rows: Iterable[Row]) -> int:
    words, vectors = _collected(rows)
    write_word2vec(path, words, vectors, binary=False)
    return len(words)


def _write_binary(path: Path, rows: Iterable[Row]) -> int:
    words, vectors = _collected(rows)
    write_word2vec(path, words, vectors, binary=True)
    return len(words)


def _collected(rows: Iterable[Row]) -> tuple[list[str], NDArray[np.float32]]:
    texts, vectors = [], []
    for text, vector in rows:
        texts.append(text)
        vectors.append(vector)
    return texts, np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with written(path) as partial, partial.open("wb") as file:
        yield file


FORMATS: dict[str, Callable[[Path, Iterable[Row]], int]] = {
    ".npy": _write_array,
    ".jsonl": _write_json,
    ".txt": _write_text,
    ".vec": _write_text,
    ".bin": _write_binary,
}
"""Writers by the suffix of the file."""
