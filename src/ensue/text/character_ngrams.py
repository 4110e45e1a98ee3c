"""The characters of a word as numbers: hashes of its n-grams (Bojanowski et al. 2017), and bytes as ELMo has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_START, _PRIME = np.uint32(2166136261), np.uint32(16777619)
_WORDS = 1 << 15
"""Words whose n-grams are found together, for a bounded memory."""
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most."""


def ngram_hashes(words: Sequence[str], shortest: int, longest: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes of the n-grams of `shortest` to `longest` characters in each `<word>`, and where those of each word
    begin: (N,) and (words + 1,).

    `<` and `>` stand before and behind the word; alone they are no n-gram. The hash is fastText's: FNV-1a of 32 bits
    over the UTF-8 bytes, each extended with its sign.
    """
    parts = [_hashes(words[first : first + _WORDS], shortest, longest) for first in range(0, len(words), _WORDS)]
    hashes, counts = zip(*parts, strict=True) if parts else ([np.empty(0, np.uint32)], [np.empty(0, np.int64)])
    return np.concatenate(hashes), np.concatenate([[0], np.cumsum(np.concatenate(counts))])


def _hashes(words: Sequence[str], shortest: int, longest: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The hashes (N,), word by word, and how many each word has."""
    spelled = [f"<{word}>".encode(errors="replace") for word in words]
    data = np.frombuffer(b"".join(spelled), np.uint8)
    ends = np.cumsum([0, *map(len, spelled)])
    begins_character = np.append((data & 0xC0) != 0x80, True)
    signed = data.astype(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero(begins_character[:-1])
    word = np.searchsorted(ends, starts, side="right") - 1
    place, length = starts.copy(), np.zeros(len(starts), np.int64)
    value = np.full(len(starts), _START)
    found = [np.empty((0, 3), np.int64)]
    for _ in range(_LONGEST_CHARACTER * longest):  # one more byte for all n-grams that have begun
        inside = (place < ends[word + 1]) & (length < longest)
        starts, word, place, length = (part[inside] for part in (starts, word, place, length))
        value = (value[inside] ^ signed[place]) * _PRIME
        place += 1
        whole = begins_character[place]
        length += whole
        at_border = (starts == ends[word]) | (place == ends[word + 1])
        chosen = whole & (length >= shortest) & ~((length == 1) & at_border)
        found.append(np.stack([word[chosen], starts[chosen], value[chosen].astype(np.int64)], axis=1))
    rows = np.concatenate(found)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 2].astype(np.uint32), np.bincount(rows[:, 0], minlength=len(words))


SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(256, 261)
NUM_CHARACTERS = 261
"""The 256 bytes and the five marks."""
BOUNDARIES = np.array([[WORD_BEGIN, SENTENCE_BEGIN, WORD_END], [WORD_BEGIN, SENTENCE_END, WORD_END]], np.int64)
"""The marks before and after a sentence, each like a word of one character."""


def word_characters(words: Sequence[str], *, longest: int) -> NDArray[np.int64]:
    """The characters (U, L) of words, each with its begin and its end, right-padded.

    L is at most `longest`: of a longer word the first bytes are read. What UTF-8 does not have, half of a surrogate
    pair, is left out.
    """
    spelled = [word.encode("utf-8", "ignore")[: longest - 2] for word in words]
    lengths = np.array([len(word) for word in spelled], np.int64)
    places = np.arange(lengths.max(initial=0) + 2)
    found = np.full((len(words), len(places)), PADDING, np.int64)
    found[:, 0] = WORD_BEGIN
    found[(places >= 1) & (places <= lengths[:, None])] = np.frombuffer(b"".join(spelled), np.uint8)
    found[np.arange(len(words)), lengths + 1] = WORD_END
    return found
