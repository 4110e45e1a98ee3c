"""The numbers of data: how much there is, how long it is, which labels it has, where it goes wrong. It prints nothing.

Files are read once, in memory that grows only with their distinct words, characters, labels and lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_args

from ensue.data import documents
from ensue.data.decoding import checked_encoding, decoded
from ensue.data.detection.folders import class_files
from ensue.data.detection.format_names import CLASS_FILES, FOLDERS
from ensue.data.detection.kind import Taken, first_lines, take
from ensue.data.documents import Choice, Document, DocumentSource
from ensue.data.documents.tables import TableFormat
from ensue.data.json_spans import TOKEN_KEYS, label_key
from ensue.data.sentences.columns import ColumnLines
from ensue.data.sentences.conllu import NAMES, Conllu
from ensue.data.sentences.formats import SentenceSource
from ensue.data.sentences.json_sentences import JsonSentences
from ensue.data.sentences.sentence import Sentence
from ensue.data.sources import TextSource
from ensue.data.survey.counts import ColumnValues, Lengths
from ensue.data.survey.summary import DocumentSummary, FileLine, PlainSummary, SentenceSummary, Slips
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json
from ensue.text.boundaries import last_boundary
from ensue.text.schemes import OUTSIDE, Scheme, SchemeDetector, is_legal, spans
from ensue.text.tokens import tokens

SENTENCE_SPLITTER, DOCUMENT_SPLITTER = "treebank", "simple"
"""What the recipes of taggers and of classifiers cut running text with."""


def summarize(
    location: str | Path, *, format: str = "", words: str = "", labels: str = "", encoding: str = "utf-8"
) -> SentenceSummary | DocumentSummary | PlainSummary:
    """Data read from end to end, or up to the first wrong line. `words` and `labels` are columns or keys; of texts,
    `words` may be several with commas between them: two are a pair, more are one text in parts.

    DataError where nothing can be read at all: no such file, nothing in it, an unknown format or encoding.
    """
    encoding = "utf-8" if checked_encoding(encoding) == "utf-8" else encoding
    taken = take(location, format=format, words=words, labels=labels, encoding=encoding)
    match taken.kind:
        case "sentences":
            return _Sentences(taken, str(location), words, labels, encoding).summary
        case "texts":
            return _document_summary(taken, str(location), words, labels, encoding)
        case "text":
            if asked := words or labels:
                advice = "it is taken for plain text, which has none; --format says what it is"
                raise DataError(f'no column "{asked}": {advice}', location)
            return _plain_summary(taken, str(location), encoding)


class _Sentences:
    """Takes sentences one by one into a `SentenceSummary`."""

    def __init__(self, taken: Taken, location: str, words: str, labels: str, encoding: str) -> None:
        source = SentenceSource(
            location, format=taken.format, encoding=encoding, words=words or None, splitter=SENTENCE_SPLITTER
        )
        self.format, self.asked = source.format, labels
        self.summary = SentenceSummary(taken, location, encoding, len(source.text.paths))
        self.detector = SchemeDetector()
        self.path, self.document = "", -1
        self.first_slips: dict[Scheme, FileLine] = {}
        try:
            for sentence in source:
                self.feed(sentence)
            if not self.summary.size:
                raise DataError("no sentence in it", location)
        except DataError as error:
            self.summary.error = error
        self.finish()

    def feed(self, sentence: Sentence) -> None:
        summary, path = self.summary, sentence.source.name
        if path != self.path:
            self.path, self.document = path, -1
        if not sentence.words:
            summary.size += 1
            summary.add_empty(path, sentence.line)
            return
        if not summary.words:
            self.begin(sentence)
        labels = self.format.labels(sentence, self.asked or None) if summary.is_labeled else ()
        summary.size += 1
        summary.num_documents += sentence.document != self.document
        self.document = sentence.document
        summary.add_words([sentence.words], sum(map(len, sentence.words)))
        summary.repeats.feed(sentence.words, labels)
        summary.columns.feed(sentence.columns, self.other_columns(sentence))
        if summary.is_labeled:
            self.feed_labels(sentence, labels)

    def begin(self, sentence: Sentence) -> None:
        """What the first sentence with words says of all."""
        summary, names = self.summary, list(sentence.columns)
        if isinstance(sentence.source, ColumnLines):
            summary.width, summary.has_tabs = sentence.source.width, sentence.source.has_tabs
        summary.words_column = self.format.words or next((key for key in TOKEN_KEYS if key in names), "text")
        try:
            self.format.labels(sentence, self.asked or None)
        except DataError:
            if self.asked:
                raise
            summary.is_labeled = False
            return
        default = label_key(names) if isinstance(self.format, JsonSentences) else self.format.default_column
        summary.labels_column = str(summary.width) if (self.asked or default) == "last" else self.asked or default

    def other_columns(self, sentence: Sentence) -> list[str]:
        names: Iterable[str] = NAMES if isinstance(self.format, Conllu) else sentence.columns
        return [name for name in names if name not in (self.summary.words_column, self.summary.labels_column)]

    def feed_labels(self, sentence: Sentence, labels: Sequence[str]) -> None:
        self.summary.labels.update(labels)
        self.detector.feed(labels, sentence.line)
        for scheme in get_args(Scheme):
            if scheme not in self.first_slips and self.detector.breaks(scheme):
                self.first_slips[scheme] = _slip(sentence, labels, scheme)
        for span in spans(labels):
            self.summary.span_lengths.setdefault(span.label, Lengths()).add(span.end - span.start)

    def finish(self) -> None:
        summary = self.summary
        summary.characters = set(chain.from_iterable(summary.words))
        for name in ("feats", "misc"):
            summary.columns.add_keys(name)
        try:
            summary.scheme = self.detector.result(self.path if summary.num_files == 1 else None)
        except DataError as error:
            summary.is_mixed, summary.error = True, summary.error or error
        if summary.scheme is None:
            summary.span_lengths = {}
        elif breaks := self.detector.breaks(summary.scheme):
            summary.slips = Slips(breaks.sentences, self.first_slips[summary.scheme], breaks.reason)


def _slip(sentence: Sentence, labels: Sequence[str], scheme: Scheme) -> FileLine:
    """Where a sentence breaks the scheme: the line of the word, where each has one of its own, or of the sentence."""
    pairs = enumerate(pairwise([OUTSIDE, *labels, OUTSIDE]))
    index = next(index for index, (before, label) in pairs if not is_legal(scheme, before, label))
    has_rows = isinstance(sentence.source, ColumnLines)
    return FileLine(sentence.source.name, sentence.line + min(index, len(labels) - 1) * has_rows)


def _document_summary(taken: Taken, location: str, words: str, labels: str, encoding: str) -> DocumentSummary:
    texts = tuple(filter(None, words.split(",")))
    choice = Choice(texts, labels, joined=len(texts) > 2)
    summary = DocumentSummary(taken, location, encoding, columns=_first_columns(taken, location, encoding))
    if taken.format != FOLDERS:
        paths = TextSource(location, encoding=encoding).paths
        summary.num_files = len(class_files(paths) if taken.format == CLASS_FILES else paths)
    source: DocumentSource | None = None
    try:
        source = DocumentSource(location, choice, format=taken.format, encoding=encoding)
    except DataError as error:
        summary.is_labeled, summary.error = False, error
        with suppress(DataError):
            unlabeled = replace(choice, is_labeled=False)
            source = DocumentSource(location, unlabeled, format=taken.format, encoding=encoding)
    if source is None:
        return summary
    layout = summary.layout = source.layout
    if summary.error and not labels and len(layout.texts) == len(summary.columns.counts) > 0:
        summary.error = None  # nothing but texts: there are no labels, and that is not wrong
    try:
        for document in source:
            _feed_document(summary, document)
        if not summary.size:
            raise DataError("no text in it", location)
    except DataError as error:
        summary.error = summary.error or error
    summary.characters = set(chain.from_iterable(summary.words))
    return summary


def _feed_document(summary: DocumentSummary, document: Document) -> None:
    summary.size += 1
    if summary.layout.format == FOLDERS:
        summary.num_files = summary.size
    words = [[token.text for token in tokens(text, DOCUMENT_SPLITTER)] for text in document.texts]
    summary.add_words(words, sum(map(len, document.texts)))
    if document.is_empty:
        summary.add_empty(document.path, document.line)
    if summary.is_labeled:
        summary.labels.update(document.labels)
        summary.labels_in_a_text.add(len(document.labels))
    summary.repeats.feed(document.texts, document.labels)


def _first_columns(taken: Taken, location: str, encoding: str) -> ColumnValues:
    """What stands in the columns of a table, or under the keys of JSON, as far as the first lines show it."""
    values = ColumnValues()
    if taken.format == FOLDERS:
        return values
    path = TextSource(location, encoding=encoding).paths[0]
    head = first_lines(path, encoding=checked_encoding(encoding))
    with suppress(DataError):  # reading says it
        for cells in _cells(taken.format, head, str(path)):
            values.feed(cells, cells)
    return values


def _cells(format: str, head: Sequence[str], name: str) -> Iterator[dict[str, list[str]]]:
    """Each row's cells by the numbers of the columns, or each object's values by their keys."""
    reader = documents.FORMATS[format]
    if isinstance(reader, TableFormat):
        for row in reader.rows(enumerate(head, 1), name):
            yield {str(number): [reader.value(field)] for number, field in enumerate(row.fields, 1)}
    elif format == JsonSentences.name:
        for line in head:
            with suppress(ParseError):
                record = parse_json(line)
                if isinstance(record, dict):
                    yield {key: [_shown(value)] for key, value in record.items()}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain_summary(taken: Taken, location: str, encoding: str) -> PlainSummary:
    source = TextSource(location, encoding=encoding)
    summary = PlainSummary(taken, location, encoding, len(source.paths))
    try:
        for path in source.paths:
            _read_plain(summary, path)
    except DataError as error:
        summary.error = error
    return summary


def _read_plain(summary: PlainSummary, path: Path) -> None:
    line, length = 1, 0
    for piece in _pieces(path, checked_encoding(summary.encoding)):
        summary.num_characters += len(piece)
        summary.characters.update(piece)
        summary.words.update(piece.split())
        if "\0" in piece:
            summary.num_nul += piece.count("\0")
            at = line + piece.count("\n", 0, piece.index("\0"))
            summary.first_nul = summary.first_nul or FileLine(str(path), at)
        *ended, rest = piece.split("\n")
        for part in ended:
            summary.add_line(length + len(part.removesuffix("\r")), path, line)
            line, length = line + 1, 0
        length += len(rest)
    if length:
        summary.add_line(length, path, line)


def _pieces(path: Path, encoding: str) -> Iterator[str]:
    """The text of a file, cut between words wherever there is a place for it."""
    rest = ""
    for block in decoded(path, encoding):
        rest += block
        cut = last_boundary(rest) or len(rest)
        yield rest[:cut]
        rest = rest[cut:]
    if rest:
        yield rest
