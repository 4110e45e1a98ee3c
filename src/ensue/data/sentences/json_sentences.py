"""JSON: objects on lines, or in one array, with tokens and labels, or with a text and spans of it.

`{"tokens": ["Ann", "left"], "labels": ["B-PER", "O"]}`: every list of strings as long as the tokens is a column, under
its key. `{"text": "Ann left", "spans": [{"start": 0, "end": 3, "label": "PER"}]}`, or `[0, 3, "PER"]` as doccano writes
it: the text is split into words, which end where a span ends, and each list of spans is a column of labels.
Neighbors with the same whole number as "document" are of one document.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from ensue.data.lines import KeptLines, Lines
from ensue.data.records.json_objects import (
    LABEL_KEYS,
    SPAN_KEYS,
    TOKEN_KEYS,
    TextSpan,
    has_blanks,
    is_list_of_spans,
    label_key,
    span_list,
    text_spans,
    with_values,
)
from ensue.data.records.record import Record, json_records
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, Surface, joined
from ensue.errors import DataError, nearest
from ensue.parsing import parse_json
from ensue.text.schemes import Span, encode, overlapping, overlapping_spans, spans
from ensue.text.tokens import Token, tokens

NEW_SPANS = "spans"
_DECODER = json.JSONDecoder()

Content = dict[str, Any]


class JsonSentences(Format):
    """Reads with the words in the key `words`, a list of tokens or a text; by default in the first of "tokens", "words"
    and "text" that there is. An object without a token is an empty sentence.
    """

    name = "json"
    default_words = ""
    default_column = "labels"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Raises DataError for a line that is no such object, for labels that are not as many as the tokens, and for
        spans that overlap, reach beyond the text or hold nothing but blanks.
        """
        waiting: Record | None = None
        kept = KeptLines(lines)
        kept.split_array()
        for record in json_records(kept, is_array=kept.is_array):
            if waiting:
                yield self._sentence(waiting, lines.name)
            waiting = record
            kept.forget()
        if waiting:
            yield self._sentence(waiting, lines.name, behind=kept.kept())

    def _sentence(self, record: Record, name: str, *, behind: str = "") -> Sentence:
        """`behind` is the text after the last sentence of a file."""
        line, source = record.line, SourceLines(name, record.before + record.text + behind)
        try:
            content = _checked_content(record.text)
            key, number = self._words_key(content), content.get("document")
            document = number if type(number) is int else None
            if isinstance(content[key], list):
                return Sentence(tuple(content[key]), _token_columns(content, key), line, source, document)
            words, found = self._cut(content, key)
            columns = {column: self._labels(words, here) for column, here in found.items()}
        except ValueError as error:
            raise DataError(str(error), name, line) from None
        return Sentence(tuple([word.text for word in words]), columns, line, source, document)

    def _words_key(self, record: Content) -> str:
        """The key of the tokens or the text."""
        keys = [self.words] if self.words else [key for key in TOKEN_KEYS if _is_strings(record.get(key))] or ["text"]
        if keys[0] in record:
            if isinstance(record[keys[0]], str) or _is_strings(record[keys[0]]):
                return keys[0]
            raise ValueError(f'"{keys[0]}" must be a list of strings or a text')
        wrong = [] if self.words else [key for key in TOKEN_KEYS if key in record]
        if wrong:
            raise ValueError(f'"{wrong[0]}" must be a list of strings')
        expected = f'"{self.words}"' if self.words else '"tokens" (a list) or "text"'
        near = nearest(self.words, record) if self.words else ""
        raise ValueError(f"expected the key {expected}, found {', '.join(map(json.dumps, record)) or 'none'}{near}")

    def _cut(self, record: Content, key: str) -> tuple[list[Token], dict[str, list[TextSpan]]]:
        """The words of the text at `key`, cut wherever a span begins or ends, and the lists of spans."""
        text = record[key]
        found = {
            name: text_spans(value, text, name, nested=self.nested)
            for name, value in record.items()
            if (name in SPAN_KEYS and isinstance(value, list)) or is_list_of_spans(value)
        }
        borders = sorted({place for here in found.values() for span in here for place in (span.start, span.end)})
        words = _cut_at(borders, tokens(text, self.splitter))
        for here in found.values():
            for span in here:
                if not _inside(span, words):
                    raise ValueError(f"the span {span} holds nothing but blanks")
        return words, found

    def _labels(self, words: list[Token], found: list[TextSpan]) -> tuple[str, ...]:
        inside = [(span.label, _inside(span, words)) for span in found]
        token_spans = [Span(label, places.start, places.stop) for label, places in inside]
        return tuple((overlapping if self.nested else encode)(token_spans, len(words), self.scheme))

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """By default the first of "labels", "tags", "ner_tags", "pos_tags", "spans", "entities" and "label"."""
        return sentence.column(column or label_key(sentence.columns) or self.default_column)

    def group(self, sentence: Sentence, column: str) -> str:
        """The text or number under a key of the object."""
        value = _content(sentence.source.text).get(column)
        return str(value) if type(value) in (str, int) else super().group(sentence, column)

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """The object with the labels, or with their spans. All other characters stay as they were. A key that is not
        there yet comes last. Labels that say what the object says already leave it as it is.
        """
        text = sentence.source.text
        record = _content(sentence.source.text)
        key = self._words_key(record)
        assert len(labels) == len(sentence.words), "one label for each word"
        if isinstance(record[key], list):
            name = column or next((key for key in LABEL_KEYS if isinstance(record.get(key), list)), self.default_column)
            return text if record.get(name) == list(labels) else _with_value(text, name, list(labels))
        words, found = self._cut(record, key)
        name = column or next((key for key in SPAN_KEYS if key in found), NEW_SPANS)
        read = overlapping_spans if self.nested else spans
        new = [TextSpan(words[span.start].start, words[span.end - 1].end, span.label) for span in read(labels)]
        if name in found and read(self._labels(words, found[name])) == read(labels):
            return text
        return _with_value(text, name, span_list(new, record.get(name), name))

    def missing_end(self, text: str) -> str:
        return "" if text.endswith("\n") else "\n"

    def surface(self, sentence: Sentence) -> Surface:
        """The text that was split, or the tokens with a blank between them."""
        record = _content(sentence.source.text)
        key = self._words_key(record)
        if isinstance(record[key], list):
            return joined(sentence.words)
        words, _ = self._cut(record, key)
        return Surface(record[key], tuple([(word.start, word.end) for word in words]))


def _checked_content(text: str) -> Content:
    """The object that the text is. Raises ValueError with a message for the user if it is none."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object on each line, such as {...}, or an array of objects")
    if "\\ud" in text.lower():
        _check_surrogates(content)
    return content


def _content(text: str) -> Content:
    """The object in the text of a sentence that was read. It begins with the first brace."""
    content: Content
    content, _ = _DECODER.raw_decode(text, text.index("{"))
    return content


def _check_surrogates(record: Content) -> None:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"half of a character (the lone surrogate \\u{ord(half):04x})") from None


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _token_columns(record: Content, key: str) -> dict[str, tuple[str, ...]]:
    """Every list with a string for each token, by its key. Numbers, such as those of classes, are read as strings."""
    length = len(record[key])
    columns: dict[str, tuple[str, ...]] = {}
    for name, value in record.items():
        is_column = isinstance(value, list) and all(isinstance(item, str) or type(item) is int for item in value)
        if is_column and len(value) == length:
            columns[name] = tuple(map(str, value))
        elif name in LABEL_KEYS and isinstance(value, list):
            fault = f"{len(value)} entries for {length} tokens" if is_column else "entries that are no strings"
            raise ValueError(f'"{name}" has {fault}')
    return columns


def _cut_at(borders: Sequence[int], words: list[Token]) -> list[Token]:
    """The words, cut at those borders (sorted) that are inside of one."""
    pieces: list[Token] = []
    place = 0
    for word in words:
        start = word.start
        while place < len(borders) and borders[place] < word.end:
            if borders[place] > start:
                pieces.append(_piece(word, start, borders[place]))
                start = borders[place]
            place += 1
        pieces.append(_piece(word, start, word.end))
    return pieces


def _piece(word: Token, start: int, end: int) -> Token:
    return Token(word.text[start - word.start : end - word.start], start, end)


def _inside(span: TextSpan, words: list[Token]) -> range:
    """The places of the words inside the span, at whose borders they are cut."""
    first = bisect_left(words, span.start, key=lambda word: word.start)
    return range(first, bisect_right(words, span.end, lo=first, key=lambda word: word.end))


def _with_value(text: str, key: str, value: Any) -> str:
    """The text with another value at a key of its object, or with the key after the others. ASCII stays ASCII."""
    separators = (", ", ": ") if has_blanks(text) else (",", ":")
    written = json.dumps(value, ensure_ascii=text.isascii(), separators=separators)
    return with_values(text, {key: written}, ensure_ascii=text.isascii())
