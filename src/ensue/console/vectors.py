"""Vectors of texts and their neighbors as lines of output, and the search for texts by vectors."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.sources import is_stream, is_typed, text_lines
from ensue.data.vectors import Row, Vector
from ensue.errors import DataError, quote
from ensue.tasks.contract.chunks import UNSHARDED, Shard
from ensue.tasks.vectors.contextual import highest_cosines, near_duplicates

BATCH_TEXTS = 1024


def embed_lines(model: Any, location: str, *, encoding: str, shard: Shard = UNSHARDED, **options: Any) -> Iterator[Row]:
    """Yield each line of a file, a folder or a stream ("-": stdin) with its vector, in order."""

    def chunks() -> Iterator[list[str]]:
        texts = _read_texts(location, encoding)
        while batch := list(islice(texts, 1 if is_typed(location) else BATCH_TEXTS)):
            yield batch

    for batch in shard.items(chunks):
        yield from zip(batch, model.embed(batch, **options), strict=True)


def _read_texts(location: str, encoding: str) -> Iterator[str]:
    return (line.rstrip("\r\n") for _, line in text_lines(location, encoding))


def neighbor_lines(neighbors: list[Any], *, as_json: bool) -> Iterator[str]:
    """Yield a line for each neighbor: the text, a tab and the cosine; or a JSON object."""
    for text, similarity in neighbors:
        neighbor = {"text": text, "similarity": similarity}
        yield json.dumps(neighbor, ensure_ascii=False) if as_json else f"{text}\t{similarity:.4f}"


def pair_lines(pairs: Iterable[tuple[str, str, float]], *, as_json: bool) -> Iterator[str]:
    """Yield a line for each pair: the cosine and both texts, separated by tabs; or a JSON object."""
    for first, second, cosine in pairs:
        pair = {"texts": [first, second], "similarity": cosine}
        yield json.dumps(pair, ensure_ascii=False) if as_json else f"{cosine:.4f}\t{first}\t{second}"


def to_float16(text: str, vector: Vector) -> NDArray[np.float16]:
    """Return a vector in 16 bits. Raises DataError for numbers that are too large."""
    with np.errstate(over="ignore"):
        rounded = vector.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise DataError(f"the vector of {quote(text)} has a number above the range of 16 bits; leave --half out")
    return rounded


class TextTable:
    """The lines of a file, a folder or a glob as texts, with vectors from the pipeline or a memory-mapped file.

    Raises DataError if the file does not have a vector for each line.
    """

    def __init__(self, pipeline: Any, location: str, file: Path | None, *, encoding: str) -> None:
        if is_stream(location):
            raise DataError("texts that are searched are read twice: expected a file, a folder or a glob", location)
        self.pipeline, self.location, self.encoding = pipeline, location, encoding
        if file is None:
            rows = [vector for _, vector in embed_lines(pipeline, location, encoding=encoding)]
            self.vectors: Any = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
            return
        try:
            self.vectors = np.lib.format.open_memmap(file, mode="r")
        except Exception:  # numpy raises many kinds of errors for damaged files
            raise DataError("cannot be read as vectors; expected the output of embed --out", file) from None
        if self.vectors.ndim != 2 or self.vectors.dtype not in (np.float32, np.float16):
            raise DataError(
                f"expected vectors of one size in 32 or 16 bits; found {self.vectors.dtype} {self.vectors.shape}", file
            )
        lines = sum(1 for _ in _read_texts(location, encoding))
        if lines != len(self.vectors):
            raise DataError(f"{len(self.vectors):,} vectors; {location} has {lines:,} texts", file)

    def _texts_of(self, rows: set[int]) -> dict[int, str]:
        return {row: text for row, text in enumerate(_read_texts(self.location, self.encoding)) if row in rows}

    def neighbors(self, text: str, count: int) -> list[tuple[str, float]]:
        """Return the `count` texts with the highest cosines to a text. Raises DataError for vectors of another size."""
        query = self.pipeline.embed([text])
        if len(self.vectors) and query.shape[1] != self.vectors.shape[1]:
            size = self.vectors.shape[1]
            raise DataError(f"vectors of {size} numbers; the vectors of the model have {query.shape[1]}", self.location)
        (cosines,), (rows,) = highest_cosines(self.vectors, query, count)
        texts = self._texts_of(set(rows.tolist()))
        return [(texts[row], cosine) for row, cosine in zip(rows.tolist(), cosines.tolist(), strict=True)]

    def near_duplicates(self, threshold: float) -> Iterator[tuple[str, str, float]]:
        """Yield the pairs of texts with a cosine of at least `threshold`, in descending order of cosines."""
        pairs = sorted(near_duplicates(self.vectors, threshold), key=lambda pair: -pair[2])
        texts = self._texts_of({row for pair in pairs for row in pair[:2]})
        for first, second, cosine in pairs:
            yield texts[first], texts[second], cosine
