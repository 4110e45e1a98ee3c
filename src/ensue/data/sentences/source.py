"""Source of the sentences in files that have the same format."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from ensue.data.detection.format_table import FORMAT_TABLE, sentence_format
from ensue.data.files import Data
from ensue.data.lines import Lines, RecordingLines, missing_end, strip_line_end
from ensue.data.records.labeled_files import SKIP_REMEDY, LabeledFiles, SkippedRows
from ensue.data.records.record import SAMPLE_ROWS
from ensue.data.sentences.sentence import Format, Sentence, SourceText, Surface, check_labels
from ensue.errors import DataError, IncompleteError, nearest
from ensue.text.schemes import Scheme
from ensue.text.tokens import tokens


class PlainText(Format):
    """The format of plain text with a sentence on each line. A line without words is an empty sentence."""

    name = "text"
    default_words = ""
    default_column = "label"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        for number, line in lines:
            words = tuple([token.text for token in tokens(strip_line_end(line), self.splitter)])
            yield Sentence(words, {}, number, SourceText(lines.name, line))

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """Return a line for each word with the word and its values, separated by tabs, and a blank line."""
        for row in rows:
            check_labels(row, "\t\r\n", sentence)
        written = ["\t".join([word, *row]) + "\n" for word, row in zip(sentence.words, rows, strict=True)]
        return "".join([*written, "\n"])

    def missing_end(self, text: str) -> str:
        return ""  # the written lines are complete

    def surface(self, sentence: Sentence) -> Surface:
        """Return the text of the line and the offsets of its words."""
        text = strip_line_end(sentence.source.text)
        return Surface(text, tuple([(token.start, token.end) for token in tokens(text, self.splitter)]))


FORMATS = {known.name: known.sentences for known in FORMAT_TABLE if known.sentences}
"""The class of each format, as "module:Class"."""


def format_class(name: str) -> type[Format]:
    """Return the class of a format. Raises DataError for an unknown format."""
    if name not in FORMATS:
        raise DataError(f'unknown format "{name}"; expected one of {", ".join(FORMATS)}{nearest(name, FORMATS)}')
    return resolve_name(FORMATS[name])


class SentenceSource:
    """The sentences of a file, a folder, a glob or a stream in one format. The attribute `format` writes sentences.

    Args:
        location: The file, folder, glob or stream.
        format: A key of `FORMATS`; None detects the format.
        like: The format to use if plain text is detected, because a single sentence in columns may look like text.
        encoding: The encoding of the text.
        make_format: A function from the name of a format to the format; by default, its options are `words`,
            `splitter`, `scheme` and `nested`.
        labeled: The columns in which each word must have a label.
        incomplete: "refuse" raises an error for a sentence without a label; "count" skips and counts such sentences in
            `skipped`; "skip" also warns about them.
        convert: A function that transforms the lines of each file before reading.

    Raises:
        DataError: The format is unknown, the files have different formats, or all files are empty.
    """

    def __init__(
        self, location: Data | Lines, *, format: str | None = None, like: str | None = None,
        encoding: str = "utf-8", make_format: Callable[[str], Format] | None = None, words: str | None = None,
        splitter: str = "simple", scheme: Scheme = "bio", nested: bool = False, labeled: Sequence[str | None] = (),
        incomplete: str = "refuse", convert: Callable[[Lines], Lines] | None = None,
    ) -> None:  # fmt: skip
        self.rest = ""
        """The text after the last sentence that was read, or the entire text of a file without sentences."""
        self.files = LabeledFiles(location, encoding, nested=nested, convert=convert)
        self.location = self.files.location
        self.files.check_text()
        if not format:
            detected = self.files.detect_formats(lambda lines, _: sentence_format(lines), lambda name: name)
            format = next(iter(detected.values()), PlainText.name)
            format = like if like and format == PlainText.name else format
        options: dict[str, Any] = {"words": words, "splitter": splitter, "scheme": scheme, "nested": nested}
        self.format = format_class(format)(**options) if make_format is None else make_format(format)
        self.labeled, self.incomplete, self.skipped = labeled, incomplete, SkippedRows("sentence")
        self.format.is_lenient = incomplete != "refuse"

    def first(self) -> Sentence | None:
        """Return the first sentence without consuming lines; None if the first lines have no sentence."""
        for lines in self.files:
            self.files.store_for_next(lines)
            if sentence := next(iter(self.format.read(Lines(lines.head(SAMPLE_ROWS), lines.name))), None):
                return sentence
        return None

    def __iter__(self) -> Iterator[Sentence]:
        """Yield the sentences, with line ends added between files if necessary. Raises DataError (file:line)."""
        self.rest = missing = ""
        self.skipped = SkippedRows("sentence")
        for file_lines in self.files:
            lines, last = RecordingLines(file_lines), None
            self.rest += missing
            for sentence in self.format.read(lines):
                lines.clear()
                last = sentence.source.text
                if sentence.words and not self._has_labels(sentence):
                    message = f"a word without a label; {SKIP_REMEDY}"
                    error = IncompleteError(message, sentence.source.name, sentence.line, missing="label")
                    if not self.format.is_lenient:
                        raise error
                    self.skipped.add(error)
                    self.rest += last
                    continue
                start = len(self.rest) + sentence.source.start
                source = replace(sentence.source, text=self.rest + last, start=start)
                yield replace(sentence, source=source) if self.rest else sentence
                self.rest = ""
            self.rest += lines.recorded_text() if last is None else ""
            missing = missing_end(self.rest) if last is None else self.format.missing_end(last)
        if self.incomplete == "skip":
            self.skipped.warn(str(self.location))

    def _has_labels(self, sentence: Sentence) -> bool:
        try:
            return all(all(self.format.labels(sentence, column)) for column in self.labeled)
        except DataError:
            if self.format.is_lenient:
                return False
            raise

    def __repr__(self) -> str:
        return f"SentenceSource({self.location!r}, format={self.format.name!r})"
