"""Conversion of JSON files, and of tables with JSON in their cells, to JSON lines with one object for each example.

Extensions define layouts (`JsonLayout`), which convert a document or each of its values. Without a layout, the examples
of a document that spans several lines are its objects, or the objects in its only list, as in `{"data": [...]}`.
"""

import csv
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, tee
from typing import Any, ClassVar

from ensue.data.decoding import BOM, MAX_CHARACTERS, MAX_COLUMNS, join_chunks, split_lines
from ensue.data.json_array import array_chunks, begins_array, split_part
from ensue.data.row_files import BLOCK_ROWS, split_blocks, to_json_lines
from ensue.errors import DataError, list_names
from ensue.extension import loadable_entries
from ensue.parsing import EXACT_FLOATS, MAX_DEPTH, ParseError, parse_json

Row = dict[str, Any]
_TEXT_KEYS = ("text", "sentence", "content", "tokens", "words", "document", "review")
INCOMPLETE = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""The errors of `JsonLayout.rows` for an incomplete value."""
_CELL_STARTS = ('[{""', '{""', '[{"', '{"')
"""The beginnings of JSON in a cell, with or without doubled quotes."""
_VALUE_START = re.compile(r"[^ \t\r\n,]")


class JsonLayout(ABC):
    """A layout of each value of an array or of lines. An instance converts one file, which messages call `name`."""

    what: ClassVar[str] = ""
    """The description of a value in messages, such as "a task of Label Studio"."""
    is_buffered: ClassVar[bool] = False
    """Whether the layout may collect values, and return their examples, or one example, with a later value."""
    is_table: ClassVar[bool] = False
    """Whether the layout is also tried for tables without JSON in their cells."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    @abstractmethod
    def rows(self, value: Any) -> Iterable[Row] | None:
        """Return the examples in a JSON value; None if the value has another layout.

        Raises:
            DataError: The layout is recognized, but unsupported.
            KeyError, TypeError, ValueError, AttributeError, IndexError: The value is incomplete.
        """

    def rest(self) -> Iterable[Row]:
        """Return the examples of collected values after the last value."""
        return ()


class DocumentLayout(JsonLayout):
    """A layout of the value of an entire file."""


def json_rows(blocks: Iterator[str], name: str, numbers: deque[int]) -> Iterator[str]:
    """Yield the text of a JSON file; if it is not an array or lines of examples, yield the examples as JSON lines.

    Messages call the file `name`. `numbers` receives the line of each converted example. Raises DataError for a value
    that is incomplete or too long, and for several lists of examples.
    """
    first_block = next(blocks, "")
    text = first_block.removeprefix(BOM)
    is_array, _ = begins_array(iter([text]))
    if is_array:
        blocks, peeked = tee(blocks)
        layout = _element_layout(_first_element(chain([text], peeked), name), name)
        del peeked  # otherwise the iterators would hold all blocks in memory
        if layout is None:
            yield from chain([first_block], blocks)
            return
        _, chunks = begins_array(chain([text], blocks))
        texts = ((line, split_part(element)[1].strip()) for line, element in array_chunks(chunks, name))
        values = ((line, parse_json(text, EXACT_FLOATS)) for line, text in texts if text)
        yield from to_json_lines(split_blocks(_convert_values(layout, values, name, numbers)))
        return
    if text.lstrip()[:1] not in ("[", "{"):
        yield from chain([first_block], blocks)
        return
    while "\n" not in text and len(text) <= MAX_CHARACTERS and (block := next(blocks, "")):
        first_block, text = first_block + block, text + block
    line, is_line, following_lines = text.partition("\n")
    value = parse_or_none(line)
    layout = _element_layout(value, name) if is_line and following_lines.strip() else None
    if layout is not None:
        numbered = enumerate(split_lines(chain([text], blocks), name), 1)
        values = ((number, parse_json(line, EXACT_FLOATS)) for number, line in numbered if line.strip())
        yield from to_json_lines(split_blocks(_convert_values(layout, values, name, numbers)))
    elif isinstance(value, dict) and is_line and following_lines.strip():
        yield from chain([first_block], blocks)
    else:
        yield from _read_document(first_block, blocks, name, numbers)


def table_rows(blocks: Iterator[str], name: str, numbers: deque[int]) -> Iterator[str]:
    """Yield the text of a table, or its rows as a JSON array if its rows or cells have the layout of an extension.

    The line of each row of the array is appended to `numbers`.
    """
    first_block = next(blocks, "")
    text = first_block.removeprefix(BOM)
    has_json = any(f"{prefix}{start}" in text for prefix in (',"', ';"', '\t"', "\t") for start in _CELL_STARTS)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    blocks, peeked = tee(blocks)
    layout = None
    with suppress(csv.Error, DataError, StopIteration):
        _, row = next(_read_cells(split_lines(chain([text], peeked), name), delimiter, name))
        layout = _element_layout(row, name)
    del peeked
    if layout is None or not (has_json or layout.is_table):
        yield from chain([first_block], blocks)
        return
    values = _read_cells(split_lines(chain([text], blocks), name), delimiter, name)
    opening = "["
    for lines in to_json_lines(split_blocks(_convert_values(layout, values, name, numbers))):
        yield opening + lines.rstrip("\n").replace("\n", ",\n")
        opening = ",\n"
    yield "]\n" if opening != "[" else ""


def _read_cells(lines: Iterable[str], delimiter: str, name: str) -> Iterator[tuple[int, Row]]:
    """Yield the line of each row below the header, and its cells by column. Cells with JSON are parsed."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = next(reader, [])
    while rows := _read(reader, name):
        for number, row in rows:
            if len(row) > len(header):
                raise DataError(f"{len(row):,} columns; expected {len(header):,} as in line 1", name, number)
            if row:
                values = (parse_or_none(cell) if cell[:1] in ("[", "{") else None for cell in row)
                cells = (cell if value is None else value for cell, value in zip(row, values, strict=True))
                yield number, dict(zip(header, cells, strict=False))


def _read(reader: Any, name: str) -> list[tuple[int, list[str]]]:
    """Return the next rows with their first lines. The limit of the module `csv` on fields is raised temporarily."""
    rows, number, limit = [], reader.line_num + 1, csv.field_size_limit(MAX_CHARACTERS)
    try:
        for row in islice(reader, BLOCK_ROWS):
            rows.append((number, row))
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(str(error), name, number) from None
    finally:
        csv.field_size_limit(limit)
    return rows


def _read_document(first_block: str, blocks: Iterator[str], name: str, numbers: deque[int]) -> Iterator[str]:
    """Read a document completely, and yield its examples, or its text if it has no examples."""
    text = join_chunks(chain([first_block], blocks), name)
    parts, rows = _parse_concatenated(text.removeprefix(BOM), name), None
    values = [value for _, value, _ in parts]
    if len(values) == 1:
        rows = _convert(values[0], name, text, numbers)
    elif layout := _element_layout(_first_value(values), name):
        rows = _convert_values(layout, (part[:2] for part in parts), name, numbers)
    width = max((len(value) for value in values if isinstance(value, dict)), default=0)
    if rows is None and width > MAX_COLUMNS:
        raise DataError(f"an object with {width:,} keys; expected at most {MAX_COLUMNS:,}", name)
    if rows is not None:
        yield from to_json_lines(split_blocks(rows))
    elif "\n" in text.strip() and values and all(isinstance(value, dict) for value in values):
        numbers += (line for line, _, _ in parts)
        yield "".join(source.replace("\r", " ").replace("\n", " ") + "\n" for *_, source in parts)
    else:
        yield text


def _parse_concatenated(text: str, name: str) -> list[tuple[int, Any, str]]:
    """Return the line, the value and the text of each JSON value in a text; an empty list for other text."""
    parts, line, index, last = list[tuple[int, Any, str]](), 1, 0, 0
    try:
        while match := _VALUE_START.search(text, index):
            line, last = line + text.count("\n", last, match.start()), match.start()
            value, index = EXACT_FLOATS.raw_decode(text, last)
            parts.append((line, value, text[last:index]))
    except ValueError:
        return []
    except RecursionError:
        raise DataError(f"unsupported JSON: nested more than {MAX_DEPTH} deep", name) from None
    return parts


def _convert(value: Any, name: str, text: str, numbers: deque[int]) -> Iterable[Row] | None:
    """Return the examples in the value of a document, whose text is `text`; None without examples."""
    for layout in _layouts(name, are_documents=True):
        with suppress(*INCOMPLETE):
            if (rows := layout.rows(value)) is not None:
                return rows
    if isinstance(value, list):
        return _convert_list(value, name, text, numbers)
    if isinstance(value, dict) and (element := _element_layout(value, name)):
        return _convert_values(element, [(1, value)], name, numbers)
    values = {key: x for key, x in value.items() if isinstance(x, list)} if isinstance(value, dict) else {}
    lists = {k: x for k, x in values.items() if any(x) and all(isinstance(item, dict | list | None) for item in x)}
    if len(lists) > 1:
        example_keys = [key for key, items in lists.items()
                        if _element_layout(_first_value(items), name) or _has_text(_first_value(items))]  # fmt: skip
        lists = {key: lists[key] for key in example_keys or lists}
    if len(lists) > 1:
        names = list_names([f'"{key}"' for key in lists])
        raise DataError(f"an object with several lists of examples, {names}; expected one list in a file", name)
    if len(lists) == 1 and not _has_text(value):
        return _convert_list(next(iter(lists.values())), name, text, numbers)
    inner = [*value.values()] if isinstance(value, dict) else []
    return _convert(inner[0], name, text, numbers) if len(inner) == 1 and isinstance(inner[0], dict) else None


def _has_text(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), str | list) for key in _TEXT_KEYS)


def _first_value(values: list[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _convert_list(values: list[Any], name: str, text: str, numbers: deque[int]) -> Iterable[Row] | None:
    """Return the examples in a list of values of a text; None if the values are not objects and have no layout."""
    lines = _find_lines(values, text, name)
    if layout := _element_layout(_first_value(values), name):
        return _convert_values(layout, zip(lines, values, strict=True), name, numbers)
    is_list_of_rows = all(isinstance(value, dict) for value in values)
    numbers += lines if is_list_of_rows else ()
    return values if is_list_of_rows else None


def _find_lines(values: list[Any], text: str, name: str) -> list[int]:
    """Return the lines on which the values of a list of a JSON document begin."""
    for match in re.finditer(r'(?s)"[^"\\]*(?:\\.[^"\\]*)*"|\[', text):  # a string, or a bracket outside of strings
        start = match.start()
        if match[0] == "[":
            value = EXACT_FLOATS.raw_decode(text, start)[0]
            if len(value) == len(values) and str(value) == str(values):  # as strings, since NaN differs from itself
                parts = islice(array_chunks([text[start:]], name), len(values))
                return [text.count("\n", 0, start) + line for line, _ in parts]
    raise AssertionError("the list is in the text")


def _element_layout(value: Any, name: str) -> JsonLayout | None:
    for layout in _layouts(name, are_documents=False):
        with suppress(*INCOMPLETE):
            if layout.rows(value) is not None:
                return type(layout)(name)
    return None


def _layouts(name: str, *, are_documents: bool) -> list[JsonLayout]:
    classes = loadable_entries("json_layout", JsonLayout).values()
    return [layout(name) for layout in classes if issubclass(layout, DocumentLayout) == are_documents]


def _convert_values(
    layout: JsonLayout, values: Iterable[tuple[int, Any]], name: str, numbers: deque[int]
) -> Iterator[Row]:
    """Yield the examples of values with their lines, and append the line of each example to `numbers`."""
    lines = list[int]()  # lines of the values since the last example
    try:
        number = 1
        for number, value in values:
            try:
                rows = layout.rows(value) if value is not None else ()
            except INCOMPLETE:
                rows = None
            if rows is None:
                raise DataError(f"expected {layout.what}", name, number)
            lines = lines if layout.is_buffered else []
            lines.append(number)
            if examples := [*rows]:
                is_one_each = len(examples) == len(lines)
                numbers += lines if is_one_each else lines[:1] * len(examples)
                lines = [] if is_one_each else [number]
                yield from examples
        examples = [*layout.rest()]
        numbers += lines if len(examples) == len(lines) else lines[:1] * len(examples)
        yield from examples
    except ParseError as error:
        raise DataError(str(error), name, number) from None


def _first_element(chunks: Iterable[str], name: str) -> Any:
    with suppress(DataError, ParseError):  # raised again when the file is read
        for _, chunk in array_chunks(chunks, name):
            return parse_json(split_part(chunk)[1], EXACT_FLOATS)
    return None


def parse_or_none(text: str) -> Any:
    """Return the value of a JSON text; None for other text, for which the reader of the file raises an error."""
    with suppress(ParseError):
        return parse_json(text, EXACT_FLOATS)
    return None
