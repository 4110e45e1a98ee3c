"""Scripts without blanks between words."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LETTERS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Thai, Lao, Tibetan, Myanmar, Khmer, kana and Han."""
MOST = 0.3
"""The share of such characters from which a text is in such a script."""
LONGEST_WORD = 5.0
"""The most characters of a word, on average, in a text that is cut into words."""


def count_without_blanks(text: str) -> int:
    """The number of characters of scripts without blanks between words."""
    return 0 if text.isascii() else len(_LETTERS.findall(text))


def is_unsplit(without_blanks: int, characters: int, words: int) -> bool:
    """Whether a text is in a script without blanks and not cut into words, from what is counted of it."""
    return without_blanks > MOST * characters and characters > LONGEST_WORD * max(1, words)


def are_unsplit(texts: Iterable[str]) -> bool:
    """Whether all texts together are so written."""
    counts = [(count_without_blanks(text), len(text), len(text.split())) for text in texts]
    return is_unsplit(*(sum(column) for column in zip(*counts, strict=True))) if counts else False
