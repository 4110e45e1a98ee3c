"""The characters of words as ELMo has them: bytes of UTF-8, with marks where a word or a sentence begins and ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
