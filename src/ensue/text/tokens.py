"""Splitters of running text into words with offsets, and detection of scripts without blanks between words.

Offsets count code points, as in Python: `text[token.start : token.end] == token.text`. No splitter cuts inside a
grapheme cluster, such as an emoji with its joiners and skin tone, a flag, or a letter with its combining marks.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ensue.errors import look_up
from ensue.text import tokenizer
from ensue.text.boundaries import is_boundary

_APOSTROPHE = "['’]"
_CLITIC = rf"{_APOSTROPHE}(?:s|m|d|re|ve|ll)(?!\w)"
_ABBREVIATION = (
    "Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Sen|Rep|Gov|Lt|Col|Sgt|Capt|St|Ft|Sr|Jr|Inc|Corp|Ltd|Co|Bros|vs|Ave|Blvd|Rd|"
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
)
_NAME = r"[\w-]{1,64}"  # bounded, so that the time is linear in the length of a text without blanks
_ENDING = "com|org|net|edu|gov|uk|de|fr|jp|htm|html|pdf|doc|xls|ppt|txt|exe|zip|jpg|gif|png"
_PREFIX = "anti|co|e|ex|inter|mid|mini|multi|non|post|pre|pro|pseudo|re|semi|sub|super|ultra|un"
_BEFORE_NT = "do|does|did|is|are|was|were|has|have|had|would|could|should|ca|wo"
_EXPRESSIONS = [
    r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]'}]",
    rf"[\w.+-]{{1,64}}@{_NAME}(?:\.{_NAME}){{1,8}}|{_NAME}(?:\.{_NAME}){{0,8}}\.(?:{_ENDING})(?!\w)",
    r"(?<!\w)[:;=][-']?[()DP](?!\w)",  # emoticons
    rf"(?<!\w)(?:(?:[A-Z]\.){{2,}}|(?:{_ABBREVIATION})\.|(?-i:[A-Z]\.(?=\ [A-Z])))",
    r"(?<!\w)\d{3}-(?:\d{3}-)?\d{4}(?!\w)",  # telephone numbers
    r"\d+(?:[.,:/]\d+)*(?:(?:st|nd|rd|th|s)?(?!\w)|(?=[ap]m(?!\w)))|(?<!\w)\.\d+",
    rf"(?<!\w)(?:can(?=not(?!\w))|(?:gon|wan)(?=na(?!\w))|got(?=ta(?!\w))|(?:{_BEFORE_NT})(?=nt(?!\w)))",
    rf"[^\W_]+?(?=n{_APOSTROPHE}t(?!\w))|n{_APOSTROPHE}t(?!\w)|{_CLITIC}",
    rf"(?<!\w)(?:{_PREFIX})-\w+|(?-i:[A-Z]+&[A-Z]+)(?!\w)",
    rf"\w+(?:(?!{_CLITIC}){_APOSTROPHE}\w+)*",
    r"([-*=_<>'‘’`])\1+|[.!?]{2,}|\S",
]
TREEBANK = "|".join(_EXPRESSIONS)
"""Matches an English word as in the Penn Treebank and Universal Dependencies, but leaves quotes unchanged.

Contractions are split (`do|n't`, `I|'m`, `dog|'s`, `can|not`, `gon|na`). Punctuation marks are words, except in
numbers, abbreviations and addresses. Hyphens are words, except after prefixes, as in the newer treebanks
(`well|-|known`, `non-smoker`). The F1 of words on the development set of UD English-EWT is 98.8 %.
"""
_WORD = re.compile(TREEBANK, re.IGNORECASE)
_JOINERS = "\u200c\u200d"
_LETTER = "\u0250"
"""A letter that does not occur in the expressions above."""


def treebank_between_marks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each word. A combining mark ends a word, as in earlier versions of ensue."""
    return (match.span() for match in _WORD.finditer(text))


def _replace_marks_by_letters(text: str) -> str:
    letters, before = [], " "
    for character in text:
        is_mark = character >= "\u0300" and (character in _JOINERS or unicodedata.category(character).startswith("M"))
        before = _LETTER if is_mark and (before.isalnum() or before == "_") else character
        letters.append(before)
    return "".join(letters)


Span = tuple[int, int]
Word = TypeVar("Word")


class Token(NamedTuple):
    """A word and its offsets in the text, in code points; `end` is exclusive."""

    text: str
    start: int
    end: int


def tokens(text: str, splitter: str = "simple") -> list[Token]:
    """Split a text into words with offsets. Raises RecipeError for a splitter that is not in `SPLITTERS`."""
    spans = look_up(SPLITTERS, splitter, "splitter")(text)
    aligned = spans if text.isascii() else _align_to_graphemes(text, spans)
    return [Token(text[start:end], start, end) for start, end in aligned]


def words_in(text: str, splitter: str, *, blanks: str | None = None) -> list[str]:
    """Split a text into words.

    With `blanks`, each word is preceded by the characters after the previous word, and the first word by `blanks`.
    """
    words = tokens(text, splitter)
    if blanks is None:
        return [word.text for word in words]
    first = [blanks + words[0].text] if words else []
    return first + [text[before.end : word.end] for before, word in pairwise(words)]


def truncate(words: list[Word], max_words: int, keep: str) -> list[Word]:
    """Return at most `max_words` words (0: all). `keep` is "start", "end", or "both" for a half from each side."""
    if not max_words or len(words) <= max_words:
        return words
    first = {"start": max_words, "end": 0, "both": max_words // 2}[keep]
    return words[:first] + words[len(words) - (max_words - first) :]


def _compile_splitter(expression: str) -> Callable[[str], Iterator[Span]]:
    find = re.compile(expression).finditer
    return lambda text: (match.span() for match in find(text) if match[0] != "\n")


EXPRESSIONS: dict[str, tuple[str, bool]] = {
    "whitespace": (tokenizer.SPLITTERS["whitespace"], False), "simple": (tokenizer.SPLITTERS["simple"], False),
    "treebank": (TREEBANK, True), "treebank-1": (TREEBANK, True), "characters": (r"\S", False),
}  # fmt: skip
"""The regular expression of each splitter, which matches a word or a line end, and whether it ignores case."""
SPLITTERS: dict[str, Callable[[str], Iterable[Span]]] = {
    **{name: _compile_splitter(expression) for name, (expression, _) in EXPRESSIONS.items()},
    # combining marks and joiners after a letter are treated as letters
    "treebank": lambda text: treebank_between_marks(text if text.isascii() else _replace_marks_by_letters(text)),
    "treebank-1": treebank_between_marks,
}
"""The functions that split a text, by name.

"whitespace" and "simple" split like the splitters in `tokenizer.py`. "treebank" is for English; "treebank-1" is for
runs of earlier versions, which cut words at combining marks. "characters" is for scripts without blanks: every
character that is not white space is a word.
"""


def _align_to_graphemes(text: str, spans: Iterable[Span]) -> list[Span]:
    """Move each border inside a grapheme cluster to the end of the cluster, and drop spans that become empty."""
    moved: list[Span] = []
    for start, end in spans:
        cut = start
        if moved and moved[-1][1] == start:
            while cut < end and not is_boundary(text, cut, moved[-1][0]):
                cut += 1
            moved[-1] = (moved[-1][0], cut)
        if cut < end:
            moved.append((cut, end))
    return moved


_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Matches a character of a script without blanks between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana or Han."""
MIN_UNSPACED_SHARE = 0.3
"""The minimum share of characters of these scripts in a text that is not split into words."""
MAX_MEAN_WORD_LENGTH = 5.0
"""The maximum mean length of words in a text whose words are separated by blanks."""
MAX_UNSPACED = 10
"""The maximum number of characters of these scripts in a word. A longer word is text that is not split into words."""


def count_without_blanks(text: str) -> int:
    """Return the number of characters of scripts without blanks between words."""
    return 0 if text.isascii() else len(_UNSPACED.findall(text))


def is_unsplit(without_blanks: int, characters: int, words: int) -> bool:
    """Return whether a text with these counts is in a script without blanks and not split into words."""
    return without_blanks > MIN_UNSPACED_SHARE * characters and characters > MAX_MEAN_WORD_LENGTH * max(1, words)


def are_unsplit(texts: Iterable[str]) -> bool:
    """Return `is_unsplit` for the total counts of several texts."""
    counts = [(count_without_blanks(text), len(text), len(text.split())) for text in texts]
    return is_unsplit(*(sum(column) for column in zip(*counts, strict=True))) if counts else False
