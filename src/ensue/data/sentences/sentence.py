"""Labeled sentences, passages of sentences, and the abstract base class of formats of sentences."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from ensue.data.lines import Lines, is_blank
from ensue.data.records.record import column_error
from ensue.errors import DataError
from ensue.text.schemes import Scheme, Span


@dataclass(frozen=True, slots=True)
class SourceText:
    """The name of a sentence's file, and its text in the file.

    The text includes the text between sentences, so that the concatenated texts of all sentences are the file.
    """

    name: str = ""
    text: str = ""
    start: int = 0
    """The length of the text before the rows of the sentence, such as skipped rows and comments."""

    @property
    def sentence_text(self) -> str:
        """The text of the sentence, without the text before it."""
        return self.text[self.start :]


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, and the other columns of its file."""

    words: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each column by name, one for each word."""
    line: int = 0
    """The number of the line of the first word, from 1."""
    source: SourceText = SourceText()
    document: int | None = None
    """The number of the document in the file; None for a sentence without a document."""
    misaligned: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """For each column, the word spans widened from character spans that do not align with words (`JsonSentences`)."""

    def column(self, name: str, key: str = "") -> tuple[str, ...]:
        """Return the values of a column, which a `key` of `[data]` names. Raises DataError (file:line) without it."""
        try:
            return self.columns[name]
        except KeyError:
            place = self.source.name or None, self.line or None
            raise column_error(name, list(self.columns), key, *place) from None

    def error(self, message: str) -> DataError:
        """Return a DataError whose message begins with the place of the sentence."""
        return DataError(message, self.source.name or None, self.line or None)


class Surface(NamedTuple):
    """The running text of a sentence, and the start and end of each word in the text, in code points."""

    text: str
    offsets: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, words: Sequence[str], blanks: Sequence[bool] | None = None) -> "Surface":
        """Join words to a text. `blanks` is whether a blank follows each word except the last (default: always)."""
        pieces, offsets, start = [], [], 0
        for index, word in enumerate(words):
            blank = " " if index + 1 < len(words) and (blanks is None or blanks[index]) else ""
            pieces += [word, blank]
            offsets.append((start, start + len(word)))
            start += len(word) + len(blank)
        return cls("".join(pieces), tuple(offsets))


class Format(ABC):
    """A format of sentences.

    Args:
        words: The column of words; by default `default_words`.
        splitter: The splitter of running text, a key of `ensue.text.tokens.SPLITTERS`.
        scheme: The label scheme of spans; None to write the labels of words.
        nested: Whether spans may overlap.
    """

    name: ClassVar[str]
    default_words: ClassVar[str]
    default_column: ClassVar[str]
    """The column of labels, unless the user chooses one."""
    has_keys: ClassVar[bool] = False
    """Whether columns are keys of JSON objects."""
    is_lenient = False
    """Whether missing columns at the end of a row are read as empty instead of raising an error."""
    is_labeled = True
    """Whether the labels are read; if not, labels that contradict each other are ignored."""
    names: ClassVar[tuple[str, ...]] = ()
    """The columns that all files have; () if files have different columns."""

    def __init__(
        self, *, words: str | None = None, splitter: str = "simple", scheme: Scheme | None = "bio", nested: bool = False
    ) -> None:
        self.words, self.splitter = words or self.default_words, splitter
        self.scheme, self.nested = scheme, nested

    @abstractmethod
    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Yield the sentences in constant memory. Raises DataError (file:line)."""

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """Return the text of a sentence in which only the labels in `column` are replaced.

        The concatenated texts of all sentences are a file. Raises DataError for a label that the format cannot express.
        A subclass defines this method or `write_columns`.
        """
        return self.write_columns(sentence, [(label,) for label in labels], [column or self.default_column])

    def write_keeping_spans(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """Return the result of `write`, but keep the borders of unchanged spans, even if they are inside words."""
        return self.write(sentence, labels, column)

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """Return the result of `write` for several columns. `rows` has the values of each word."""
        for index, column in enumerate(columns):
            text = self.write(sentence, [row[index] for row in rows], column)
            sentence = replace(sentence, source=replace(sentence.source, text=text))
        return sentence.source.text

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """Return the labels in `column`. Raises DataError (file:line) if the column is missing."""
        return sentence.column(column or self.default_column, "labels")

    def shown_columns(self, names: Sequence[str]) -> tuple[str, str]:
        """Return the names of the columns of words and of labels, given the `names` of all columns of a sentence."""
        return self.words or "text", self.default_column

    def misaligned(self, sentence: Sentence, column: str | None = None) -> tuple[Span, ...]:
        """Return the spans in a column that begin or end inside a word."""
        return ()

    def text_spans(self, sentence: Sentence, column: str | None = None) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of a sentence and its spans of characters; an empty text if the format has no such spans."""
        return "", []

    def group(self, sentence: Sentence, column: str) -> str:
        """Return the group of a sentence: the value of its first word in a column, or for "document" its document.

        Raises DataError (file:line) for a missing column.
        """
        if column == "document" and sentence.document is not None:
            return f"{sentence.source.name}:{sentence.document}"
        return sentence.column(column)[0]

    def missing_end(self, text: str) -> str:
        """Return the line ends to append to the text of a file before another file can follow."""
        if not text.endswith("\n"):
            return "\n\n"
        return "" if is_blank(text[text.rfind("\n", 0, -1) + 1 :]) else "\n"

    def surface(self, sentence: Sentence) -> Surface:
        """Return the running text of a sentence, which by default is its words separated by blanks."""
        return Surface.of(sentence.words)


def check_labels(labels: Sequence[str], forbidden: str, sentence: Sentence) -> None:
    """Raise DataError if a label is empty or has a `forbidden` character, such as a separator."""
    if all(labels) and not any(map("".join(labels).__contains__, forbidden)):
        return
    for label in labels:
        invalid = next(filter(label.__contains__, forbidden), None)
        if not label or invalid:
            fault = f"has the character {invalid!r}" if invalid else "is empty"
            raise sentence.error(f"the label {label!r} cannot be written in this format: it {fault}")


def passages(sentences: Iterable[Sentence], max_words: int) -> Iterator[list[Sentence]]:
    """Group consecutive sentences of a document into passages of at most `max_words` words (0: single sentences).

    A longer sentence is a passage by itself, and so is each sentence of a file without documents.
    """
    passage: list[Sentence] = []
    words, before = 0, tuple[str | int | None, ...]()
    for sentence in sentences:
        size = max(1, len(sentence.words))  # bounds the number of empty sentences in a passage
        document = sentence.source.name, sentence.document
        words += size
        if passage and (words > max_words or sentence.document is None or document != before):
            yield passage
            passage, words = [], size
        passage.append(sentence)
        before = document
    if passage:
        yield passage
