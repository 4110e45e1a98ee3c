"""Detection of text in scripts without blanks between words."""

import re
from collections.abc import Iterable

_LETTERS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Thai, Lao, Tibetan, Myanmar, Khmer, kana and Han."""
MIN_SHARE = 0.3
"""The minimum share of characters of these scripts in a text that is written in one of them."""
MAX_WORD_LENGTH = 5.0
"""The maximum mean length of words in a text whose words are separated by blanks."""
MAX_SPLIT = 10
"""The maximum number of characters of these scripts in a word; longer ones are texts that are not split into words."""


def count_without_blanks(text: str) -> int:
    """Return the number of characters of scripts without blanks between words."""
    return 0 if text.isascii() else len(_LETTERS.findall(text))


def is_unsplit(without_blanks: int, characters: int, words: int) -> bool:
    """Return whether a text with these counts is in a script without blanks and not split into words."""
    return without_blanks > MIN_SHARE * characters and characters > MAX_WORD_LENGTH * max(1, words)


def are_unsplit(texts: Iterable[str]) -> bool:
    """Return `is_unsplit` for the total counts of several texts."""
    counts = [(count_without_blanks(text), len(text), len(text.split())) for text in texts]
    return is_unsplit(*(sum(column) for column in zip(*counts, strict=True))) if counts else False
