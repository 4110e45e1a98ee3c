"""Ids and tokenizers in the cache, under a key of all that they depend on."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ensue.cache import put, used
from ensue.cache_folders import cache_directory, temporary_directory
from ensue.data.corpus.token_file import TokenFile, check_tokens, write_tokens
from ensue.data.sources import TextSource
from ensue.errors import DataError, RunError
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer
from ensue.text.words import WordTokenizer

RECORD = np.dtype([("of", "<i4"), ("near", "<i4"), ("count", "<f4")])
"""A word, another one near it, and how often, where a distance of n words counts 1/n."""
_HEADER = struct.Struct("<8sQI4x")
"""Magic, how many pairs there are, and their CRC-32."""
_MAGIC = b"ensuprs1"
_PAIRS = 1 << 22
"""Pairs that are held in memory at once."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)
_WORDS = 64
Sorted = tuple[NDArray[np.uint64], NDArray[np.float64]]


def write_pair_counts(
    path: Path, tokens: TokenFile, *, size: int, window: int, first_word: int, line_end: int | None
) -> None:
    """Counts the pairs of words at most `window` words from each other, in both orders, and writes them to `path`.

    The ids of words are from `first_word` to `size`. Others are passed over, but no pair goes across `line_end`.
    """
    with tempfile.TemporaryDirectory(dir=temporary_directory()) as folder, path.open("wb") as file:
        runs: list[list[NDArray[Any]]] = []
        for numbers, counts in _runs(tokens, size, window, first_word, line_end):
            names = [Path(folder) / f"{len(runs)}.{part}.npy" for part in ("numbers", "counts")]
            np.save(names[0], numbers)
            np.save(names[1], counts)
            runs.append([np.load(name, mmap_mode="r") for name in names])
        crc = count = 0
        file.write(bytes(_HEADER.size))
        for numbers, counts in _merged(runs):
            records = np.empty(len(numbers), RECORD)
            pairs = numbers
            for multiplier in reversed(_MULTIPLIERS):
                pairs = (pairs ^ (pairs >> np.uint64(32))) * np.uint64(pow(multiplier, -1, 1 << 64))
            records["of"], records["near"], records["count"] = pairs // size, pairs % size, counts
            crc, count = zlib.crc32(records.tobytes(), crc), count + len(records)
            file.write(records.tobytes())
        file.seek(0)
        file.write(_HEADER.pack(_MAGIC, count, crc))


def open_pair_counts(path: Path) -> NDArray[np.void]:
    """The pairs of a file, memory-mapped. Raises DataError unless they are those that were written."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(_MAGIC):
            raise DataError("not a file of counted pairs", path)
        _, count, expected = _HEADER.unpack(head)
        crc = 0
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
        if crc != expected or file.tell() != _HEADER.size + count * RECORD.itemsize:
            raise DataError("the counted pairs are damaged", path)
    return np.memmap(path, RECORD, "r", offset=_HEADER.size, shape=(count,)) if count else np.empty(0, RECORD)


def _runs(tokens: TokenFile, size: int, window: int, first_word: int, line_end: int | None) -> Iterator[Sorted]:
    """The counts of part after part of the text; the last words of a part count as neighbors in the next."""
    piece = max(_WORDS, _PAIRS // (2 * window))
    words, lines, before = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for start in range(0, len(tokens), piece):
        ids = tokens.read(start, min(start + piece, len(tokens)))
        line = before + np.cumsum(ids == (-1 if line_end is None else line_end))
        before, old, known = int(line[-1]), len(words), ids >= first_word
        words, lines = np.append(words, ids[known]), np.append(lines, line[known])
        yield _counted(words, lines, old, window, size)
        words, lines = words[-window:], lines[-window:]


def _counted(words: NDArray[np.int64], lines: NDArray[np.int64], old: int, window: int, size: int) -> Sorted:
    """The pairs whose later word is not among the `old` first ones."""
    pairs, counts = [np.zeros(0, np.uint64)], [np.zeros(0)]
    for distance in range(1, min(window, len(words) - 1) + 1):
        near = lines[distance:] == lines[:-distance]
        near[: max(0, old - distance)] = False
        a, b = words[:-distance][near], words[distance:][near]
        pairs += [_scrambled((a * size + b).astype(np.uint64)), _scrambled((b * size + a).astype(np.uint64))]
        counts += [np.full(len(a), 1 / distance)] * 2
    return _summed(np.concatenate(pairs), np.concatenate(counts))


def _merged(runs: list[list[NDArray[Any]]]) -> Iterator[Sorted]:
    """The sums over all runs, in ascending order of the numbers, part by part."""
    parts = max(1, -(-sum(len(numbers) for numbers, _ in runs) // _PAIRS))
    borders = [np.uint64((1 << 64) * part // parts) for part in range(parts)]
    places = [np.append(np.searchsorted(numbers, borders), len(numbers)) for numbers, _ in runs]
    for part in range(parts):
        cut = [(slice(place[part], place[part + 1]), run) for place, run in zip(places, runs, strict=True)]
        yield _summed(
            np.concatenate([run[0][where] for where, run in cut]), np.concatenate([run[1][where] for where, run in cut])
        )


def _summed(numbers: NDArray[np.uint64], counts: NDArray[np.float64]) -> Sorted:
    """Each number once, in ascending order, with the sum of its counts."""
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    first = np.flatnonzero(np.diff(numbers, prepend=~numbers[:1]))
    return numbers[first], np.add.reduceat(counts[order], first) if len(first) else counts


def _scrambled(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each number as another one of 64 bits, by steps that can be undone."""
    for multiplier in _MULTIPLIERS:
        numbers = numbers * np.uint64(multiplier)
        numbers = numbers ^ (numbers >> np.uint64(32))
    return numbers


FORMAT = 1
"""Raise it when a tokenizer or the files change in a way that `to_json` does not show."""


class TextToIds(Protocol):
    """Text to ids: a tokenizer, or what makes more of its ids. `to_json` tells all that they depend on."""

    @property
    def vocabulary_size(self) -> int:
        """The ids are below this number."""

    @property
    def unknown_id(self) -> int | None:
        """The id of what is not known, if there is one."""

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, or of a part of it that ends at a boundary."""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""


def tokenize(source: TextSource, tokenizer: TextToIds, *, start: int = 0, stop: int | None = None) -> TokenFile:
    """The ids of the characters [start, stop) of `source`, from the cache if it has them.

    An entry that is damaged is made anew. Raises DataError if the text cannot be read, or if ids cannot be written.
    """
    name = _name(".ids", source, start, stop, tokenizer.to_json())
    if (tokens := _opened(cache_directory() / name)) is not None:
        return tokens

    def write(path: Path) -> None:
        pieces = ((tokenizer.encode(chunk), len(chunk)) for chunk in source.chunks(start, stop))
        write_tokens(path, pieces, vocabulary_size=tokenizer.vocabulary_size, unknown_id=tokenizer.unknown_id)

    return TokenFile.open(_put(name, write))


def counted_pairs(source: TextSource, tokenizer: WordTokenizer, *, window: int, across_lines: bool) -> NDArray[np.void]:
    """The counts of pairs of words in `source` , from the cache if it has them.

    Raises DataError if they cannot be written.
    """
    name = _name(".pairs", source, 0, None, [tokenizer.to_json(), window, across_lines])
    path = cache_directory() / name
    try:
        used(path)
        return open_pair_counts(path)
    except (DataError, OSError):
        pass
    tokens, line_end = tokenize(source, tokenizer), None if across_lines else tokenizer.start_id

    def write(path: Path) -> None:
        write_pair_counts(
            path, tokens, size=tokenizer.vocabulary_size, window=window, first_word=tokenizer.first_word_id,
            line_end=line_end,
        )  # fmt: skip

    return open_pair_counts(_put(name, write))


def trained_tokenizer(source: TextSource, *, stop: int | None, kind: str, **settings: Any) -> Tokenizer:
    """`train_tokenizer(kind, ...)` on the characters [0, stop) of `source`, from the cache if it has it."""
    name = _name(".json", source, 0, stop, [kind, settings])
    path = cache_directory() / name
    try:
        tokenizer = load_tokenizer(path)
    except RunError:  # missing or damaged
        tokenizer = train_tokenizer(kind, source.chunks(0, stop), **settings)
        _put(name, partial(save_tokenizer, tokenizer))
    else:
        used(path)
    return tokenizer


def _name(suffix: str, source: TextSource, start: int, stop: int | None, maker: Any) -> str:
    key = json.dumps([FORMAT, source.fingerprint(), source.encoding, start, stop, maker], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:32] + suffix


def _opened(path: Path) -> TokenFile | None:
    """The ids at `path`, or None if they are missing or damaged, or cannot be read."""
    try:
        check_tokens(path)
        used(path)
        return TokenFile.open(path)
    except (DataError, OSError):
        return None


def _put(name: str, write: Callable[[Path], object]) -> Path:
    try:
        return put(name, write)
    except OSError as error:
        raise DataError(
            f"nothing can be written, neither there nor in a temporary folder ({error.strerror or error})",
            cache_directory(),
        ) from error
