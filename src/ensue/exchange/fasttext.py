"""fastText's binary models (Bojanowski et al. 2017): words, and the rows of words and of buckets of n-grams."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import DataError

MAGIC, VERSIONS = 793712314, (11, 12)
ARGUMENTS = (
    "dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model", "bucket", "minn", "maxn", "lrUpdateRate"
)  # fmt: skip
KINDS = {1: "cbow", 2: "skip-gram"}
LARGEST_DIMENSION = 1 << 16
SHORTEST_ENTRY = 10
"""Bytes of a word's entry at least: the end of the word, its count, its type."""


class FastText(NamedTuple):
    """The words as in the file, and the rows (words + buckets, d), still in the file."""

    arguments: dict[str, int]
    words: list[bytes]
    rows: NDArray[np.float32]

    @property
    def kind(self) -> str:
        """The model: skip-gram or CBOW."""
        return KINDS[self.arguments["model"]]


class _File:
    """The bytes of a file from front to back. Raises DataError where they end too soon."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place = path, data, 0

    def numbers(self, form: str) -> tuple[float, ...]:
        self.need(struct.calcsize(f"<{form}"))
        found = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def whole(self, form: str) -> int:
        """A whole number from 0 on."""
        (found,) = self.numbers(form)
        if found < 0:
            raise self.damaged(f"a size of {found:,}")
        return int(found)

    def until_zero(self) -> bytes:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise self.damaged("a word without an end")
        found = self.data[self.place : end]
        self.place = end + 1
        return found

    def need(self, count: int) -> None:
        if self.place + count > len(self.data):
            raise self.damaged(f"{count:,} bytes expected from byte {self.place:,} on, {len(self.data):,} in all")

    def damaged(self, what: str) -> DataError:
        return DataError(f"cut off or altered: {what}", self.path)


def is_fasttext(path: Path) -> bool:
    """Whether a file begins as fastText's models do."""
    with path.open("rb") as file:
        return file.read(4) == struct.pack("<i", MAGIC)


def read_fasttext(path: Path) -> FastText:
    """The model of a file. Sizes are compared with that of the file before anything is read.

    Raises DataError for a file that is cut off or altered, quantized, of another version, and for a classifier.
    """
    with path.open("rb") as opened:
        file = _File(path, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    _, version = file.numbers("ii")
    if version not in VERSIONS:
        raise DataError(f"version {version} of fastText's models; expected 11 or 12", path)
    arguments = dict(zip(ARGUMENTS, map(int, file.numbers("12i")), strict=True))
    file.numbers("d")  # the threshold of subsampling
    _check(arguments, path)
    words = _words(file)
    if file.numbers("?")[0]:
        raise DataError("a quantized model, which is not read; expected the .bin that it was made of", path)
    rows, dimension = file.whole("q"), file.whole("q")
    buckets = arguments["bucket"] if arguments["maxn"] else 0
    if dimension != arguments["dim"] or rows not in (len(words) + buckets, len(words) + arguments["bucket"]):
        raise file.damaged(f"{rows:,} × {dimension:,} numbers for {len(words):,} words of {arguments['dim']:,}")
    file.need(4 * rows * dimension)
    found = np.frombuffer(file.data, "<f4", rows * dimension, file.place).reshape(rows, dimension)
    return FastText(arguments, words, found[: len(words) + buckets])


def _check(arguments: dict[str, int], path: Path) -> None:
    if arguments["model"] not in KINDS:
        raise DataError("no word vectors but a classifier of fastText, which is not read", path)
    if not 0 < arguments["dim"] <= LARGEST_DIMENSION:
        raise DataError(f"cut off or altered: vectors of {arguments['dim']:,} numbers", path)
    if not 0 <= arguments["minn"] <= max(arguments["maxn"], arguments["minn"]) <= 100 or arguments["maxn"] < 0:
        raise DataError(f"n-grams of {arguments['minn']} to {arguments['maxn']} characters are not supported", path)
    if arguments["maxn"] and arguments["bucket"] < 1:
        raise DataError(f"cut off or altered: {arguments['bucket']:,} buckets for n-grams", path)


def _words(file: _File) -> list[bytes]:
    size, words, labels = (file.whole("i") for _ in range(3))
    file.whole("q")  # tokens of the text
    (pruned,) = file.numbers("q")
    if pruned > 0 or labels or size != words:
        raise DataError("a pruned model or one with labels, which is not read", file.path)
    file.need(SHORTEST_ENTRY * size)
    found = []
    for _ in range(size):
        found.append(file.until_zero())
        file.numbers("qb")
    return found
