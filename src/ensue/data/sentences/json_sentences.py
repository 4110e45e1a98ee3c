"""The format of sentences as JSON objects, on lines or in an array, with tokens and labels, or with a text and spans.

- `{"tokens": ["Ann", "left"], "labels": ["B-PER", "O"]}`: lists of strings or integers of the same length are columns.
- `{"text": "Ann left", "spans": [{"start": 0, "end": 3, "label": "PER"}]}`: the text is split into words. Each list of
  spans becomes a column of labels of the words that overlap the spans. `[0, 3, "PER"]` (doccano) is also a span.

Consecutive sentences with the same integer at the key "document" belong to one document.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ensue.data.detection.pair_tables import HEADER_WORDS
from ensue.data.in_memory import are_unnamed
from ensue.data.lines import Lines, RecordingLines, check_width
from ensue.data.records import json_objects as objects
from ensue.data.records.record import Record, json_records, simplify
from ensue.data.sentences.sentence import Format, Sentence, SourceText, Surface
from ensue.data.sentences.span_borders import reading_of
from ensue.errors import DataError, OverlapError, nearest
from ensue.parsing import EXACT_FLOATS, UNIQUE_KEYS, parse_json, to_json
from ensue.text.schemes import Span, encode, encode_overlapping, overlapping_spans, spans
from ensue.text.tokens import Token, tokens

HIDDEN = -1
"""The start and end of the words of a span that gets no labels, because another span labels one of its words."""


class PlacedSpan(NamedTuple):
    """A span of characters, the span of words that it overlaps, and whether their borders are equal."""

    source: objects.TextSpan
    words: Span
    is_aligned: bool


def place_spans(spans: Sequence[objects.TextSpan], words: Sequence[Token], *, nested: bool) -> list[PlacedSpan]:
    """Return the words of each span.

    Unless `nested`, a word can be labeled by only one span. Spans that begin and end with words have priority over
    other spans, and earlier spans have priority over later spans. Raises ValueError for a span of blanks.
    """
    placed = [_overlapping_words(span, words) for span in spans]
    if all(span.is_aligned for span in placed):
        return placed
    labeled_items = {item for span in placed if span.is_aligned for item in _labeled_items(span.words, nested)}
    for number, span in enumerate(placed):
        items = _labeled_items(span.words, nested)
        if not span.is_aligned and not labeled_items.isdisjoint(items):
            placed[number] = span._replace(words=Span(span.words.label, HIDDEN, HIDDEN))
        labeled_items.update(items)
    return placed


def _labeled_items(span: Span, nested: bool) -> Sequence[object]:
    return (span,) if nested else range(span.start, span.end)


def _overlapping_words(span: objects.TextSpan, words: Sequence[Token]) -> PlacedSpan:
    first = bisect_right(words, span.start, key=lambda word: word.end)
    stop = bisect_left(words, span.end, lo=first, key=lambda word: word.start)
    if first == stop:
        raise ValueError(f"the span {span} has only blanks")
    is_aligned = words[first].start >= span.start and words[stop - 1].end <= span.end
    return PlacedSpan(span, Span(span.label, first, stop), is_aligned and not isinstance(span, objects.ClippedSpan))


NEW_SPANS = "spans"
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})", re.ASCII)

Content = dict[str, Any]


class JsonSentences(Format):
    """The format JSON, with the words of a sentence at a key, as a list of tokens or a text.

    The default key is the first of "tokens", "words", "text" and other usual names of texts that an object has.
    """

    name = "json"
    default_words = ""
    default_column = "labels"
    has_keys = True

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Yield the sentences. Raises DataError for invalid objects or spans, and for too few or too many labels."""
        previous: Record | None = None
        recording = RecordingLines(lines)
        recording.split_array()
        for record in objects.skip_rejected(json_records(recording, is_array=recording.is_array), lines.name):
            if previous:
                yield self._sentence(previous, lines.name)
            previous = record
            recording.clear()
        if previous:
            yield self._sentence(previous, lines.name, following=recording.recorded_text())

    def _sentence(self, record: Record, name: str, *, following: str = "") -> Sentence:
        line, source = record.line, SourceText(name, record.before + record.text + following, len(record.before))
        try:
            content = parse_json(record.text, UNIQUE_KEYS)
            if not isinstance(content, dict):
                raise ValueError("expected a JSON object on each line, such as {...}, or an array of objects")
            if "\\ud" in record.text.lower():
                try:
                    json.dumps(content, ensure_ascii=False).encode()
                except UnicodeEncodeError as error:
                    surrogate = ord(error.object[error.start])
                    raise ValueError(f"half of a character (the lone surrogate \\u{surrogate:04x})") from None
            check_width(len(content), name, line)
            key, number = self._words_key(content, name), content.get("document")
            document = number if type(number) is int else None
            if isinstance(content[key], list):
                return Sentence(tuple(content[key]), _token_columns(content, key), line, source, document)
            words, lists = self._spans(content, key)
            columns = {column: self._labels(words, spans) for column, spans in lists.items()}
        except OverlapError as error:
            raise OverlapError(error.message, name, line) from None
        except ValueError as error:
            raise DataError(str(error), name, line) from None
        misaligned = {key: tuple([span.words for span in spans if not span.is_aligned]) for key, spans in lists.items()}
        return Sentence(tuple([word.text for word in words]), columns, line, source, document, misaligned)

    def _words_key(self, record: Content, file: str) -> str:
        words_key = "" if are_unnamed(file) else self.words
        key = words_key or next((key for key in objects.TOKEN_KEYS if _is_strings(record.get(key))), "text")
        key = key if words_key or key in record else next(_usual_text_keys(record), key)
        if key in record:
            if isinstance(record[key], str) or _is_strings(record[key]):
                return key
            raise ValueError(f'"{key}" must be a list of strings or a text')
        invalid = [] if words_key else [key for key in objects.TOKEN_KEYS if key in record]
        if invalid:
            raise ValueError(f'"{invalid[0]}" must be a list of strings')
        expected = f'"{words_key}"' if words_key else '"tokens" (a list) or "text"'
        advice = nearest(words_key, record) if words_key else ""
        raise ValueError(f"expected the key {expected}, found {', '.join(map(json.dumps, record)) or 'none'}{advice}")

    def _reparse(self, sentence: Sentence) -> tuple[Content, str]:
        """Return the object of a sentence, and the key of its words."""
        text, start, file = sentence.source.text, sentence.source.start, sentence.source.name
        content, _ = EXACT_FLOATS.raw_decode(text, text.index("{", start))
        return content, self._words_key(content, file)

    def _spans(self, record: Content, key: str) -> tuple[list[Token], dict[str, list[PlacedSpan]]]:
        text = record[key]
        words, start = tokens(text, self.splitter), _offset(record, text)
        lists = {name: objects.shift_spans(value, -start) for name, value in record.items()
                 if (name in objects.SPAN_KEYS and isinstance(value, list))
                 or objects.is_list_of_spans(value)}  # fmt: skip
        try:
            nested = self.nested or not self.is_labeled
            result = {name: objects.text_spans(value, text, name, nested=nested) for name, value in lists.items()}
        except objects.SpanError as error:
            if not self.is_labeled:
                return words, {}
            offsets = [pair for value in lists.values() for pair in objects.span_offsets(value)]
            reading = reading_of(text, offsets, self.splitter)
            raise ValueError(f"{error}{f'; {reading}' if reading else ''}") from None
        return words, {name: place_spans(spans, words, nested=self.nested) for name, spans in result.items()}

    def _labels(self, words: list[Token], result: list[PlacedSpan]) -> tuple[str, ...]:
        labeled = [span.words for span in result if span.words.start != HIDDEN]
        encode_spans = encode_overlapping if self.nested or not self.is_labeled else encode
        return tuple(encode_spans(labeled, len(words), self.scheme or "bio"))

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """Return the labels at a key, by default at the first usual key (`label_key`)."""
        return sentence.column(_label_key(sentence, column) or self.default_column, "labels")

    def shown_columns(self, names: Sequence[str]) -> tuple[str, str]:
        key = next((key for key in (*objects.TOKEN_KEYS, *_usual_text_keys(names)) if key in names), "text")
        return self.words or key, objects.label_key(names)

    def misaligned(self, sentence: Sentence, column: str | None = None) -> tuple[Span, ...]:
        return sentence.misaligned.get(_label_key(sentence, column), ())

    def text_spans(self, sentence: Sentence, column: str | None = None) -> tuple[str, list[tuple[int, int]]]:
        (record, key), name = self._reparse(sentence), _label_key(sentence, column)
        text, value = record[key], record.get(name)
        if not isinstance(text, str) or not isinstance(value, list):
            return "", []
        spans = objects.text_spans(objects.shift_spans(value, -_offset(record, text)), text, name, nested=self.nested)
        return text, [(start, end) for start, end, _ in spans]

    def group(self, sentence: Sentence, column: str) -> str:
        """Return the string or integer at a key of the object."""
        value = self._reparse(sentence)[0].get(column)
        return str(value) if type(value) in (str, int) else super().group(sentence, column)

    def write(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        """Return the text of the object with new labels, or with their spans. A new key is added at the end."""
        return sentence.source.text[: sentence.source.start] + self._rewrite(sentence, labels, column)

    def write_keeping_spans(self, sentence: Sentence, labels: Sequence[str], column: str | None = None) -> str:
        source = sentence.source
        return source.text[: source.start] + self._rewrite(sentence, labels, column, keep_spans=True)

    def _rewrite(self, sentence: Sentence, labels: Sequence[str], column: str | None, keep_spans: bool = False) -> str:
        text = sentence.source.sentence_text
        record, key = self._reparse(sentence)
        assert len(labels) == len(sentence.words), "one label for each word"
        if isinstance(record[key], list):
            lists = (key for key in objects.LABEL_KEYS if isinstance(record.get(key), list))
            name = column or next(lists, self.default_column)
            values = record.get(name)
            old_labels = values if isinstance(values, list) else None
            if old_labels is not None and list(map(str, old_labels)) == list(labels):
                return text
            are_numbers = any(type(label) is int for label in old_labels or ()) and all(map(_NUMBER.fullmatch, labels))
            return _replace_values(text, {name: list(map(int, labels)) if are_numbers else list(labels)})
        if self.scheme is None:  # labels of words instead of spans
            words_key = objects.TOKEN_KEYS[0]
            return _replace_values(text, {words_key: list(sentence.words), column or self.default_column: list(labels)})
        words, result = self._spans(record, key)
        name = column or next((key for key in objects.SPAN_KEYS if isinstance(record.get(key), list)), NEW_SPANS)
        old = result.get(name, [])
        borders = {span.words[1:]: span.source[:2] for span in old} if keep_spans else {}
        new = [objects.TextSpan(*borders.get((a, b), (words[a].start, words[b - 1].end)), label)
               for label, a, b in (overlapping_spans if self.nested else spans)(labels)]  # fmt: skip
        if keep_spans:
            hidden = [span.source for span in old if span.words.start == HIDDEN]
            new = sorted([*new, *(span for span in hidden if all(span.end <= a or b <= span.start for a, b, _ in new))])
        is_same = name in result and {*new} == {span.source for span in old}
        if is_same and (keep_spans or all(span.is_aligned for span in old)):
            return text
        like = record.get(name)
        written = objects.shift_spans(objects.span_list(new, like, name), _offset(record, record[key]))
        return _replace_values(text, {name: objects.restore_keys(written, like) if keep_spans else written})

    def missing_end(self, text: str) -> str:
        return "" if text.endswith("\n") else "\n"

    def surface(self, sentence: Sentence) -> Surface:
        """Return the text of the object, or the tokens separated by blanks."""
        record, key = self._reparse(sentence)
        if isinstance(record[key], list):
            return Surface.of(sentence.words)
        return Surface(record[key], tuple([(start, end) for _, start, end in tokens(record[key], self.splitter)]))


def _label_key(sentence: Sentence, column: str | None) -> str:
    """Return the key of labels: `column`, or by default and for unnamed rows in memory the first usual key."""
    return ("" if are_unnamed(sentence.source.name) else column) or objects.label_key(sentence.columns)


def _offset(record: Content, text: str) -> int:
    """Return a text's character offset in its document (`predict --to jsonl`). Raises ValueError for another unit."""
    start, end = (record.get(name) for name in ("start", "end"))
    if type(start) is not int or type(end) is not int or not isinstance(record.get("document"), str):
        return 0
    if end - start != len(text):
        units = 'expected offsets in characters, as "ensue predict --to jsonl --offsets characters" writes them'
        raise ValueError(f'"start" and "end" are {end - start:,} apart, the text has {len(text):,} characters: {units}')
    return start


def _usual_text_keys(names: Iterable[str]) -> Iterator[str]:
    """Yield the keys that are usual names of texts, such as "sentence", the most frequent first."""
    simple_names = {simplify(name): name for name in names}
    usual = (simplify(name) for group in HEADER_WORDS["texts"] for name in group)
    return (simple_names[name] for name in usual if name in simple_names)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _token_columns(record: Content, key: str) -> dict[str, tuple[str, ...]]:
    length = len(record[key])
    columns: dict[str, tuple[str, ...]] = {}
    for name, value in record.items():
        is_column = isinstance(value, list) and all(isinstance(item, str) or type(item) is int for item in value)
        if is_column and len(value) == length:
            columns[name] = tuple(map(str, value))
        elif name in objects.LABEL_KEYS and isinstance(value, list):
            fault = f"{len(value)} entries for {length} tokens" if is_column else "entries that are not strings"
            raise ValueError(f'"{name}" has {fault}')
    return columns


def _replace_values(text: str, values: Content) -> str:
    is_ascii, separators = text.isascii(), (", ", ": ") if objects.has_blanks(text) else (",", ":")
    written = {key: to_json(value, ensure_ascii=is_ascii, separators=separators) for key, value in values.items()}
    return objects.replace_values(text, written, ensure_ascii=is_ascii)
