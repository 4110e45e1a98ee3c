"""Vectors of texts, as lines or as a file, texts that are searched by them, and neighbors as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.lines import Lines
from ensue.data.sources import TextSource, is_stream, is_typed, stream_lines
from ensue.data.vector_files import Row, Vector
from ensue.errors import DataError
from ensue.parsing import shown
from ensue.tasks.contract.chunks import WHOLE, Shard
from ensue.tasks.vectors.text_vectors import highest_cosines, near_duplicates

TOGETHER = 1024
"""Texts that are embedded at once."""


def embedded(pipeline: Any, location: str, *, encoding: str, shard: Shard = WHOLE, **options: Any) -> Iterator[Row]:
    """The lines of a file, a folder or a stream ("-": stdin) as texts with their vectors, in order."""

    def chunks() -> Iterator[list[str]]:
        if is_stream(location):
            lines = stream_lines(location, encoding)
        else:
            lines = Lines(TextSource(location, encoding=encoding).chunks(), location)
        texts = (line.rstrip("\r\n") for _, line in lines)
        while part := list(islice(texts, 1 if is_typed(location) else TOGETHER)):
            yield part

    for part in shard.items(chunks):
        yield from zip(part, pipeline.embed(part, **options), strict=True)


def text_line(row: Row) -> str:
    """A text, a tab, and the numbers of its vector with blanks between them."""
    return f"{row[0]}\t{' '.join(f'{number:.6g}' for number in row[1])}"


def neighbor_lines(neighbors: list[Any], *, as_json: bool) -> Iterator[str]:
    """A line for each neighbor: the text, a tab and the cosine; or a JSON object."""
    for text, similarity in neighbors:
        found = {"text": text, "similarity": similarity}
        yield json.dumps(found, ensure_ascii=False) if as_json else f"{text}\t{similarity:.4f}"


def pair_lines(pairs: Iterable[tuple[str, str, float]], *, as_json: bool) -> Iterator[str]:
    """A line for each pair: the cosine and both texts with tabs between them; or a JSON object."""
    for first, second, cosine in pairs:
        found = {"texts": [first, second], "similarity": cosine}
        yield json.dumps(found, ensure_ascii=False) if as_json else f"{cosine:.4f}\t{first}\t{second}"


def in_half(text: str, vector: Vector) -> NDArray[np.float16]:
    """A vector in 16 bits. Raises DataError for numbers that are too large."""
    with np.errstate(over="ignore"):
        found = vector.astype(np.float16)
    if not np.isfinite(found).all():
        raise DataError(f"a number of its vector does not fit in 16 bits: {shown(text)}; leave --half out")
    return found


class TextTable:
    """The texts of a location, one on a line, and their vectors: those of a file, which is mapped and not read as a
    whole, or of the pipeline.

    Raises DataError if the file has others than a vector for each line, of the pipeline's size.
    """

    def __init__(self, pipeline: Any, location: str, file: Path | None, *, encoding: str) -> None:
        if is_stream(location):
            raise DataError("texts that are searched are read twice: expected a file, a folder or a glob", location)
        self.pipeline, self.location, self.encoding = pipeline, location, encoding
        if file is None:
            rows = [vector for _, vector in embedded(pipeline, location, encoding=encoding)]
            self.vectors: Any = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
            return
        try:
            self.vectors = np.lib.format.open_memmap(file, mode="r")
        except Exception:  # numpy's reader raises errors of many kinds for damaged files
            raise DataError("cannot be read as vectors: expected what embed --out FILE.npy writes", file) from None
        if self.vectors.ndim != 2 or self.vectors.dtype not in (np.float32, np.float16):
            raise DataError(
                f"vectors have one size and 32 or 16 bits; found {self.vectors.dtype} {self.vectors.shape}", file
            )
        lines = sum(1 for _ in self._lines())
        if lines != len(self.vectors):
            raise DataError(f"{len(self.vectors):,} vectors; {location} has {lines:,} texts", file)

    def _lines(self) -> Iterator[str]:
        for _, line in Lines(TextSource(self.location, encoding=self.encoding).chunks(), self.location):
            yield line.rstrip("\r\n")

    def _texts(self, rows: set[int]) -> dict[int, str]:
        """The texts of some rows."""
        return {row: text for row, text in enumerate(self._lines()) if row in rows}

    def neighbors(self, text: str, count: int) -> list[tuple[str, float]]:
        """The texts with the highest cosines to a text, with these. Raises DataError for vectors of another size."""
        query = self.pipeline.embed([text])
        if len(self.vectors) and query.shape[1] != self.vectors.shape[1]:
            size, own = self.vectors.shape[1], query.shape[1]
            raise DataError(f"vectors of {size} numbers; those of the model have {own}", self.location)
        (cosines,), (rows,) = highest_cosines(self.vectors, query, count)
        texts = self._texts(set(rows.tolist()))
        return [(texts[row], cosine) for row, cosine in zip(rows.tolist(), cosines.tolist(), strict=True)]

    def near_duplicates(self, threshold: float) -> Iterator[tuple[str, str, float]]:
        """The pairs of texts whose cosine is `threshold` at least, the most similar ones first."""
        found = sorted(near_duplicates(self.vectors, threshold), key=lambda pair: -pair[2])
        texts = self._texts({row for pair in found for row in pair[:2]})
        for first, second, cosine in found:
            yield texts[first], texts[second], cosine
