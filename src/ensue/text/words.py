"""One id for each word. A regular expression defines words; unknown words become `<unk>`, and words become texts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ensue.errors import RecipeError, nearest
from ensue.text.boundaries import BLANKS
from ensue.text.tokenizer import UNKNOWN, Decoder, VocabularyTokenizer
from ensue.text.vocabulary import most_frequent

CLOSING = frozenset(".,;:!?…。、，．！？：；।॥،؛؟۔")
OPENING = frozenset("¿¡")
QUOTES = frozenset('"“”„«»')
"""Which of them open depends on the language. So the first one of a line opens, the second one closes, and so on."""


class WrittenWords:
    """Writes one word after another; "\\n" ends a line. Without `joins_marks` there is a blank between any two.

    The splitter "simple" finds the same words in the text again.
    """

    def __init__(self, *, joins_marks: bool) -> None:
        self.joins_marks = joins_marks
        self._blank, self._in_quotes = "", False

    def feed(self, word: str) -> str:
        """The word, behind the blank that stands before it."""
        if word == "\n":
            self._blank, self._in_quotes = "", False
            return word
        closes, opens = self.sides(word) if self.joins_marks else (False, False)
        text = word if closes else self._blank + word
        self._blank = "" if opens else " "
        return text

    def sides(self, word: str) -> tuple[bool, bool]:
        """Whether the word is a mark that closes, and one that opens."""
        if len(word) != 1:
            return False, False
        if word in QUOTES:
            self._in_quotes = not self._in_quotes
            return not self._in_quotes, self._in_quotes
        kind = unicodedata.category(word)
        return word in CLOSING or kind in ("Pe", "Pf"), word in OPENING or kind in ("Ps", "Pi")


def written(words: Iterable[str], *, joins_marks: bool) -> str:
    """The text of words."""
    return "".join(map(WrittenWords(joins_marks=joins_marks).feed, words))


LINE_END = "<eos>"
PUNCTUATION = (
    r"!-/:-@\[-`{-~\u00a0-\u00bf\u00d7\u00f7\u060c\u061b\u061f\u06d4\u0964\u0965\u2010-\u2bff"
    r"\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\U0001f000-\U0001faff"
)
_PART = f"[^{BLANKS}{PUNCTUATION}]+"
SPLITTERS = {
    "whitespace": rf"\n|[^{BLANKS}]+",
    "simple": rf"\n|{UNKNOWN}|{_PART}(?:['’-]{_PART}|(?<=\d)[.,](?=\d){_PART})*|[{PUNCTUATION}]",
}
"""The splitters. With "simple" each punctuation mark is a token, except for apostrophes and hyphens inside a word, and
points and commas between digits: `don't`, `well-known`, `1,000.5`. `<unk>` in the text is one token."""


class WordTokenizer(VocabularyTokenizer):
    """`<unk>` is id 0, `<eos>` (the end of a line, `"\\n"`) is id 1; words follow, the most frequent first.

    White space other than line ends is lost. Decoding puts one blank between the words of a line; with "simple" none
    before a closing mark or behind an opening one.
    """

    kind = "words"
    unknown_id: int = 0
    start_id = 1
    first_word_id = 2
    first = (UNKNOWN, LINE_END)

    def __init__(self, symbols: Iterable[str], *, splitter: str = "whitespace", lowercase: bool = False) -> None:
        super().__init__(symbols, lowercase=lowercase)
        self.splitter = splitter
        self._split = splitting(splitter)
        self._id_of = self.vocabulary.ids | {"\n": self.start_id}

    @classmethod
    def train(
        cls,
        chunks: Iterable[str],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        splitter: str = "whitespace",
        lowercase: bool = False,
    ) -> Self:
        """The words of `chunks` that occur `min_count` times; `max_size` counts `<unk>` and `<eos>` too."""
        split = splitting(splitter)
        counts: Counter[str] = Counter()
        for chunk in chunks:
            counts.update(split.findall(chunk.lower() if lowercase else chunk))
        for special in ("\n", UNKNOWN, LINE_END):
            counts.pop(special, None)
        words = most_frequent(counts, min_count=min_count, limit=None if max_size is None else max_size - 2)
        return cls([UNKNOWN, LINE_END, *words], splitter=splitter, lowercase=lowercase)

    def words(self, text: str) -> list[str]:
        """The words of `text`, one for each id of `encode`."""
        return self._split.findall(text.lower() if self.lowercase else text)

    def written(self, text: str) -> list[str]:
        """The words before they are lowercased, unless that changes how many there are."""
        words, written = self.words(text), self._split.findall(text)
        return written if len(written) == len(words) else words

    def decoder(self) -> Decoder:
        return _WordDecoder(self)

    def line(self) -> WrittenWords:
        """Writes words one after another, as a decoder does those of ids."""
        return WrittenWords(joins_marks=self.splitter == "simple")

    def word(self, id: int) -> str:
        """The word that `words` has for this id."""
        return "\n" if id == self.start_id else self.vocabulary.symbols[id]

    @classmethod
    def _restored(cls, symbols: list[str], splitter: Literal["whitespace", "simple"], lowercase: bool) -> Self:
        return cls(symbols, splitter=splitter, lowercase=lowercase)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        id_of = self._id_of.get
        return np.array([id_of(word, 0) for word in self._split.findall(text)], np.uint32)


class _WordDecoder(Decoder):
    def __init__(self, tokenizer: WordTokenizer) -> None:
        self._tokenizer, self._line = tokenizer, tokenizer.line()

    def feed(self, id: int) -> str:
        return self._line.feed(self._tokenizer.word(id))


def splitting(splitter: str) -> re.Pattern[str]:
    """The expression whose matches are the tokens. Raises RecipeError for a splitter that is not in `SPLITTERS`."""
    if splitter not in SPLITTERS:
        known = ", ".join(SPLITTERS)
        raise RecipeError(f'unknown splitter "{splitter}"; expected one of {known}{nearest(splitter, SPLITTERS)}')
    return re.compile(SPLITTERS[splitter])
