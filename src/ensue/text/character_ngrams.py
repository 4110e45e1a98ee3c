"""Character features of words: hashes of n-grams (Bojanowski et al. 2017), and the byte sequences that ELMo reads."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_FNV_OFFSET_BASIS, _FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)
_WORDS_PER_CHUNK = 1 << 15
"""The number of words whose n-grams are hashed at once, which bounds the memory."""
_MAX_CHARACTER_BYTES = 4


def ngram_hashes(words: Sequence[str], min_n: int, max_n: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the hashes (N,) of the n-grams of all words, and the index of the first hash of each word, (W + 1,).

    N-grams have `min_n` to `max_n` characters. `<` and `>` are added around each word; a lone `<` or `>` is not an
    n-gram. As in fastText, the hash function is 32-bit FNV-1a over the UTF-8 bytes, each sign-extended.
    """
    starts = range(0, len(words), _WORDS_PER_CHUNK)
    chunks = [_hash_ngrams(words[start : start + _WORDS_PER_CHUNK], min_n, max_n) for start in starts]
    hashes, counts = zip(*chunks, strict=True) if chunks else ([np.empty(0, np.uint32)], [np.empty(0, np.int64)])
    return np.concatenate(hashes), np.concatenate([[0], np.cumsum(np.concatenate(counts))])


def _hash_ngrams(words: Sequence[str], min_n: int, max_n: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the hashes (N,), sorted by word, and the number of hashes of each word, (W,)."""
    encoded = [f"<{word}>".encode(errors="replace") for word in words]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    ends = np.cumsum([0, *map(len, encoded)])
    is_first_byte = np.append((data & 0xC0) != 0x80, True)
    signed = data.astype(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero(is_first_byte[:-1])
    word = np.searchsorted(ends, starts, side="right") - 1
    end, length = starts.copy(), np.zeros(len(starts), np.int64)
    value = np.full(len(starts), _FNV_OFFSET_BASIS)
    rows = [np.empty((0, 2), np.int64)]
    for _ in range(_MAX_CHARACTER_BYTES * max_n):  # each iteration appends a byte to all n-grams
        can_grow = (end < ends[word + 1]) & (length < max_n)
        starts, word, end, length = (array[can_grow] for array in (starts, word, end, length))
        value = (value[can_grow] ^ signed[end]) * _FNV_PRIME
        end += 1
        is_complete = is_first_byte[end]
        length += is_complete
        at_border = (starts == ends[word]) | (end == ends[word + 1])
        is_ngram = is_complete & (length >= min_n) & ~((length == 1) & at_border)
        rows.append(np.stack([word[is_ngram], value[is_ngram].astype(np.int64)], axis=1))
    table = np.concatenate(rows)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return table[:, 1].astype(np.uint32), np.bincount(table[:, 0], minlength=len(words))


SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(256, 261)
NUM_CHARACTERS = 261
"""The number of ids: 256 bytes and five special characters."""
BOUNDARIES = np.array([[WORD_BEGIN, SENTENCE_BEGIN, WORD_END], [WORD_BEGIN, SENTENCE_END, WORD_END]], np.int64)
"""The words that begin and end a sentence: one special character each, between WORD_BEGIN and WORD_END."""


def word_characters(words: Sequence[str], *, max_length: int) -> NDArray[np.int64]:
    """Return the UTF-8 bytes of U words between WORD_BEGIN and WORD_END, padded on the right with PADDING, (U, L).

    L is at most `max_length`; longer words are truncated. Lone surrogates are left out; UTF-8 cannot encode them.
    """
    encoded = [word.encode("utf-8", "ignore")[: max_length - 2] for word in words]
    lengths = np.array([len(word) for word in encoded], np.int64)
    columns = np.arange(lengths.max(initial=0) + 2)
    characters = np.full((len(words), len(columns)), PADDING, np.int64)
    characters[:, 0] = WORD_BEGIN
    characters[(columns >= 1) & (columns <= lengths[:, None])] = np.frombuffer(b"".join(encoded), np.uint8)
    characters[np.arange(len(words)), lengths + 1] = WORD_END
    return characters
