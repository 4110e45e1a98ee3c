"""JSON objects, one for each record, and the texts under their keys."""

from __future__ import annotations

import json
from typing import Any

from ensue.data.columns import Column, no_column
from ensue.data.lines import Lines
from ensue.data.records import Record, json_records, sample
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json


class _Number(str):
    """A number as it is written."""


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number)


def json_object(record: Record, name: str, *, example: str) -> dict[str, Any]:
    """The object that the record of file `name` is; its numbers are strings. DataError, with an example, for others."""
    try:
        content = parse_json(record.text, _DECODER)
    except ParseError as error:
        raise DataError(f"{error}; expected one object in each line or an array of them", name, record.line) from None
    if not isinstance(content, dict):
        raise DataError(f"expected an object such as {example}", name, record.line)
    return content


def first_objects(lines: Lines, *, example: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The keys of the first objects, in order, and these objects. Raises DataError where there is none, or none with
    keys.
    """
    lines.split_array()
    head = json_records(sample(lines), is_array=lines.is_array)
    objects = [json_object(record, lines.name, example=example) for record in head]
    if not objects:
        raise DataError("no rows", lines.name)
    names = list(dict.fromkeys(name for content in objects for name in content))
    if not names:
        raise DataError("an object without keys", lines.name, 1)
    return names, objects


def value_under(content: dict[str, Any], column: Column, name: str, line: int) -> str:
    """The text or number under a key, as it is written. Raises DataError for what is none."""
    value = content.get(column.name)
    return str(value) if type(value) is _Number else text_under(content, column, name, line)


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
