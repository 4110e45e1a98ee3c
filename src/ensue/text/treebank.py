"""English words as in the Penn Treebank and Universal Dependencies. Quotes are kept.

Contractions are split (`do|n't`, `I|'m`, `dog|'s`, `can|not`, `gon|na`). Punctuation marks are tokens, except in
numbers, abbreviations and addresses. Hyphens are tokens too, except after prefixes, as in the newer treebanks
(`well|-|known`, `non-smoker`). On the running text of UD English-EWT's development data the words have an F1 of 98.8 %.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_A = "['’]"
_CLITIC = rf"{_A}(?:s|m|d|re|ve|ll)(?!\w)"
_ABBREVIATION = (
    "Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Sen|Rep|Gov|Lt|Col|Sgt|Capt|St|Ft|Sr|Jr|Inc|Corp|Ltd|Co|Bros|vs|Ave|Blvd|Rd|"
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
)
_NAME = r"[\w-]{1,64}"  # bounded, so that a long line without blanks costs time in proportion to its length
_ENDING = "com|org|net|edu|gov|uk|de|fr|jp|htm|html|pdf|doc|xls|ppt|txt|exe|zip|jpg|gif|png"
_PREFIX = "anti|co|e|ex|inter|mid|mini|multi|non|post|pre|pro|pseudo|re|semi|sub|super|ultra|un"
_BEFORE_NT = "do|does|did|is|are|was|were|has|have|had|would|could|should|ca|wo"
_EXPRESSIONS = [
    r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]'}]",
    rf"[\w.+-]{{1,64}}@{_NAME}(?:\.{_NAME}){{1,8}}|{_NAME}(?:\.{_NAME}){{0,8}}\.(?:{_ENDING})(?!\w)",
    r"(?<!\w)[:;=][-']?[()DP](?!\w)",  # faces
    rf"(?<!\w)(?:(?:[A-Z]\.){{2,}}|(?:{_ABBREVIATION})\.|(?-i:[A-Z]\.(?=\ [A-Z])))",
    r"(?<!\w)\d{3}-(?:\d{3}-)?\d{4}(?!\w)",  # telephones
    r"\d+(?:[.,:/]\d+)*(?:(?:st|nd|rd|th|s)?(?!\w)|(?=[ap]m(?!\w)))|(?<!\w)\.\d+",
    rf"(?<!\w)(?:can(?=not(?!\w))|(?:gon|wan)(?=na(?!\w))|got(?=ta(?!\w))|(?:{_BEFORE_NT})(?=nt(?!\w)))",
    rf"[^\W_]+?(?=n{_A}t(?!\w))|n{_A}t(?!\w)|{_CLITIC}",
    rf"(?<!\w)(?:{_PREFIX})-\w+|(?-i:[A-Z]+&[A-Z]+)(?!\w)",
    rf"\w+(?:(?!{_CLITIC}){_A}\w+)*",
    r"([-*=_<>'‘’`])\1+|[.!?]{2,}|\S",
]
EXPRESSION = "|".join(_EXPRESSIONS)
"""A word, in upper or lower case."""
_WORD = re.compile(EXPRESSION, re.IGNORECASE)


_JOINERS = "\u200c\u200d"
_LETTER = "\u0250"
"""A letter that is in no expression."""


def spans(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of each word, in code points. White space is that of Unicode. The marks and joiners of a letter
    are letters, as in é of two code points, in Devanagari and in Arabic.
    """
    return spans_between_marks(text if text.isascii() else _with_marks_as_letters(text))


def spans_between_marks(text: str) -> Iterator[tuple[int, int]]:
    """The words of an earlier ensue, for which a mark is no letter and ends a word."""
    return (match.span() for match in _WORD.finditer(text))


def _with_marks_as_letters(text: str) -> str:
    found, before = [], " "
    for sign in text:
        clings = sign >= "\u0300" and (sign in _JOINERS or unicodedata.category(sign).startswith("M"))
        before = _LETTER if clings and (before.isalnum() or before == "_") else sign
        found.append(before)
    return "".join(found)
