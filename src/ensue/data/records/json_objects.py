"""JSON objects, one for each record: texts and labels under their keys, and values replaced in their place."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

from ensue.data.annotation_files import CLIPPED
from ensue.data.lines import Lines
from ensue.data.records.reader import LABEL, PROBABILITY, Answer, Reader, Row
from ensue.data.records.record import Column, Record, json_records, no_column, sample
from ensue.errors import DataError
from ensue.notices import say_once
from ensue.parsing import ParseError, parse_json

TOKEN_KEYS = ("tokens", "words")
LABEL_KEYS = ("labels", "tags", "ner_tags", "pos_tags")
SPAN_KEYS = ("labels", "spans", "entities", "label")
"""The usual keys of a sentence in JSON: for its words, for a label of each word, for spans of its text."""
PRODIGY_KEYS = {"label", "spans", "options", "accept", "_input_hash", "_task_hash", "_view_id"}
"""Keys of Prodigy's rows, beside "answer"; a row of questions and answers has none."""
REJECTED = {"reject", "ignore"}
_NAMES = ("start", "end", "label")


def accepted(records: Iterator[Record], name: str, *, needed: Sequence[Column] = ()) -> Iterator[Record]:
    """The records without those that were rejected or ignored in Prodigy, which become text before the next one. Their
    number is said at the end. If the key "answer" is `needed`, a rejection is an answer.
    """
    left_out = REJECTED - ({"reject"} if any(column.name == "answer" for column in needed) else set())
    before, counts = "", Counter[str]()
    for record in records:
        if (answer := _answer(record.text)) in left_out:
            counts[answer] += 1
            before += record.before + record.text
        else:
            yield record._replace(before=before + record.before) if before else record
            before = ""
    if counts:
        rows = " and ".join(f'{count:,} with "answer": "{answer}"' for answer, count in sorted(counts.items()))
        say_once(f"rejected {name}", f"{name}: rows left out: {rows}")


def _answer(text: str) -> str:
    """The key "answer" of a row of Prodigy; "" of any other."""
    with suppress(ParseError):
        content = parse_json(text) if '"answer"' in text else {}
        if isinstance(content, dict) and content.keys() & PRODIGY_KEYS and isinstance(content["answer"], str):
            return content["answer"]
    return ""


def label_key(names: Collection[str]) -> str:
    """The key of the labels if the user names none; "" if there is none."""
    return next((key for key in (*LABEL_KEYS, *SPAN_KEYS) if key in names), "")


class TextSpan(NamedTuple):
    """The characters (code points) from `start` up to and without `end`."""

    start: int
    end: int
    label: str

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


class ClippedSpan(TextSpan):
    """The beginning of a span that ends behind the text, in a line further on."""


class SpanError(ValueError):
    """A span that is not in its text."""


def is_list_of_spans(value: Any) -> bool:
    """Whether it is a list with spans in it and nothing else."""
    return isinstance(value, list) and bool(value) and all(_parts(item) for item in value)


def text_spans(value: Sequence[Any], text: str, name: str, *, nested: bool = False) -> list[TextSpan]:
    """The sorted spans. Raises ValueError for a span outside of `text`, and for an overlap unless `nested`."""
    found = []
    for item in value:
        parts = _parts(item)
        if not parts:
            raise ValueError(
                f'"{name}" must hold spans such as {{"start": 0, "end": 3, "label": "PER"}} or [0, 3, "PER"]'
            )
        start, end, label = parts
        if not 0 <= start < end <= len(text):
            raise SpanError(f"the span {parts} is not in the text, which has {len(text)} characters")
        if not label:
            raise ValueError(f"the span {parts} has an empty label")
        found.append(parts)
    found.sort()
    for before, behind in pairwise(found):
        if behind.start < before.end and not nested:
            raise ValueError(f"the spans {before} and {behind} overlap; the recipe tag-nested learns such spans")
    return found


def span_list(spans: Sequence[TextSpan], like: Any, name: str) -> list[Any]:
    """The spans in the form of those in `like`, or if it has none, in the usual form under that key."""
    has_lists = isinstance(like[0], list) if isinstance(like, list) and like else name in ("label", "labels")
    return [list(span) if has_lists else span._asdict() for span in spans]


def span_places(value: Sequence[Any]) -> list[tuple[int, int]]:
    """The start and end of each span, also of those that are not in the text."""
    return [(span.start, span.end) for span in map(_parts, value) if span is not None]


def _parts(item: Any) -> TextSpan | None:
    values = [item.get(name) for name in _NAMES] if isinstance(item, dict) else item
    if isinstance(values, list) and list(map(type, values)) == [int, int, str]:
        return (ClippedSpan if isinstance(item, dict) and item.get(CLIPPED) is True else TextSpan)(*values)
    return None


_WHITE = " \t\r\n"


class _Number(str):
    """A number as it is written, which may have more digits than Python reads."""


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number)
_BARE = re.compile(r"true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


def with_values(text: str, values: Mapping[str, str], *, ensure_ascii: bool) -> str:
    """The text with these values (JSON texts) in its first object: in place of its own, or after them.

    New keys are written like the others: each on a line, or with or without blanks after commas and colons.
    """
    own = members(text)
    opening = text.index("{") + 1
    lead = text[opening : _behind_white(text, opening)]
    blank = " " if has_blanks(text) else ""
    comma = "," + (lead if "\n" in lead else blank)
    added = [f"{json.dumps(key, ensure_ascii=ensure_ascii)}:{blank}{values[key]}" for key in values if key not in own]
    end = max((end for _, end in own.values()), default=opening)
    text = text[:end] + (comma if own and added else "") + comma.join(added) + text[end:]
    for key in sorted(own.keys() & values.keys(), key=lambda key: -own[key][0]):
        start, stop = own[key]
        text = text[:start] + values[key] + text[stop:]
    return text


def has_blanks(text: str) -> bool:
    """Whether a blank stands before the first value of the first object, or there is no value."""
    return all(text[start - 1] in _WHITE for start, _ in list(members(text).values())[:1])


def members(text: str) -> dict[str, tuple[int, int]]:
    """Where the value of each key starts and ends in the first object of a text, which is known to be JSON."""
    found: dict[str, tuple[int, int]] = {}
    place = text.index("{") + 1
    while not text.startswith("}", place := _behind_white(text, place)):
        place = _behind_white(text, place + 1 if text[place] == "," else place)
        key, place = _DECODER.raw_decode(text, place)
        start = _behind_white(text, _behind_white(text, place) + 1)
        _, place = _DECODER.raw_decode(text, start)
        found[key] = (start, place)
    return found


def _behind_white(text: str, place: int) -> int:
    while text[place] in _WHITE:
        place += 1
    return place


class JsonObjects(Reader):
    """JSON objects, on lines or in one array; with `inner`, those that are `flat`."""

    name = "json"
    has_keys = True

    def __init__(self, *, inner: bool = False) -> None:
        self.inner = inner
        self.example = '{"source": ..., "target": ...}' if inner else '{"text": ..., "label": ...}'

    def flat(self) -> JsonObjects:
        return JsonObjects(inner=True)

    def first(self, lines: Lines) -> list[list[str]]:
        """Raises DataError where there is no object, or none with keys."""
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
        return (
            Row(record, self._object(record, lines.name))
            for record in accepted(json_records(lines, is_array=lines.is_array), lines.name, needed=needed)
        )

    def _object(self, record: Record, name: str) -> dict[str, Any]:
        """The object that a record of file `name` is; its numbers are strings. Raises DataError for others."""
        try:
            content = parse_json(record.text, _DECODER)
        except ParseError as error:
            advice = "expected one object in each line or an array of them"
            raise DataError(f"{error}; {advice}", name, record.line) from None
        if not isinstance(content, dict):
            raise DataError(f"expected an object such as {self.example}", name, record.line)
        return with_inner(content) if self.inner else content

    def at(self, values: dict[str, Any], column: Column) -> Any:
        return values.get(column.name)

    def text(self, values: dict[str, Any], column: Column, name: str, line: int, *, numbers: bool = False) -> str:
        value = values.get(column.name)
        return str(value) if numbers and type(value) is _Number else text_under(values, column, name, line)

    def written(self, record: Record, own: Sequence[str], answer: Answer) -> str:
        """Labels that say the same stay as they are written."""
        name = answer.column.name if answer.column else LABEL
        present = members(record.text)
        old = record.text[slice(*present[name])] if name in present else ""
        new = {}
        if not (old and answer.labels and tuple(own) == tuple(answer.labels)):
            new[name] = _written(answer.labels, old, answer.separator)
        if answer.probabilities:
            values = [round(probability, 6) for probability in answer.probabilities]
            new[PROBABILITY] = json.dumps(values[0] if len(values) == 1 else values)
        return record.before + with_values(record.text, new, ensure_ascii=False)


def _cell(value: Any) -> str:
    """A value as a cell, where columns are told by what is in them."""
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool | list) else ""


def with_inner(content: dict[str, Any]) -> dict[str, Any]:
    """The object, with the texts of objects inside of it as its own: `{"translation": {"de": ..., "en": ...}}`."""
    inner = [key for key, value in content.items() if isinstance(value, dict) and value and _are_texts(value)]
    return {key: text for name in inner for key, text in content[name].items()} | {
        key: value for key, value in content.items() if key not in inner
    }


def _are_texts(content: dict[str, Any]) -> bool:
    return all(type(text) is str for text in content.values())


def _written(labels: Sequence[str], old: str, separator: str) -> str:
    """Labels as JSON: a list where there was one or where they are not one; bare where a number or boolean was."""
    if separator:
        labels = [separator.join(labels)]
    is_list = len(labels) != 1 or old.startswith("[")
    is_bare = old.lstrip("[" + _WHITE)[:1] not in ("", "]", '"', "n")
    found = [each if is_bare and _BARE.fullmatch(each) else json.dumps(each, ensure_ascii=False) for each in labels]
    return f"[{', '.join(found)}]" if is_list else found[0]


def text_under(content: dict[str, Any], column: Column, name: str, line: int) -> str:
    """The text under a key. Raises DataError for what is none."""
    text = content.get(column.name)
    if text is None:
        raise DataError(
            f"{column} is null" if column.name in content else no_column(column.name, [*content]), name, line
        )
    if type(text) is not str:
        raise DataError(f"{column} must be a string", name, line)
    check_characters(text, column, name, line)
    return text


def check_characters(text: str, column: Column, name: str, line: int) -> None:
    """Raises DataError for half a surrogate pair, which JSON can write and no file can hold."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{column} has half a surrogate pair; expected whole characters", name, line) from None
