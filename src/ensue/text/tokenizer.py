"""Base classes of tokenizers and incremental decoders, and the tokenizers of characters, words and bytes."""

import codecs
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ensue.errors import look_up
from ensue.stored import Copyable, Stored
from ensue.text.boundaries import BLANKS
from ensue.text.vocabulary import Vocabulary, most_frequent

UNKNOWN = "<unk>"
"""The symbol of unknown characters or words."""
MIN_NEW_COUNT = 10
"""The minimum frequency, in new text, of a subword that is added to a vocabulary."""


class Decoder(ABC):
    """An incremental decoder from ids to text. Its concatenated outputs equal the result of `Tokenizer.decode`."""

    @abstractmethod
    def feed(self, id: int) -> str:
        """Return the text that this id completes; "" while a character is incomplete."""

    def flush(self) -> str:
        """Return the remaining text after the last id, such as an incomplete character."""
        return ""


class SymbolDecoder(Decoder):
    """A decoder that maps each id to a string, independent of other ids."""

    def __init__(self, symbol: Callable[[int], str]) -> None:
        self._symbol = symbol

    def feed(self, id: int) -> str:
        return self._symbol(id)


class Tokenizer(Stored, ABC):
    """A tokenizer, which converts text to ids and back.

    A model reads `start_id` before the first token of a text: the line end if the vocabulary has it, otherwise a
    special token or `unknown_id`. `special_ids` has the ids of special tokens, which do not occur in encoded texts.
    `unknown_id` is None if no symbol can be unknown. With `lowercase`, texts are lowercased first. The ids of `a + b`
    are the ids of `a` followed by the ids of `b` if `b` starts with a space, a tab or a line end, and `a` does not end
    with a blank.
    """

    vocabulary_size: int
    start_id: int
    unknown_id: int | None
    lowercase: bool = False
    special_ids: Mapping[str, int] = MappingProxyType({})
    joins_blanks: bool = False
    """Whether the first token of a word includes the blank before the word."""
    before: str = ""
    """A prefix of each text, such as a blank, with which a word has the same ids at the start and inside of a text."""
    inside: str = ""
    """The prefix of tokens that continue a word, such as `##`; "" if they have no prefix."""

    def encode(self, text: str) -> NDArray[np.uint32]:
        """Return the ids of a text, (N,). Unknown symbols are encoded as `unknown_id`."""
        return self._ids(text.lower() if self.lowercase else text)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids (N,) of a text, and the start and end of each token in characters, (N, 2).

        If a character is encoded by several tokens, the span of each token is this character. Raises
        NotImplementedError unless the tokenizer has subwords.
        """
        raise NotImplementedError(f"a tokenizer of {self.kind} computes no offsets; expected subwords")

    def substrings(self, text: str) -> list[str]:
        """Return the substring of the text that each token represents."""
        return [text[start:end] for start, end in self.encode_with_offsets(text)[1].tolist()]

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Return the text that the ids represent."""
        decoder = self.decoder()
        return "".join([decoder.feed(int(id)) for id in ids]) + decoder.flush()

    def extend(self, chunks: Iterable[str], *, min_count: int = 1, **settings: Any) -> Any:
        """Return a tokenizer with the symbols of this tokenizer, which keep their ids, and then new symbols of a text.

        `settings` are further arguments of `train`. Tokenizers without training, such as bytes, have no new symbols.
        """
        return self

    @abstractmethod
    def decoder(self) -> Decoder:
        """Return a new incremental decoder."""

    @abstractmethod
    def symbol(self, id: int) -> str:
        """Return the text of a token for display in tables."""

    @abstractmethod
    def _ids(self, text: str) -> NDArray[np.uint32]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size})"


class VocabularyTokenizer(Tokenizer):
    """A tokenizer with the ids of a vocabulary, which begins with the symbols `first`."""

    first: ClassVar[tuple[str, ...]] = ()

    def __init__(self, symbols: Iterable[str], *, lowercase: bool = False) -> None:
        self.vocabulary, self.lowercase = Vocabulary(symbols, first=self.first), lowercase
        self.vocabulary_size = len(self.vocabulary)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbol of each id."""
        return self.vocabulary.symbols

    def extend(self, chunks: Iterable[str], *, min_count: int = 1, **settings: Any) -> Any:
        trained = type(self).train(chunks, min_count=min_count, **settings)  # type: ignore[attr-defined]
        new = [symbol for symbol in trained.symbols if symbol not in self.vocabulary.ids]
        return type(self).from_json({**self.to_json(), "symbols": [*self.symbols, *new]})

    def symbol(self, id: int) -> str:
        return self.vocabulary.symbols[id]


NUM_CODE_POINTS = 0x110000
FIRST_SURROGATE, AFTER_SURROGATES = 0xD800, 0xE000
REPLACEMENT = "\ufffd"


class CharacterTokenizer(Copyable, VocabularyTokenizer):
    """A character tokenizer. Id 0 is `<unk>`, decoded as U+FFFD. `train` sorts the other characters by code point."""

    kind = "characters"
    unknown_id: int = 0
    first = (UNKNOWN,)

    def __init__(self, symbols: Iterable[str], *, lowercase: bool = False) -> None:
        super().__init__(symbols, lowercase=lowercase)
        if any(len(symbol) != 1 for symbol in self.symbols[1:]):
            raise ValueError("a symbol is not one character")
        self.start_id = int(self._table[ord("\n")])

    @cached_property
    def _table(self) -> NDArray[np.uint32]:
        """The id of each code point."""
        table = np.zeros(NUM_CODE_POINTS, np.uint32)
        table[[ord(character) for character in self.symbols[1:]]] = np.arange(1, self.vocabulary_size)
        return table

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, lowercase: bool = False
    ) -> Self:
        """Return a tokenizer of the characters that occur at least `min_count` times; `max_size` includes `<unk>`."""
        count_of = np.zeros(0, np.int64)
        for chunk in chunks:
            counts = np.bincount(code_points(chunk.lower() if lowercase else chunk), minlength=len(count_of))
            count_of = counts + np.pad(count_of, (0, len(counts) - len(count_of)))
        count_of[FIRST_SURROGATE:AFTER_SURROGATES] = 0  # a lone surrogate is half a character
        counted = {chr(point): int(count_of[point]) for point in np.flatnonzero(count_of)}
        frequent = most_frequent(counted, min_count=min_count, limit=None if max_size is None else max_size - 1)
        return cls([UNKNOWN, *sorted(frequent)], lowercase=lowercase)

    def decoder(self) -> Decoder:
        return SymbolDecoder((REPLACEMENT, *self.symbols[1:]).__getitem__)

    def substrings(self, text: str) -> list[str]:
        lowered = text.lower() if self.lowercase else text
        return list(text if len(text) == len(lowered) else lowered)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return self._table[code_points(text)]


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text, lone surrogates included, (N,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


CLOSING = frozenset(".,;:!?…。、，．！？：；।॥،؛؟۔")
OPENING = frozenset("¿¡")
QUOTES = frozenset('"“”„«»')
"""Whether a quotation mark opens or closes depends on the language, so the marks in a line alternate."""


class WordJoiner:
    """An incremental writer of words, separated by blanks. The word "\\n" ends a line.

    With `joins_marks`, there is no blank before a closing punctuation mark or after an opening mark. The splitter
    "simple" splits the written text into the same words.
    """

    def __init__(self, *, joins_marks: bool) -> None:
        self.joins_marks = joins_marks
        self._blank, self._in_quotes = "", False

    def feed(self, word: str) -> str:
        """Return the text of a word, including the blank before it."""
        if word == "\n":
            self._blank, self._in_quotes = "", False
            return word
        closes, opens = self.mark_sides(word) if self.joins_marks else (False, False)
        text = word if closes else self._blank + word
        self._blank = "" if opens else " "
        return text

    def mark_sides(self, word: str) -> tuple[bool, bool]:
        """Return whether the word is a closing punctuation mark, and whether the word is an opening mark."""
        if len(word) != 1:
            return False, False
        if word in QUOTES:
            self._in_quotes = not self._in_quotes
            return not self._in_quotes, self._in_quotes
        kind = unicodedata.category(word)
        return word in CLOSING or kind in ("Pe", "Pf"), word in OPENING or kind in ("Ps", "Pi")


def join_words(words: Iterable[str], *, joins_marks: bool) -> str:
    """Return the text of a sequence of words."""
    return "".join(map(WordJoiner(joins_marks=joins_marks).feed, words))


LINE_END = "<eos>"
PUNCTUATION = (
    r"!-/:-@\[-`{-~\u00a0-\u00bf\u00d7\u00f7\u060c\u061b\u061f\u06d4\u0964\u0965\u2010-\u2bff"
    r"\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\U0001f000-\U0001faff"
)
_LETTERS = f"[^{BLANKS}{PUNCTUATION}]+"
SPLITTERS = {
    "whitespace": rf"\n|[^{BLANKS}]+",
    "simple": rf"\n|{UNKNOWN}|{_LETTERS}(?:['’-]{_LETTERS}|(?<=\d)[.,](?=\d){_LETTERS})*|[{PUNCTUATION}]",
}
"""Regular expressions of a word or a line end. With "simple", each punctuation mark is a word, except apostrophes and
hyphens inside words, and points and commas between digits: `don't`, `well-known`, `1,000.5`. `<unk>` is one word."""


class WordTokenizer(VocabularyTokenizer):
    """A word tokenizer. Id 0 is `<unk>`, id 1 is `<eos>` (the line end). `train` sorts the other words by frequency.

    White space other than line ends is lost. `WordJoiner` joins decoded words to text, and joins punctuation marks if
    the splitter is "simple".
    """

    kind = "words"
    unknown_id: int = 0
    start_id = 1
    first_word_id = 2
    first = (UNKNOWN, LINE_END)

    def __init__(self, symbols: Iterable[str], *, splitter: str = "whitespace", lowercase: bool = False) -> None:
        super().__init__(symbols, lowercase=lowercase)
        self.splitter = splitter
        self._pattern = splitter_pattern(splitter)
        self._id_of = self.vocabulary.ids | {"\n": self.start_id}

    @classmethod
    def train(
        cls, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None, splitter: str = "whitespace",
        lowercase: bool = False,
    ) -> Self:  # fmt: skip
        """Return a tokenizer of words with a count of at least `min_count`. `max_size` includes `<unk>` and `<eos>`."""
        split = splitter_pattern(splitter)
        counts: Counter[str] = Counter()
        for chunk in chunks:
            counts.update(split.findall(chunk.lower() if lowercase else chunk))
        for special in ("\n", UNKNOWN, LINE_END):
            counts.pop(special, None)
        words = most_frequent(counts, min_count=min_count, limit=None if max_size is None else max_size - 2)
        return cls([UNKNOWN, LINE_END, *words], splitter=splitter, lowercase=lowercase)

    def words(self, text: str) -> list[str]:
        """Return the words of a text, one for each id of `encode`."""
        return self._pattern.findall(text.lower() if self.lowercase else text)

    def substrings(self, text: str) -> list[str]:
        """Return the words as written in the text, or lowercased if lowercasing changes the number of words."""
        words, written = self.words(text), self._pattern.findall(text)
        return written if len(written) == len(words) else words

    def decoder(self) -> Decoder:
        joiner = self.word_joiner()
        return SymbolDecoder(lambda id: joiner.feed(self.word(id)))

    def word_joiner(self) -> WordJoiner:
        """Return a writer that joins words like the decoder."""
        return WordJoiner(joins_marks=self.splitter == "simple")

    def word(self, id: int) -> str:
        """Return the word of an id, "\\n" for `<eos>`."""
        return "\n" if id == self.start_id else self.vocabulary.symbols[id]

    @classmethod
    def _restored(cls, symbols: list[str], splitter: Literal["whitespace", "simple"], lowercase: bool) -> Self:
        return cls(symbols, splitter=splitter, lowercase=lowercase)

    def _ids(self, text: str) -> NDArray[np.uint32]:
        id_of = self._id_of.get
        return np.array([id_of(word, 0) for word in self._pattern.findall(text)], np.uint32)


def splitter_pattern(splitter: str) -> re.Pattern[str]:
    """Return the regular expression of a splitter. Raises RecipeError for an unknown splitter."""
    return re.compile(look_up(SPLITTERS, splitter, "splitter"))


_SURROGATE = re.compile("[\ud800-\udfff]")


class ByteTokenizer(Tokenizer):
    """A tokenizer of the bytes of UTF-8, without training and without unknown symbols. Each byte is its own id."""

    kind = "bytes"
    vocabulary_size = 256
    start_id = ord("\n")
    unknown_id = None

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def decoder(self) -> Decoder:
        return Utf8Decoder([bytes([byte]) for byte in range(256)])

    def symbol(self, id: int) -> str:
        return display_bytes(bytes([id]))

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return np.frombuffer(replace_surrogates(text).encode(), np.uint8).astype(np.uint32)


class Utf8Decoder(Decoder):
    """A decoder that maps each id to a byte string. Bytes that are not valid UTF-8 are decoded as U+FFFD."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, id: int) -> str:
        return self._decoder.decode(self._pieces[id])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text)


def display_bytes(piece: bytes) -> str:
    """Decode the bytes of a token for display. Bytes of an incomplete character become escapes such as `\\xe9`."""
    return piece.decode("utf-8", "backslashreplace")
