"""JSON objects as records: texts, labels and spans at keys, and replacement of values in the text of an object."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ensue.data.annotation_files import CLIPPED
from ensue.data.json_layouts import parse_or_none
from ensue.data.lines import Lines, check_width
from ensue.data.records import record as records
from ensue.data.records.record import Answer, Column, Reader, Record, Row, describe_missing_column, json_records, sample
from ensue.errors import NESTED_REMEDY, DataError, IncompleteError, OverlapError, letters_and_digits, quote
from ensue.notices import warn_once
from ensue.parsing import EXACT, NumberText, ParseError, parse_json, to_json

TOKEN_KEYS = ("tokens", "words")
LABEL_KEYS = ("labels", "tags", "ner_tags", "pos_tags")
SPAN_KEYS = ("labels", "spans", "entities", "label", "annotation")
"""The usual keys of words, of the labels of words, and of spans in a text."""
REJECTED = {
    "answer": ({"reject", "ignore"}, {"label", "spans", "options", "accept", "_input_hash", "_task_hash", "_view_id"}),
    "status": ({"Discarded"}, {"annotation_agent", "prediction_agent"}),
}
"""The keys of rejected rows of Prodigy and Argilla, with their values, and other keys of these tools. Data with a key
"answer" but none of the other keys, such as questions and answers, are from another tool."""
_STARTS = ("start", "start_offset", "begin", "start_char", "startOffset", "begin_offset")
_ENDS = ("end", "end_offset", "stop", "end_char", "endOffset")
_SPAN_LABELS = ("label", "entity", "tag", "type", "labels", "entity_group", "class", "category")
"""The keys that annotation tools use for the start, the end and the label of a span."""


def skip_rejected(records: Iterator[Record], name: str, *, needed: Sequence[Column] = ()) -> Iterator[Record]:
    """Yield the records, except those that were rejected or ignored in Prodigy or Argilla.

    The text of a rejected record becomes a part of the text before the next record, and a notice reports the number of
    rejected records. If "answer" or "status" is a `needed` column, only "ignore" in this column rejects a record.
    """
    before, counts, names = "", Counter[tuple[str, str]](), {column.name for column in needed}
    for record in records:
        mark = _find_mark(record.text)
        if mark and (mark[0] not in names or mark[1] == "ignore"):
            counts[mark] += 1
            before += record.before + record.text
        else:
            yield record._replace(before=before + record.before) if before else record
            before = ""
    if counts:
        rows = " and ".join(f'{count:,} with "{key}": "{value}"' for (key, value), count in sorted(counts.items()))
        warn_once(f"rejected {name}", f"{name}: rows left out: {rows}")


def _find_mark(text: str) -> tuple[str, str] | None:
    for key, (values, others) in REJECTED.items():
        content = parse_or_none(text) if f'"{key}"' in text else None
        if isinstance(content, dict) and content.keys() & others and content.get(key) in [*values]:
            return key, content[key]
    return None


def label_key(names: Collection[str]) -> str:
    """Return the first usual key of labels that is in `names`; "" without one."""
    return next((key for key in (*LABEL_KEYS, *SPAN_KEYS) if key in names), "")


class TextSpan(NamedTuple):
    """A labeled span of the characters (code points) from `start` to `end` (exclusive)."""

    start: int
    end: int
    label: str

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


class ClippedSpan(TextSpan):
    """A span whose end was cut off, because it continues on another line."""


class SpanError(ValueError):
    """A span outside of its text."""


def is_list_of_spans(value: Any) -> bool:
    """Return whether a value is a list of one or more spans."""
    return isinstance(value, list) and bool(value) and all(map(_parse_span, value))


def text_spans(value: Sequence[Any], text: str, name: str, *, nested: bool = False) -> list[TextSpan]:
    """Parse and sort spans. Raises ValueError for an invalid span, and OverlapError for an overlap unless `nested`."""
    result = []
    for item in value:
        span = _parse_span(item)
        if not span:
            example = '{"start": 0, "end": 3, "label": "PER"}'
            raise ValueError(f'"{name}" must be a list of spans such as {example} or [0, 3, "PER"]')
        if not 0 <= span.start < span.end <= len(text):
            raise SpanError(f"the span {span} is not in the text, which has {len(text)} characters")
        expected_text, actual_text = item.get("text") if isinstance(item, dict) else None, text[span.start : span.end]
        if isinstance(expected_text, str) and letters_and_digits(expected_text) != letters_and_digits(actual_text):
            raise SpanError(f"the span {span} is {quote(actual_text)} in the text, not {quote(expected_text)}")
        if not span.label:
            raise ValueError(f"the span {span} has an empty label")
        result.append(span)
    result.sort()
    for span, following in pairwise(result):
        if following.start < span.end and not nested:
            raise OverlapError(f"the spans {span} and {following} overlap; {NESTED_REMEDY}")
    return result


def shift_spans(value: Any, by: int) -> Any:
    """Return a list of spans with `by` added to their offsets; other values are returned unchanged."""
    if not by or not is_list_of_spans(value):
        return value
    return [{**item, **{name: item[name] + by for name in _keys_of(item)[:2]}} if isinstance(item, dict)
            else [item[0] + by, item[1] + by, item[2]] for item in value]  # fmt: skip


def span_list(spans: Sequence[TextSpan], like: Any, name: str) -> list[Any]:
    """Return the spans as JSON values in the form of the spans in `like`, or in the usual form of the key `name`."""
    first = like[0] if isinstance(like, list) and like else [] if name in ("label", "labels") else {}
    if isinstance(first, list):
        return [list(span) for span in spans]
    names = _keys_of(first) if first else TextSpan._fields
    is_list = bool(first) and isinstance(first[names[2]], list)
    return [dict(zip(names, (*span[:2], [span.label] if is_list else span.label), strict=True)) for span in spans]


def restore_keys(written: list[Any], old: Any) -> list[Any]:
    """Return the spans `written`, each with the other keys of the span in the list `old` that has the same offsets.

    If `old` is not sorted, its spans come first, in the order of `old`.
    """
    items = dict(zip(span_offsets(old), old, strict=True)) if is_list_of_spans(old) else {}
    order = {offsets: number for number, offsets in enumerate(items)}
    pairs = [*zip(span_offsets(written), written, strict=True)]
    if [*items] != sorted(items):
        pairs.sort(key=lambda pair: order.get(pair[0], len(order)))
    return [{**items.get(offsets, {}), **item} if isinstance(item, dict) else item for offsets, item in pairs]


def span_offsets(value: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the start and end of each span, without checking that the span is in the text."""
    return [(span.start, span.end) for span in map(_parse_span, value) if span is not None]


def _keys_of(item: dict[str, Any]) -> list[str]:
    names = (next((name for name in group if name in item), "") for group in (_STARTS, _ENDS, _SPAN_LABELS))
    return [name for name in names if name]


def _parse_span(item: Any) -> TextSpan | None:
    values = item
    if isinstance(item, dict):
        values = [item.get(name) for name in _keys_of(item)]
        if len(values) == 3 and isinstance(values[2], list) and len(values[2]) == 1:
            values[2] = values[2][0]
    if isinstance(values, list) and list(map(type, values)) == [int, int, str]:
        return (ClippedSpan if isinstance(item, dict) and item.get(CLIPPED) is True else TextSpan)(*values)
    return None


_WHITE_SPACE = " \t\r\n"
_LITERAL = re.compile(r"true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


def replace_values(text: str, values: Mapping[str, str], *, ensure_ascii: bool) -> str:
    """Return the text of an object in which the values (as JSON) of some keys are replaced, or added at the end.

    New keys are formatted like the other keys, with the same line ends and blanks.
    """
    value_spans = members(text)
    opening = text.index("{") + 1
    lead = text[opening : _skip_white_space(text, opening)]
    blank = " " if has_blanks(text) else ""
    comma = "," + (lead if "\n" in lead else blank)
    new = [
        f"{json.dumps(key, ensure_ascii=ensure_ascii)}:{blank}{values[key]}" for key in values if key not in value_spans
    ]
    end = max((end for _, end in value_spans.values()), default=opening)
    text = text[:end] + (comma if value_spans and new else "") + comma.join(new) + text[end:]
    for key in sorted(value_spans.keys() & values.keys(), key=lambda key: -value_spans[key][0]):
        start, stop = value_spans[key]
        text = text[:start] + values[key] + text[stop:]
    return text


def has_blanks(text: str) -> bool:
    """Return whether a blank precedes the first value of an object, or the object is empty."""
    return all(text[start - 1] in _WHITE_SPACE for start, _ in list(members(text).values())[:1])


def members(text: str) -> dict[str, tuple[int, int]]:
    """Return the start and end of the value of each key in the first object of a valid JSON text."""
    result: dict[str, tuple[int, int]] = {}
    index = text.index("{") + 1
    while not text.startswith("}", index := _skip_white_space(text, index)):
        index = _skip_white_space(text, index + 1 if text[index] == "," else index)
        key, index = EXACT.raw_decode(text, index)
        start = _skip_white_space(text, _skip_white_space(text, index) + 1)
        _, index = EXACT.raw_decode(text, start)
        result[key] = (start, index)
    return result


def _skip_white_space(text: str, index: int) -> int:
    while text[index] in _WHITE_SPACE:
        index += 1
    return index


class JsonObjects(Reader):
    """A reader of JSON objects on lines or in an array. With `inner`, inner objects of texts are flattened."""

    name = "json"
    has_keys = True

    def __init__(self, *, inner: bool = False) -> None:
        self.inner = inner
        self.example = '{"source": ..., "target": ...}' if inner else '{"text": ..., "label": ...}'

    def to_flat(self) -> "JsonObjects":
        return JsonObjects(inner=True)

    def first_rows(self, lines: Lines) -> list[list[str]]:
        """Return the keys and values of the first objects. Raises DataError if there are no objects or no keys."""
        lines.split_array()
        head = json_records(sample(lines), is_array=lines.is_array)
        objects = [self._object(record, lines.name) for record in head]
        if not objects:
            raise DataError("no rows", lines.name)
        names = list(dict.fromkeys(name for content in objects for name in content))
        if not names:
            raise DataError("an object without keys", lines.name, 1)
        return [names, *([_cell(content.get(name)) for name in names] for content in objects)]

    def read(self, lines: Lines, *, header: bool, needed: Sequence[Column]) -> Iterator[Row]:
        lines.split_array()
        records = skip_rejected(json_records(lines, is_array=lines.is_array), lines.name, needed=needed)
        return (Row(record, self._object(record, lines.name)) for record in records)

    def _object(self, record: Record, name: str) -> dict[str, Any]:
        try:
            content = parse_json(record.text, EXACT)
        except ParseError as error:
            advice = "expected one object in each line or an array of objects"
            raise DataError(f"{error}; {advice}", name, record.line) from None
        if not isinstance(content, dict):
            raise DataError(f"expected an object such as {self.example}", name, record.line)
        check_width(len(content), name, record.line)
        return flatten_inner(content) if self.inner else content

    def at(self, values: dict[str, Any], column: Column) -> Any:
        return values.get(column.name)

    def text(self, values: dict[str, Any], column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        value = values.get(column.name)
        if value is None and self.is_lenient:
            return ""
        if value is None:
            message = f"{column} is null" if column.name in values else describe_missing_column(column.name, [*values])
            raise IncompleteError(message, name, line, missing="text")
        if type(value) is not str and not (numbers and type(value) is NumberText):
            raise DataError(f"{column}: expected a string, found {to_json(value):.60}", name, line)
        check_characters(value, column, name, line)
        return str(value)

    def write(self, record: Record, labels: Sequence[str], answer: Answer) -> str:
        """Return the text of the record with an answer. Unchanged labels keep their form."""
        name = answer.column.name if answer.column else records.LABEL
        member_spans = members(record.text)
        old = record.text[slice(*member_spans[name])] if name in member_spans else ""
        new = {}
        if not (old and answer.labels and tuple(labels) == tuple(answer.labels)):
            new[name] = _labels_to_json(answer.labels, old, answer.separator)
        if answer.probabilities:
            values = [round(probability, 6) for probability in answer.probabilities]
            new[records.PROBABILITY] = json.dumps(values[0] if len(values) == 1 else values)
        return record.before + replace_values(record.text, new, ensure_ascii=False)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | list) else ""


def flatten_inner(content: dict[str, Any]) -> dict[str, Any]:
    """Flatten inner objects of texts: `{"translation": {"de": ..., "en": ...}}` becomes `{"de": ..., "en": ...}`."""
    inner: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict) and value and all(type(text) is str for text in value.values()):
            inner |= value
        else:
            others[key] = value
    return inner | others


def _labels_to_json(labels: Sequence[str], old: str, separator: str) -> str:
    if separator:
        labels = [separator.join(labels)]
    is_list = len(labels) != 1 or old.startswith("[")
    is_bare = old.lstrip("[" + _WHITE_SPACE)[:1] not in ("", "]", '"', "n")
    texts = [text if is_bare and _LITERAL.fullmatch(text) else json.dumps(text, ensure_ascii=False) for text in labels]
    return f"[{', '.join(texts)}]" if is_list else texts[0]


def check_characters(text: str, column: Column, name: str, line: int) -> None:
    """Raise DataError for a lone surrogate, which JSON can express, but encodings of files cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{column} has a lone surrogate; expected complete characters", name, line) from None
