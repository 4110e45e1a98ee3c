"""Cached counts of word pairs in a window, for GloVe."""

import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.cache import cache_directory, mark_used, temporary_directory, write_cached
from ensue.data.corpus.cache import entry_name, tokenize
from ensue.data.mapped_file import TokenFile
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.text.tokenizer import WordTokenizer

RECORD = np.dtype([("word", "<i4"), ("context", "<i4"), ("count", "<f4")])
"""A word, a word of its context, and the count of the pair. A pair at a distance of n words has the count 1/n."""
_HEADER = struct.Struct("<8sQI4x")
"""Magic bytes, the number of pairs, and the CRC-32 of their records."""
_MAGIC = b"ensuprs1"
_MAX_PAIRS = 1 << 22
"""The largest number of pairs in memory."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)
"""The odd multipliers of a bijective hash. Its values, unlike the numbers of pairs, are evenly distributed."""
_MIN_SEGMENT_WORDS = 64
"""The smallest number of words in a segment, for very large windows."""
PairCounts = tuple[NDArray[np.uint64], NDArray[np.float64]]
"""The hashes of pairs in ascending order, and the counts of the pairs."""


def write_pair_counts(
    path: Path, tokens: TokenFile, *, size: int, window: int, first_word: int, line_end: int | None
) -> None:
    """Count the pairs of words at a distance of at most `window`, in both orders, and write the counts to `path`.

    Ids from `first_word` to `size` - 1 are words. Pairs do not cross `line_end`. An external merge sort bounds memory.
    """
    with tempfile.TemporaryDirectory(dir=temporary_directory()) as folder, path.open("wb") as file:
        segments: list[list[NDArray[Any]]] = []
        for arrays in _count_segments(tokens, size, window, first_word, line_end):
            paths = [Path(folder) / f"{len(segments)}.{column}.npy" for column in range(len(arrays))]
            for array_path, array in zip(paths, arrays, strict=True):
                np.save(array_path, array)
            segments.append([np.load(array_path, mmap_mode="r") for array_path in paths])
        crc = count = 0
        file.write(bytes(_HEADER.size))
        for hashes, counts in _merge(segments):
            pairs = hashes
            for multiplier in reversed(_MULTIPLIERS):  # the inverse of `_hash`
                pairs = (pairs ^ (pairs >> np.uint64(32))) * np.uint64(pow(multiplier, -1, 1 << 64))
            records = np.empty(len(pairs), RECORD)
            records["word"], records["context"], records["count"] = pairs // size, pairs % size, counts
            crc, count = zlib.crc32(records.tobytes(), crc), count + len(records)
            file.write(records.tobytes())
        file.seek(0)
        file.write(_HEADER.pack(_MAGIC, count, crc))


def open_pair_counts(path: Path) -> NDArray[np.void]:
    """Return the pairs of a file, memory-mapped. Raises DataError for a damaged file."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise DataError("not a file of counted pairs", path)
        _, count, expected = _HEADER.unpack(header)
        crc = 0
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
        if crc != expected or file.tell() != _HEADER.size + count * RECORD.itemsize:
            raise DataError("the counted pairs are damaged", path)
    return np.memmap(path, RECORD, "r", offset=_HEADER.size, shape=(count,)) if count else np.empty(0, RECORD)


def _count_segments(
    tokens: TokenFile, size: int, window: int, first_word: int, line_end: int | None
) -> Iterator[PairCounts]:
    """Yield the counts of each segment of the text. The last words of a segment are repeated in the next segment."""
    step = max(_MIN_SEGMENT_WORDS, _MAX_PAIRS // (2 * window))
    words, lines, num_lines = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for _, ids in tokens.blocks(step):
        line = num_lines + np.cumsum(ids == (-1 if line_end is None else line_end))
        num_lines, num_repeated, is_word = int(line[-1]), len(words), ids >= first_word
        words, lines = np.append(words, ids[is_word]), np.append(lines, line[is_word])
        yield _count_segment(words, lines, num_repeated, window, size)
        words, lines = words[-window:], lines[-window:]


def _count_segment(
    words: NDArray[np.int64], lines: NDArray[np.int64], num_repeated: int, window: int, size: int
) -> PairCounts:
    """Count the pairs of words on the same line, except pairs within the `num_repeated` words at the start."""
    pairs, counts = [np.zeros(0, np.uint64)], [np.zeros(0)]
    for distance in range(1, min(window, len(words) - 1) + 1):
        is_pair = lines[distance:] == lines[:-distance]
        is_pair[: max(0, num_repeated - distance)] = False
        a, b = words[:-distance][is_pair], words[distance:][is_pair]
        pairs += [_hash((a * size + b).astype(np.uint64)), _hash((b * size + a).astype(np.uint64))]
        counts += [np.full(len(a), 1 / distance)] * 2
    return _sum_counts(np.concatenate(pairs), np.concatenate(counts))


def _merge(segments: list[list[NDArray[Any]]]) -> Iterator[PairCounts]:
    """Yield the sums over all segments in ascending order of the hashes, in ranges of about `_MAX_PAIRS` pairs."""
    num_ranges = max(1, -(-sum(len(hashes) for hashes, _ in segments) // _MAX_PAIRS))
    bounds = [np.uint64((1 << 64) * n // num_ranges) for n in range(num_ranges)]
    ends = [np.append(np.searchsorted(hashes, bounds), len(hashes)) for hashes, _ in segments]
    for n in range(num_ranges):
        ranges = [[array[end[n] : end[n + 1]] for array in arrays] for arrays, end in zip(segments, ends, strict=True)]
        yield _sum_counts(*map(np.concatenate, zip(*ranges, strict=True)))


def _sum_counts(hashes: NDArray[np.uint64], counts: NDArray[np.float64]) -> PairCounts:
    """Sort the hashes, and add up the counts of equal hashes."""
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
    return hashes[starts], np.add.reduceat(counts[order], starts) if len(starts) else counts


def _hash(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for multiplier in _MULTIPLIERS:
        pairs = pairs * np.uint64(multiplier)
        pairs = pairs ^ (pairs >> np.uint64(32))
    return pairs


def count_pairs(source: TextSource, tokenizer: WordTokenizer, *, window: int, across_lines: bool) -> NDArray[np.void]:
    """Return the counts of word pairs in `source`, cached. Raises DataError if the counts cannot be written."""
    name = entry_name(".pairs", source, 0, None, [tokenizer.to_json(), window, across_lines])
    path = cache_directory() / name
    try:
        mark_used(path)
        return open_pair_counts(path)
    except (DataError, OSError):
        pass
    tokens, line_end = tokenize(source, tokenizer), None if across_lines else tokenizer.start_id

    def write(path: Path) -> None:
        sizes = {"size": tokenizer.vocabulary_size, "window": window, "first_word": tokenizer.first_word_id}
        write_pair_counts(path, tokens, **sizes, line_end=line_end)

    return open_pair_counts(write_cached(name, write))
