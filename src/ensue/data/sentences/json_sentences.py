"""JSON: objects on lines, or in one array, with tokens and labels, or with a text and spans of it.

`{"tokens": ["Ann", "left"], "labels": ["B-PER", "O"]}`: every list of strings as long as the tokens is a column, under
its key. `{"text": "Ann left", "spans": [{"start": 0, "end": 3, "label": "PER"}]}`, or `[0, 3, "PER"]` as doccano writes
it: the text is split into words, and each list of spans is a column of labels of the words that a span touches.
Neighbors with the same whole number as "document" are of one document.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ensue.data.lines import KeptLines, Lines
from ensue.data.records.json_objects import (
    LABEL_KEYS,
    SPAN_KEYS,
    TOKEN_KEYS,
    ClippedSpan,
    SpanError,
    TextSpan,
    accepted,
    has_blanks,
    is_list_of_spans,
    label_key,
    span_list,
    span_places,
    text_spans,
    with_values,
)
from ensue.data.records.record import Record, json_records
from ensue.data.sentences.sentence import Format, Sentence, SourceLines, Surface, joined
from ensue.data.sentences.span_borders import reading_of
from ensue.errors import DataError, nearest
from ensue.parsing import parse_json
from ensue.text.schemes import Span, encode, overlapping, overlapping_spans, spans
from ensue.text.tokens import Token, tokens

HIDDEN = -1
"""The start and end of a span that the labels do not show, since its words have another one."""


class PlacedSpan(NamedTuple):
    """A span of characters, the words that it touches, and whether it begins and ends where words do."""

    source: TextSpan
    words: Span
    is_aligned: bool


def place_spans(spans: Sequence[TextSpan], words: Sequence[Token], *, nested: bool) -> list[PlacedSpan]:
    """Return the words of each span. Of spans that touch a word, without `nested`, one that is aligned hides others,
    then the first one. Raises ValueError for a span of blanks.
    """
    placed = [_touched(span, words) for span in spans]
    if all(span.is_aligned for span in placed):
        return placed
    taken = {item for span in placed if span.is_aligned for item in _items(span.words, nested)}
    for number, span in enumerate(placed):
        items = _items(span.words, nested)
        if not span.is_aligned and not taken.isdisjoint(items):
            placed[number] = span._replace(words=Span(span.words.label, HIDDEN, HIDDEN))
        taken.update(items)
    return placed


def _items(span: Span, nested: bool) -> Sequence[object]:
    """The words, of which no other span has one, or with `nested` the span, which is there once."""
    return (span,) if nested else range(span.start, span.end)


def _touched(span: TextSpan, words: Sequence[Token]) -> PlacedSpan:
    first = bisect_right(words, span.start, key=lambda word: word.end)
    stop = bisect_left(words, span.end, lo=first, key=lambda word: word.start)
    if first == stop:
        raise ValueError(f"the span {span} holds nothing but blanks")
    is_aligned = words[first].start >= span.start and words[stop - 1].end <= span.end
    return PlacedSpan(span, Span(span.label, first, stop), is_aligned and not isinstance(span, ClippedSpan))


NEW_SPANS = "spans"
_DECODER = json.JSONDecoder()
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)

Content = dict[str, Any]


class JsonSentences(Format):
    """Reads with the words in the key `words`, a list of tokens or a text; by default in the first of "tokens", "words"
    and "text" that there is. An object without a token is an empty sentence.
    """

    name = "json"
    default_words = ""
    default_column = "labels"
    has_keys = True

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Raises DataError for a line that is no such object, for labels that are not as many as the tokens, and for
        spans that overlap, reach beyond the text or hold nothing but blanks.
        """
        waiting: Record | None = None
        kept = KeptLines(lines)
        kept.split_array()
        for record in accepted(json_records(kept, is_array=kept.is_array), lines.name):
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
            words, found = self._spans(content, key)
            columns = {column: self._labels(words, here) for column, here in found.items()}
        except ValueError as error:
            raise DataError(str(error), name, line) from None
        cut = {name: tuple([one.words for one in here if not one.is_aligned]) for name, here in found.items()}
        return Sentence(tuple([word.text for word in words]), columns, line, source, document, cut)

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

    def _spans(self, record: Content, key: str) -> tuple[list[Token], dict[str, list[PlacedSpan]]]:
        """The words of the text at `key`, and the lists of spans."""
        text = record[key]
        words = tokens(text, self.splitter)
        lists = {
            name: value
            for name, value in record.items()
            if (name in SPAN_KEYS and isinstance(value, list)) or is_list_of_spans(value)
        }
        try:
            found = {name: text_spans(value, text, name, nested=self.nested) for name, value in lists.items()}
        except SpanError as error:
            places = [place for value in lists.values() for place in span_places(value)]
            reading = reading_of(text, places, self.splitter)
            raise ValueError(f"{error}{f'; {reading}' if reading else ''}") from None
        return words, {name: place_spans(spans, words, nested=self.nested) for name, spans in found.items()}

    def _labels(self, words: list[Token], found: list[PlacedSpan]) -> tuple[str, ...]:
        shown = [span.words for span in found if span.words.start != HIDDEN]
        return tuple((overlapping if self.nested else encode)(shown, len(words), self.scheme))

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """By default the first of "labels", "tags", "ner_tags", "pos_tags", "spans", "entities" and "label"."""
        return sentence.column(column or label_key(sentence.columns) or self.default_column)

    def shown_columns(self, names: Sequence[str]) -> tuple[str, str]:
        return self.words or next((key for key in TOKEN_KEYS if key in names), "text"), label_key(names)

    def misaligned(self, sentence: Sentence, column: str | None = None) -> tuple[Span, ...]:
        return sentence.misaligned.get(column or label_key(sentence.columns), ())

    def text_spans(self, sentence: Sentence, column: str | None = None) -> tuple[str, list[tuple[int, int]]]:
        record, name = _content(sentence.source.text), column or label_key(sentence.columns)
        text = record[self._words_key(record)]
        if not isinstance(text, str) or not isinstance(record.get(name), list):
            return "", []
        return text, [(start, end) for start, end, _ in text_spans(record[name], text, name, nested=self.nested)]

    def group(self, sentence: Sentence, column: str) -> str:
        """The text or number under a key of the object."""
        value = _content(sentence.source.text).get(column)
        return str(value) if type(value) in (str, int) else super().group(sentence, column)

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """The object with the labels, or with their spans. All other characters stay as they were. A key that is not
        there yet comes last. Labels that say what the object says already leave it as it is.
        """
        return self._written(sentence, labels, column, keeps_borders=False)

    def corrected(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        return self._written(sentence, labels, column, keeps_borders=True)

    def _written(self, sentence: Sentence, labels: Sequence[str], column: str | None, *, keeps_borders: bool) -> str:
        text = sentence.source.text
        record = _content(sentence.source.text)
        key = self._words_key(record)
        assert len(labels) == len(sentence.words), "one label for each word"
        if isinstance(record[key], list):
            name = column or next((key for key in LABEL_KEYS if isinstance(record.get(key), list)), self.default_column)
            values = record.get(name)
            own = values if isinstance(values, list) else None
            if own is not None and list(map(str, own)) == list(labels):
                return text
            are_numbers = any(type(label) is int for label in own or ()) and all(map(_NUMBER.fullmatch, labels))
            return _with_value(text, name, list(map(int, labels)) if are_numbers else list(labels))
        words, found = self._spans(record, key)
        name = column or next((key for key in SPAN_KEYS if key in found), NEW_SPANS)
        old = found.get(name, [])
        borders = {span.words[1:]: span.source[:2] for span in old} if keeps_borders else {}
        new = [
            TextSpan(*borders.get((a, b), (words[a].start, words[b - 1].end)), label)
            for label, a, b in (overlapping_spans if self.nested else spans)(labels)
        ]
        if keeps_borders:
            hidden = [span.source for span in old if span.words.start == HIDDEN]
            new = sorted([*new, *(one for one in hidden if all(one.end <= a or b <= one.start for a, b, _ in new))])
        is_same = name in found and {*new} == {span.source for span in old}
        if is_same and (keeps_borders or all(span.is_aligned for span in old)):
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
        return Surface(record[key], tuple([(start, end) for _, start, end in tokens(record[key], self.splitter)]))


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


def _with_value(text: str, key: str, value: Any) -> str:
    """The text with another value at a key of its object, or with the key after the others. ASCII stays ASCII."""
    separators = (", ", ": ") if has_blanks(text) else (",", ":")
    written = json.dumps(value, ensure_ascii=text.isascii(), separators=separators)
    return with_values(text, {key: written}, ensure_ascii=text.isascii())
